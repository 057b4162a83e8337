"""One XLA program from a schedule: stages over all rows, recurrences as level loops.

Everything here runs under JAX's tracing: arrays are tracers, and what is emitted is what the calls leave in the jaxpr.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.row_operations import data_column
from autobatch.backends.xla.loops import Buffers, LevelLoop
from autobatch.backends.xla.native.before import before_loops
from autobatch.backends.xla.products.operation import Matrices, product_of_rows
from autobatch.backends.xla.rows import compute, compute_live, counted, rows_of_each, segment_reduce, take
from autobatch.common import targets
from autobatch.data.spec import Signature, TableRequest, layout
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, Literal
from autobatch.ir.system import (
    PLACED,
    Atom,
    Collect,
    Compute,
    Constant,
    Contract,
    Data,
    Equation,
    Fold,
    Follow,
    Gather,
    Given,
    HostColumn,
    PathSum,
    Scatter,
    Selected,
    Shared,
    Spread,
    Taken,
    Variable,
    reads,
    results,
)
from autobatch.passes.costs import gather_layout, weight_dtype
from autobatch.passes.equations import lookups, row_product
from autobatch.passes.fission import Recurrence, RowOrder, Schedule, ScheduleStage, Task


@dataclass
class ScheduleEmitter:
    """A schedule and the tables it reads, to be traced for one signature."""

    schedule: Schedule
    request: TableRequest
    constants: Sequence[Any]
    products: str
    """The option of that name."""
    loops: str
    """The option of that name."""

    def run(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, handed: Sequence[Any] = ()
    ) -> list[Any]:
        """The outputs of the system: arrays over the capacity of their spaces. `handed`: what `Given`s stand for."""
        assert not handed, "only derivatives are handed anything"
        emission = Emission(self, shared, tables, signature)
        emission.run()
        return [emission.read(v) for v in self.schedule.system.outputs]


WIDE = 128
"""Elements of a row from which on a loop copies the rows of a window itself: a copy of all rows before the loop would
be written to memory and read again. Narrow ones are not worth a kernel in each window."""


def rows_read_in_loops(schedule: Schedule) -> dict[Variable, Gather | Spread]:
    """Copies of rows, outside of loops, that nothing but computations of loops reads, in the order that they have."""
    found: dict[Variable, Gather | Spread] = {}
    for step in schedule.steps:
        for equation in step.equations if isinstance(step, ScheduleStage) else ():
            if isinstance(equation, Gather | Spread) and math.prod(equation.result.type.shape) >= WIDE:
                source = equation.sources if isinstance(equation, Gather) else (equation.source,)
                if len(source) == 1 and source[0].space is not None and equation.result.space is not None:
                    found[equation.result] = equation
    for x in schedule.system.outputs:
        found.pop(x, None)
    for step in schedule.steps:
        places = (
            [(None, step.equations)]
            if isinstance(step, ScheduleStage)
            else [(t.order, t.equations) for t in step.tasks]
        )
        for order, equations in places:
            for equation in equations:
                for x in reads(equation):
                    if x in found and (not isinstance(equation, Compute) or order != schedule.home[x]):
                        del found[x]
    return found


class Emission:
    """The state of one trace: which array holds each variable so far."""

    def __init__(
        self,
        program: ScheduleEmitter,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
    ) -> None:
        self.schedule, self.request, self.constants = program.schedule, program.request, program.constants
        own = targets.is_for_here()
        self.products, self.loops = (program.products, program.loops) if own else ("xla", "xla")
        self.shared, self.tables, self.signature = shared, tables, signature
        self.places, _ = layout(program.request, signature)
        self.env: dict[Variable, Any] = {}
        self.late = rows_read_in_loops(program.schedule)
        self.lookups = lookups(program.schedule)
        self.buffers = Buffers(self.products, first=1000 * max((v.id for v in self.schedule.home), default=0))
        self.wholes: dict[tuple[Variable, ...], Any] = {}
        self.permuted: dict[tuple[Variable, int], Any] = {}
        self.multiplied: dict[tuple[Variable, ...], Any] = {}
        stages = [s for s in self.schedule.steps if isinstance(s, ScheduleStage)]
        self.makers = {r: e for s in stages for e in s.equations for r in results(e)}
        self.stage_of = {r: s for s in stages for e in s.equations for r in results(e)}
        self.matrices = Matrices(self.env, self.makers)
        self.before = before_loops(self.schedule, self.lookups) if self.loops != "xla" else {}
        parts = [(*b.waiting, *(e for t in b.tasks for e in t.equations)) for b in self.before.values()]
        self.later = {id(e) for equations in parts for e in equations}

    def run(self) -> None:
        for step in self.schedule.steps:
            if isinstance(step, ScheduleStage):
                self.stage(step)
            else:
                self.loop(step)

    # ---- tables

    def table(self, name: str) -> Any:
        start, length = self.places[name]
        return jax.lax.slice_in_dim(self.tables["integers"], start, start + length)

    def window(self, name: str, start: Any, width: int) -> Any:
        """Entries start:start+width of a table, read straight from the array that holds all tables."""
        first, _ = self.places[name]
        table = self.tables["integers"]
        return jax.lax.dynamic_slice_in_dim(table, first + start, width, allow_negative_indices=False)

    def entry(self, name: str, index: Any) -> Any:
        return self.window(name, index, 1)[0]

    def count(self, space: int) -> Any:
        """How many rows of a space count."""
        return np.int32(self.signature.capacity[space]) if self.signature.full else self.entry("counts", space)

    def in_place(self, gather: Equation) -> bool:
        """Does each row read the row that has its number?"""
        if not isinstance(gather, Gather):
            return False
        return f"{gather.table}@{self.schedule.home[gather.result].index}" in self.signature.in_place

    def live(self, equation: Compute) -> Any:
        """bool[capacity]: which rows of a computation count; None where it runs once."""
        if equation.space is None:
            return None
        capacity = self.capacity(self.schedule.home[equation.results[0]])
        return jnp.arange(capacity) < self.count(equation.space.index)

    def capacity(self, order: RowOrder) -> int:
        return self.signature.capacity[order.space.index]

    # ---- values

    def read(self, x: Variable) -> Any:
        return self.env[x]

    def copied(self, x: Variable) -> tuple[Any, str]:
        """Of rows that a `Spread` or `Gather` copies: the array that holds them, and the table that says which."""
        equation, home = self.late[x], self.schedule.home[x].index
        if isinstance(equation, Spread):
            assert equation.source.space is not None
            return self.env[equation.source], f"spread{equation.source.space.index}@{home}"
        return self.joined(equation.sources, jax_compat.device_dtype(x.type)), f"{equation.table}@{home}"

    def atom(self, x: Atom) -> Any:
        if isinstance(x, Variable):
            return self.env[x]
        return self.literal(x)

    def literal(self, x: Literal) -> Any:
        assert isinstance(x.type, Array)
        if x.constant >= 0:
            return jnp.asarray(self.constants[x.constant])
        return jax_compat.literal(x.value, x.type)

    def in_order(self, x: Variable, order: RowOrder) -> Any:
        """All rows of `x`, in the given order of its space."""
        home = self.schedule.home[x]
        if home.index == order.index:
            return self.env[x]
        if (x, order.index) not in self.permuted:
            self.permuted[x, order.index] = take(self.env[x], self.table(f"perm{order.index}<{home.index}"))
        return self.permuted[x, order.index]

    def joined(self, variables: Sequence[Variable], dtype: Any) -> Any:
        """The arrays of some variables, one behind the other; a uniform one is a single row."""
        if (product := self.product_of_joined(variables)) is not None:
            return product.astype(dtype) if product.dtype != dtype else product
        parts = [self.env[v] if v.space is not None else jnp.asarray(self.env[v])[None] for v in variables]
        whole = self.wholes.get(tuple(variables), parts[0] if len(parts) == 1 else None)
        if whole is not None:
            return whole.astype(dtype) if whole.dtype != dtype else whole
        return jnp.concatenate([p.astype(dtype) if p.dtype != dtype else p for p in parts])

    def hold(self, variables: tuple[Variable, ...], whole: Any) -> None:
        """The arrays of some variables have become one, one behind the other. Each is a part of it from now on: XLA
        takes the same parts put together again for the whole, and copies nothing."""
        self.wholes[variables] = whole
        at = 0
        for v in variables:
            rows = 1 if v.space is None else self.capacity(self.schedule.home[v])
            held = self.env.get(v)
            if held is not None and v.space is not None and held.dtype == whole.dtype:
                self.env[v] = jax.lax.slice_in_dim(whole, at, at + rows)
            at += rows

    def product_of_joined(self, variables: Sequence[Variable]) -> Any | None:
        """Where all are products of rows by one matrix (`contractions.py`): one product of all rows; else None."""
        products = [row_product(self.makers[v]) for v in variables if v in self.makers]
        found = [p for p in products if p is not None]
        if len(found) < 2 or len(found) < len(variables) or len({(p.form, p.weight) for p in found}) > 1:
            return None
        if any(self.schedule.home[p.row] != self.schedule.home[v] for p, v in zip(found, variables, strict=True)):
            return None
        key = tuple(variables)
        if key not in self.multiplied:
            rows = self.joined([p.row for p in found], jax_compat.device_dtype(found[0].row.type))
            xs = [rows if k == found[0].side else self.env[found[0].weight] for k in range(2)]
            (self.multiplied[key],) = compute(found[0].equation, xs)
        return self.multiplied[key]

    # ---- stages

    def stage(self, stage: ScheduleStage) -> None:
        for equation in stage.equations:
            if isinstance(equation, Gather | Spread) and (
                equation.result in self.late or equation.result in self.lookups
            ):
                continue
            if id(equation) in self.later:
                continue
            self.env.update(zip(results(equation), self.whole(equation, stage), strict=True))

    def whole(self, equation: Equation, step: ScheduleStage | Recurrence) -> Sequence[Any]:
        """The results of an equation over all rows of its space."""
        match equation:
            case Shared(index=index):
                return [jnp.asarray(self.shared[index])]
            case Constant(result=result, literal=literal):
                return [jax_compat.conform(self.literal(literal), result.type)]
            case HostColumn(result=result, table=table):
                name = f"{table}@{self.schedule.home[result].index}"
                values = self.tables[name] if table in self.request.wide else self.table(name)
                return [values.astype(jax_compat.device_dtype(result.type))]
            case Data(result=result, column=column):
                return [data_column(self.tables[column], result.type)]
            case Gather(result=result, table=table):
                variables, _ = gather_layout(self.schedule, equation, step)
                if self.in_place(equation):
                    return [self.joined(variables, jax_compat.device_dtype(result.type))]
                index = self.table(f"{table}@{self.schedule.home[result].index}")
                return [take(self.joined(variables, jax_compat.device_dtype(result.type)), index)]
            case Fold(kind=kind) if kind == PLACED:
                return [self.placed(equation, self.elements(equation, step))]
            case Fold():
                return [self.segments(equation, equation.kind, equation.table, step)]
            case PathSum():
                return [self.segments(equation, "sum", equation.name, step)]
            case Spread(result=result, source=source):
                assert source.space is not None
                index = self.table(f"spread{source.space.index}@{self.schedule.home[result].index}")
                return [take(self.env[source], index)]
            case Compute(operands=operands, space=space):
                if space is None:
                    return compute(equation, [self.atom(x) for x in operands])
                order = self.schedule.home[equation.results[0]]
                if isinstance(operands[0], Variable) and operands[0] in self.lookups:
                    return [self.looked_up(equation, operands[0], order)]
                count, rows = self.count(space.index), self.capacity(order)
                matrices = self.matrices
                product = product_of_rows(
                    self.products, equation, matrices, rows, lambda x: self.operand(x, order), count
                )
                if product is not None:
                    return [product]
                return compute_live(equation, [self.operand(x, order) for x in operands], rows, count, loops=self.loops)
            case Given() | Contract() | Scatter() | Selected() | Taken() | Collect() | Follow():
                raise AssertionError("an equation of a derivative")
            case _:
                assert_never(equation)

    def looked_up(self, equation: Compute, table: Variable, order: RowOrder) -> Any:
        """Rows of an array of which each row would have a copy, where the copies come from."""
        read = self.lookups[table]
        which = self.table(f"{read.table}@{order.index}")
        tables = self.joined(read.sources, jax_compat.device_dtype(table.type))
        return rows_of_each(equation, [self.operand(x, order) for x in equation.operands[1:]], tables, which)

    def operand(self, x: Atom, order: RowOrder) -> Any:
        if isinstance(x, Variable) and x.space is not None:
            return self.in_order(x, order)
        return self.atom(x)

    def segments(self, fold: Fold | PathSum, kind: str, table: str, step: ScheduleStage | Recurrence) -> Any:
        """A fold over all rows: a reduction by sorted segments."""
        order = self.schedule.home[fold.result]
        name, rows = f"{table}@{order.index}", self.capacity(order)
        values = self.elements(fold, step)
        live = jnp.arange(values.shape[0]) < self.count(fold.elements.index)
        owner = jnp.where(live, self.table(f"{name}.owner"), rows)
        if isinstance(fold, PathSum):
            values = values * self.weights(fold, name).reshape(-1, *(1,) * (values.ndim - 1)).astype(values.dtype)
        else:
            values = counted(fold, values, owner)
        return segment_reduce(kind, values, owner, rows)

    def elements(self, fold: Fold | PathSum, step: ScheduleStage | Recurrence) -> Any:
        """The elements of the runs of a fold, in their order."""
        table = fold.name if isinstance(fold, PathSum) else fold.table
        variables, _ = gather_layout(self.schedule, fold, step)
        values = self.joined(variables, jax_compat.device_dtype(fold.result.type))
        return take(values, self.table(f"{table}@{self.schedule.home[fold.result].index}.index"))

    def placed(self, fold: Fold, elements: Any) -> Any:
        """The elements of each run side by side, and zeros behind them."""
        bounds = self.table(f"{fold.table}@{self.schedule.home[fold.result].index}.start")
        at = bounds[:-1, None] + jnp.arange(fold.result.type.shape[0], dtype=bounds.dtype)
        live = at < bounds[1:, None]
        values = take(elements, jnp.where(live, at, 0))
        return jnp.where(live.reshape(*at.shape, *(1,) * (elements.ndim - 1)), values, jnp.zeros_like(values))

    def weights(self, equation: PathSum, name: str) -> Any:
        """How many paths lead to each element, from the words that the table holds."""
        dtype = jnp.dtype(weight_dtype(equation))
        words = self.table(f"{name}.weight")
        return jax.lax.bitcast_convert_type(words.reshape(-1, 2) if dtype.itemsize == 8 else words, dtype)

    # ---- recurrences

    def loop(self, recurrence: Recurrence) -> None:
        """By the kernel, with what fills its buffers before; else by XLA."""
        before = self.before.get(recurrence.index)
        tasks = () if before is None else before.tasks
        loop = self.level_loop(recurrence, tasks)
        found = loop.by_kernel()
        if found is None and tasks:
            self.compute(e for t in tasks for e in t.equations)
            loop = self.level_loop(recurrence)
            found = loop.by_kernel()
        self.env.update(loop.by_xla() if found is None else found)
        if before is not None:
            self.compute(before.waiting)

    def compute(self, equations: Iterable[Equation]) -> None:
        """Equations of stages, later than their turn."""
        for e in equations:
            self.env.update(zip(results(e), self.whole(e, self.stage_of[results(e)[0]]), strict=True))

    def level_loop(self, recurrence: Recurrence, before: Sequence[Task] = ()) -> LevelLoop:
        return LevelLoop(self, recurrence, before)

    def forgetful(self) -> Self:
        """The same emission without what it has made so far, to be made of other arrays."""
        made = copy.copy(self)
        made.env, made.wholes, made.permuted, made.multiplied = {}, {}, {}, {}
        made.buffers = Buffers(self.products, first=next(self.buffers.numbers))
        made.matrices = Matrices(made.env, self.makers)
        return made
