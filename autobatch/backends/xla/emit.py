"""One XLA program from a schedule: stages over all rows, recurrences as level loops.

Everything here runs under JAX's tracing: arrays are tracers, and what is emitted is what the calls leave in the jaxpr.
A level loop is a recurrence as nested loops over levels, tasks and windows of rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Self, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.xla.level_kernels import before_loops, native
from autobatch.backends.xla.rows import (
    LoopProducts,
    Matrices,
    Runs,
    Source,
    choose_empty,
    compute,
    compute_live,
    counted,
    empty,
    product_of_rows,
    rows_of_each,
    segment_reduce,
    take,
)
from autobatch.common import runtime
from autobatch.data.spec import Signature, TableRequest, layout, window_widths
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, Literal
from autobatch.ir.leaf import NEUTRAL, combine, data_column
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
from autobatch.planning.plan import of_word

# ---- schedules


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
        own = runtime.is_for_here()
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
        """Where all are products of rows by one matrix (`passes/equations.py`): one product of all rows; else None."""
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


# ---- level loops


Carry = tuple[Any, list[Any], list[Any]]
"""Of a loop over levels: the level, how many windows of each task are done, the buffers."""


@dataclass
class Buffer:
    """What a loop writes rows to: several arrays, one behind the other, each of so many rows. `parts`: those that are
    there before the loop; None for what it makes."""

    parts: list[Any | None]
    rows: list[int]
    shape: tuple[int, ...]
    dtype: Any

    @property
    def whole(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((sum(self.rows), *self.shape), self.dtype)


class LevelLoop:
    """One recurrence: a loop over levels, in each level over the tasks, in each task over windows of several widths.

    Each array that other rows read is one buffer; a window gathers its operands, computes, and writes its rows in one
    contiguous slice."""

    def __init__(self, emission: Emission, recurrence: Recurrence, before: Sequence[Task] = ()) -> None:
        """`before`: tasks on all rows of other spaces, whose results stand in the buffers of the loop. Only the kernel
        runs them together with it."""
        self.e, self.recurrence, self.before = emission, recurrence, tuple(before)
        self.tasks = (*self.before, *recurrence.tasks)
        self.made = {r: t for t in self.tasks for e in t.equations for r in results(e)}
        self.place: dict[Variable, tuple[int, int]] = {}
        self.buffers: list[Buffer] = []
        self.shared: list[tuple[tuple[Variable, ...], int]] = []
        self.joined: dict[str, Any] = {}
        self.ordered: dict[tuple[Variable, int], Any] = {}
        self.copied: dict[Variable, tuple[Any, str]] = {}
        self.products = LoopProducts(emission.products, recurrence, emission.request.widths, emission.matrices)
        self.prepare()
        for group in recurrence.buffers:
            self.shared_buffer(group)
        wanted = self.read_elsewhere()
        for variable, task in self.made.items():
            if variable not in self.place and variable in wanted:
                self.place[variable] = (len(self.buffers), 0)
                rows, dtype = emission.capacity(task.order), jax_compat.device_dtype(variable.type)
                self.buffers.append(Buffer([None], [rows], variable.type.shape, dtype))

    def prepare(self) -> None:
        """What the loop reads and does not change is put in place before it."""
        for task in self.tasks:
            for equation in task.equations:
                match equation:
                    case Gather(sources=sources) | Fold(sources=sources):
                        if not any(s in self.made for s in sources):
                            dtype = jax_compat.device_dtype(equation.result.type)
                            self.joined[equation.table] = self.e.joined(sources, dtype)
                    case Compute(operands=operands):
                        for x in operands:
                            if not isinstance(x, Variable) or x.space is None or x in self.made:
                                continue
                            if x in self.e.late:
                                self.copied[x] = self.e.copied(x)
                            else:
                                self.ordered[x, task.order.index] = self.e.in_order(x, task.order)
                    case _:
                        pass

    def shared_buffer(self, group: tuple[Variable, ...]) -> None:
        dtypes = {jax_compat.device_dtype(v.type) for v in group}
        dtype = jnp.result_type(*dtypes) if len(dtypes) > 1 else dtypes.pop()
        parts: list[Any | None] = []
        rows: list[int] = []
        for v in group:
            part = None if v in self.made else self.e.joined([v], dtype)
            if part is None:
                self.place[v] = (len(self.buffers), sum(rows))
            parts.append(part)
            rows.append(self.e.capacity(self.made[v].order) if part is None else part.shape[0])
        self.shared.append((group, len(self.buffers)))
        self.buffers.append(Buffer(parts, rows, group[0].type.shape, dtype))

    def read_elsewhere(self) -> set[Variable]:
        """Variables that something outside this loop, or another task of it, reads."""
        found = set(self.e.schedule.system.outputs)
        inside = {id(e): t for t in self.tasks for e in t.equations}
        for equation in self.e.schedule.system.equations:
            task = inside.get(id(equation))
            found.update(v for v in reads(equation) if v in self.made and (task is None or self.made[v] is not task))
        return found

    def runs_of(self, equation: Collect | Follow) -> Runs:
        """What the rows of an equation of a derivative read."""
        raise AssertionError("an equation of a derivative")

    def by_kernel(self) -> dict[Variable, Any] | None:
        """What is read elsewhere, where the kernel can run the loop; else None."""
        final = native(self)
        return None if final is None else self.placed(final)

    def by_xla(self) -> dict[Variable, Any]:
        """What is read elsewhere, by loops that XLA compiles."""
        return self.placed(self.levels_by_xla())

    def placed(self, final: Sequence[Any]) -> dict[Variable, Any]:
        """What the buffers hold after all levels."""
        found: dict[Variable, Any] = {}
        for group, buffer in self.shared:
            self.e.hold(group, final[buffer])
        for variable, task in self.made.items():
            if variable in self.place:
                buffer, at = self.place[variable]
                rows = self.e.capacity(task.order)
                whole = final[buffer]
                found[variable] = whole if whole.shape[0] == rows else jax.lax.slice_in_dim(whole, at, at + rows)
        return found

    def levels_by_xla(self) -> list[Any]:
        """The buffers after all levels, by loops that XLA compiles."""
        assert not self.before
        index = self.recurrence.index
        levels = self.e.entry("levels", index)
        reverse, tasks = self.recurrence.reverse, self.recurrence.tasks

        def level(carry: Carry) -> Carry:
            turn, done, buffers = carry
            at = levels - 1 - turn if reverse else turn
            done = list(done)
            for k, task in enumerate(tasks):
                done[k], buffers = self.windows(task, at, done[k], buffers)
            return turn + 1, done, buffers

        done = [self.e.entry(self.table_of(t, "firsts"), levels) if reverse else jnp.int32(0) for t in tasks]
        initial = [self.e.buffers.beginning(b.parts, b.rows, b.shape, b.dtype) for b in self.buffers]
        start: Carry = (jnp.int32(0), done, initial)
        _, _, final = jax.lax.while_loop(lambda c: c[0] < levels, level, start)
        return final

    def table_of(self, task: Task, table: str) -> str:
        """The name of a table of the loop of a task."""
        return f"loop{self.recurrence.index}.{task.order.index}.{table}"

    def windows(self, task: Task, level: Any, done: Any, buffers: list[Any]) -> tuple[Any, list[Any]]:
        """The windows of a level, width by width; `done` counts those of the levels before (in reverse: those that are
        left)."""
        widths = list(enumerate(window_widths(self.e.request, self.e.signature, task.order.index)))
        for kind, width in reversed(widths) if self.recurrence.reverse else widths:
            done, buffers = self.windows_of(task, (kind, width, len(widths)), level, done, buffers)
        return done, buffers

    def windows_of(
        self, task: Task, of: tuple[int, int, int], level: Any, done: Any, buffers: list[Any]
    ) -> tuple[Any, list[Any]]:
        """The windows of one width of a level. `of`: which of the widths, the width, how many there are. The bounds are
        read where they are compared and used: a scalar that the level computed for its loops would be a kernel of its
        own."""
        kind, width, widths = of
        words, firsts, ends = (self.table_of(task, name) for name in ("windows", "firsts", "end"))
        reverse = self.recurrence.reverse

        def at_place(at: Any) -> tuple[Any, Any]:
            return of_word(self.e.entry(words, at - 1 if reverse else at), widths)

        def step(carry: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
            at, held = carry
            start, _ = at_place(at)
            if reverse:  # rows behind those of the level are finished and are computed again, to the same values
                begin = jnp.where(level > 0, self.e.entry(ends, jnp.maximum(level - 1, 0)), 0)
                live = jnp.maximum(begin - start, 0), self.e.count(task.order.space.index) - start
                return at - 1, self.window(task, width, start, live, held)
            return at + 1, self.window(task, width, start, (0, self.e.entry(ends, level) - start), held)

        def more(carry: tuple[Any, list[Any]]) -> Any:
            at = carry[0]
            inside = at > self.e.entry(firsts, level) if reverse else at < self.e.entry(firsts, level + 1)
            return inside if widths == 1 else inside & (at_place(at)[1] == kind)

        found: tuple[Any, list[Any]] = jax.lax.while_loop(more, step, (done, buffers))
        return found

    def window(self, task: Task, width: int, start: Any, live: tuple[Any, Any], buffers: list[Any]) -> list[Any]:
        """Rows start:start+width of one task; those outside the interval `live` are of levels to come, and are
        overwritten."""
        order: RowOrder = task.order
        local: dict[Variable, Any] = {}

        def row(x: Atom) -> Any:
            if not isinstance(x, Variable) or x.space is None:
                return self.e.atom(x)
            if x not in local:
                local[x] = self.slice(x, order, start, width, buffers)
            return local[x]

        def read(gather: Gather) -> Source:
            return self.read_by(gather, order, start, width, buffers)

        found: Sequence[Any]
        for equation in task.equations:
            if (product := self.products.of(equation, width, row, read)) is not None:
                found = [product]
            elif isinstance(equation, Compute):
                first, end = live
                found = compute_live(equation, [row(x) for x in equation.operands], width, end, first)
            else:
                found = [self.gathered(equation, order, start, width, buffers)]
            local.update(zip(results(equation), found, strict=True))
        buffers = list(buffers)
        for equation in task.equations:
            for result in results(equation):
                if result in self.place:
                    buffer, at = self.place[result]
                    value = local[result].astype(buffers[buffer].dtype)
                    buffers[buffer] = jax.lax.dynamic_update_slice_in_dim(
                        buffers[buffer], value, at + start, 0, allow_negative_indices=False
                    )
        return buffers

    def gathered(self, equation: Equation, order: RowOrder, start: Any, width: int, buffers: list[Any]) -> Any:
        """What an equation that reads other rows gives for the rows of a window."""
        match equation:
            case Gather():
                return take(*self.read_by(equation, order, start, width, buffers))
            case Fold():
                return self.run_of_rows(equation, order, start, width, buffers)
            case _:
                raise AssertionError("only computations, gathers and folds are in cycles")

    def read_by(self, gather: Gather, order: RowOrder, start: Any, width: int, buffers: list[Any]) -> tuple[Any, Any]:
        """The array that a gather reads, and which rows of it belong to a window."""
        return self.source(gather, buffers), self.e.window(f"{gather.table}@{order.index}", start, width)

    def slice(self, x: Variable, order: RowOrder, start: Any, width: int, buffers: list[Any]) -> Any:
        """The window's rows of a variable of the same space."""
        if x in self.copied:
            whole, table = self.copied[x]
            return take(whole, self.e.window(table, start, width))
        if x not in self.made:
            whole = self.ordered[x, order.index]
            return jax.lax.dynamic_slice_in_dim(whole, start, width, allow_negative_indices=False)
        buffer, at = self.place[x]
        home = self.made[x].order
        index = self.e.window(f"perm{order.index}<{home.index}", start, width)
        return take(buffers[buffer], at + index).astype(jax_compat.device_dtype(x.type))

    def source(self, equation: Gather | Fold | Collect | Follow, buffers: list[Any]) -> Any:
        """The array that a gather inside the loop reads."""
        inside = next((s for s in equation.sources if s in self.made), None)
        if inside is None:
            assert not isinstance(equation, Collect | Follow)
            return self.joined[equation.table]
        return buffers[self.place[inside][0]]

    def run_of_rows(self, fold: Fold, order: RowOrder, start: Any, width: int, buffers: list[Any]) -> Any:
        """A fold for one window: a loop as long as the longest run in it, lanes that are done keep their value."""
        name = f"{fold.table}@{order.index}"
        bounds = self.e.window(f"{name}.start", start, width + 1)
        first, last = bounds[:-1], bounds[1:]
        source = self.source(fold, buffers)
        base, _ = self.e.places[f"{name}.index"]
        dtype, combined = jax_compat.device_dtype(fold.result.type), combine(fold)
        longest = jnp.max(last - first)
        empty = jnp.full((width, *fold.result.type.shape), NEUTRAL[fold.kind](dtype), dtype)

        def element(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            at, total = carry
            where = first + at
            live = where < last
            rows = take(self.e.tables["integers"], base + jnp.where(live, where, 0))
            values = take(source, rows).astype(dtype)
            mask = live.reshape((width,) + (1,) * (values.ndim - 1))
            whole = combined(total, values)
            if fold.kind in ("max", "min"):
                whole = jnp.where(at == 0, values, whole)
            return at + 1, jnp.where(mask, whole, total)

        return jax.lax.while_loop(lambda c: c[0] < longest, element, (jnp.int32(0), empty))[1]


# ---- buffers
#
# Memory of a program that rows are written to one window after another.


class Buffers:
    """Those of one program."""

    def __init__(self, products: str, first: int) -> None:
        """`products`: the option of that name. `first`: tells them from those of other programs in one executable."""
        self.products, self.numbers = products, count(first)

    def unwritten(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A buffer whose rows are written before they count for anything. (Nothing that is in it reaches a result:
        `tests/properties/test_poisoned_padding.py`.) To fill it would take as long as an operation on all of it."""
        if jnp.issubdtype(dtype, jnp.floating):
            kernel = choose_empty(self.products, dtype, math.prod(shape) * dtype.itemsize).kernel
            if kernel is not None:
                return empty(shape, dtype, next(self.numbers), kernel)
        return jax_compat.zeros(shape, dtype)

    def beginning(self, parts: list[Any | None], rows: list[int], shape: tuple[int, ...], dtype: Any) -> Any:
        """A buffer of several arrays, one behind the other, each of so many rows; None: not written yet."""
        if len(parts) == 1:
            return self.unwritten((rows[0], *shape), dtype) if parts[0] is None else parts[0]
        whole, at = self.unwritten((sum(rows), *shape), dtype), 0
        for part, number in zip(parts, rows, strict=True):
            if part is not None:
                whole = jax.lax.dynamic_update_slice_in_dim(whole, part, at, 0, allow_negative_indices=False)
            at += number
        return whole
