"""One XLA program from a schedule: stages over all rows, recurrences as level loops (FRAMES.md, section 5).

Everything here runs under JAX's tracing: arrays are tracers, and what is emitted is what the calls leave in the jaxpr.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import jax
import jax.numpy as jnp

from autobatch.backends.protocol import COMBINE, NEUTRAL, data_column
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Literal
from autobatch.ir.system import (
    Atom,
    Column,
    Compute,
    Constant,
    Data,
    Equation,
    Fold,
    Gather,
    PathSum,
    Shared,
    Spread,
    Variable,
    reads,
    results,
)
from autobatch.ir.types import Array
from autobatch.optimize.fission import Order, Recurrence, Schedule, Stage, Task
from autobatch.optimize.requests import gather_layout, weight_dtype
from autobatch.runtime.tables import Signature, TableRequest, layout, window_widths


def segment_reduce(kind: str, values: Any, owner: Any, rows: int) -> Any:
    """Reduce values by sorted owners; an owner of `rows` is dropped."""
    logical = kind in ("any", "all")
    held = values.astype(jnp.int32) if logical else values
    neutral = jnp.asarray(NEUTRAL[kind](values.dtype)).astype(held.dtype)
    at = jnp.full((rows + 1, *values.shape[1:]), neutral, held.dtype).at[owner]
    scatters: dict[str, Any] = {
        "sum": at.add,
        "prod": at.multiply,
        "max": at.max,
        "any": at.max,
        "min": at.min,
        "all": at.min,
    }
    reduced = scatters[kind](held, indices_are_sorted=True, mode="promise_in_bounds")[:rows]
    return reduced.astype(values.dtype)


@dataclass
class Program:
    """A schedule and the tables it reads, to be traced for one signature."""

    schedule: Schedule
    request: TableRequest
    constants: Sequence[Any]

    def run(self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature) -> list[Any]:
        """The outputs of the system: arrays over the capacity of their spaces."""
        from_tables = Emission(self, shared, tables, signature)
        for step in self.schedule.steps:
            if isinstance(step, Stage):
                from_tables.stage(step)
            else:
                from_tables.loop(step)
        return [from_tables.read(v) for v in self.schedule.system.outputs]


def take(array: Any, index: Any) -> Any:
    """Rows of an array; the planner guarantees the range."""
    return array.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


WIDE = 128
"""Elements of a row from which on a loop copies the rows of a window itself: a copy of all rows before the loop would
be written to memory and read again. Narrow ones are not worth a kernel in each window."""


def rows_read_in_loops(schedule: Schedule) -> dict[Variable, Gather | Spread]:
    """Copies of rows, outside of loops, that nothing but computations of loops reads, in the order that they have."""
    found: dict[Variable, Gather | Spread] = {}
    for step in schedule.steps:
        for equation in step.equations if isinstance(step, Stage) else ():
            if isinstance(equation, Gather | Spread) and math.prod(equation.result.type.shape) >= WIDE:
                source = equation.sources if isinstance(equation, Gather) else (equation.source,)
                if len(source) == 1 and source[0].space is not None and equation.result.space is not None:
                    found[equation.result] = equation
    for x in schedule.system.outputs:
        found.pop(x, None)
    for step in schedule.steps:
        places = [(None, step.equations)] if isinstance(step, Stage) else [(t.order, t.equations) for t in step.tasks]
        for order, equations in places:
            for equation in equations:
                for x in reads(equation):
                    if x in found and (not isinstance(equation, Compute) or order != schedule.home[x]):
                        del found[x]
    return found


class Emission:
    """The state of one trace: which array holds each variable so far."""

    def __init__(
        self, program: Program, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature
    ) -> None:
        self.schedule, self.request, self.constants = program.schedule, program.request, program.constants
        self.shared, self.tables, self.signature = shared, tables, signature
        self.places, _ = layout(program.request, signature)
        self.env: dict[Variable, Any] = {}
        self.late = rows_read_in_loops(program.schedule)
        self.permuted: dict[tuple[Variable, int], Any] = {}

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

    def capacity(self, order: Order) -> int:
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

    def in_order(self, x: Variable, order: Order) -> Any:
        """All rows of `x`, in the given order of its space."""
        home = self.schedule.home[x]
        if home.index == order.index:
            return self.env[x]
        if (x, order.index) not in self.permuted:
            self.permuted[x, order.index] = take(self.env[x], self.table(f"perm{order.index}<{home.index}"))
        return self.permuted[x, order.index]

    def joined(self, variables: Sequence[Variable], dtype: Any) -> Any:
        """The arrays of some variables, one behind the other; a uniform one is a single row."""
        parts = [self.env[v] if v.space is not None else jnp.asarray(self.env[v])[None] for v in variables]
        if len(parts) == 1:
            return parts[0].astype(dtype) if parts[0].dtype != dtype else parts[0]
        return jnp.concatenate([p.astype(dtype) if p.dtype != dtype else p for p in parts])

    # ---- stages

    def stage(self, stage: Stage) -> None:
        for equation in stage.equations:
            if isinstance(equation, Gather | Spread) and equation.result in self.late:
                continue
            self.env.update(zip(results(equation), self.whole(equation, stage), strict=True))

    def whole(self, equation: Equation, step: Stage) -> Sequence[Any]:
        """The results of an equation over all rows of its space."""
        match equation:
            case Shared(index=index):
                return [jnp.asarray(self.shared[index])]
            case Constant(result=result, literal=literal):
                return [jnp.asarray(self.literal(literal), jax_compat.device_dtype(result.type))]
            case Column(result=result, table=table):
                name = f"{table}@{self.schedule.home[result].index}"
                values = self.tables[name] if table in self.request.wide else self.table(name)
                return [values.astype(jax_compat.device_dtype(result.type))]
            case Data(result=result, column=column):
                return [data_column(self.tables[column], result.type)]
            case Gather(result=result, table=table):
                variables, _ = gather_layout(self.schedule, equation, step)
                index = self.table(f"{table}@{self.schedule.home[result].index}")
                return [take(self.joined(variables, jax_compat.device_dtype(result.type)), index)]
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
                count = self.entry("counts", space.index)
                return compute_live(equation, [self.operand(x, order) for x in operands], self.capacity(order), count)
            case _:
                assert_never(equation)

    def operand(self, x: Atom, order: Order) -> Any:
        if isinstance(x, Variable) and x.space is not None:
            return self.in_order(x, order)
        return self.atom(x)

    def segments(self, fold: Fold | PathSum, kind: str, table: str, step: Stage) -> Any:
        """A fold over all rows: a reduction by sorted segments."""
        order = self.schedule.home[fold.result]
        name, rows = f"{table}@{order.index}", self.capacity(order)
        variables, _ = gather_layout(self.schedule, fold, step)
        dtype = jax_compat.device_dtype(fold.result.type)
        values = take(self.joined(variables, dtype), self.table(f"{name}.index"))
        if isinstance(fold, PathSum):
            values = values * self.weights(fold, name).reshape(-1, *(1,) * (values.ndim - 1)).astype(dtype)
        live = jnp.arange(values.shape[0]) < self.entry("counts", fold.elements.index)
        owner = jnp.where(live, self.table(f"{name}.owner"), rows)
        return segment_reduce(kind, values, owner, rows)

    def weights(self, equation: PathSum, name: str) -> Any:
        """How many paths lead to each element, from the words that the table holds."""
        dtype = jnp.dtype(weight_dtype(equation))
        words = self.table(f"{name}.weight")
        return jax.lax.bitcast_convert_type(words.reshape(-1, 2) if dtype.itemsize == 8 else words, dtype)

    # ---- recurrences

    def loop(self, recurrence: Recurrence) -> None:
        from_loop = LevelLoop(self, recurrence)
        self.env.update(from_loop.run())


Carry = tuple[Any, list[Any], list[Any]]
"""Of a loop over levels: the level, how many windows of each task and width are done, the buffers."""


class LevelLoop:
    """One recurrence: a loop over levels, in each level over the tasks, in each task over windows of several widths.

    Each array that other rows read is one buffer; a window gathers its operands, computes, and writes its rows in one
    contiguous slice. (DESIGN.md section 8 lists what would make XLA copy the buffers.)"""

    def __init__(self, emission: Emission, recurrence: Recurrence) -> None:
        self.e, self.recurrence = emission, recurrence
        self.made = {r: t for t in recurrence.tasks for e in t.equations for r in results(e)}
        self.place: dict[Variable, tuple[int, int]] = {}
        self.initial: list[Any] = []
        self.joined: dict[str, Any] = {}
        self.ordered: dict[tuple[Variable, int], Any] = {}
        self.copied: dict[Variable, tuple[Any, str]] = {}
        self.prepare()
        for group in recurrence.buffers:
            self.shared_buffer(group)
        wanted = self.read_elsewhere()
        for variable, task in self.made.items():
            if variable not in self.place and variable in wanted:
                shape = (emission.capacity(task.order), *variable.type.shape)
                self.place[variable] = (len(self.initial), 0)
                self.initial.append(jax_compat.zeros(shape, jax_compat.device_dtype(variable.type)))

    def prepare(self) -> None:
        """What the loop reads and does not change is put in place before it."""
        for task in self.recurrence.tasks:
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
        parts, at = [], 0
        dtypes = {jax_compat.device_dtype(v.type) for v in group}
        dtype = jnp.result_type(*dtypes) if len(dtypes) > 1 else dtypes.pop()
        for v in group:
            if v in self.made:
                part = jax_compat.zeros((self.e.capacity(self.made[v].order), *v.type.shape), dtype)
            else:
                part = self.e.joined([v], dtype)
            if v in self.made:
                self.place[v] = (len(self.initial), at)
            parts.append(part)
            at += part.shape[0]
        self.initial.append(jnp.concatenate(parts) if len(parts) > 1 else parts[0])

    def read_elsewhere(self) -> set[Variable]:
        """Variables that something outside this loop, or another task of it, reads."""
        found = set(self.e.schedule.system.outputs)
        inside = {id(e): t for t in self.recurrence.tasks for e in t.equations}
        for equation in self.e.schedule.system.equations:
            task = inside.get(id(equation))
            sources: Sequence[Variable] = ()
            match equation:
                case Compute(operands=xs):
                    sources = [x for x in xs if isinstance(x, Variable)]
                case Gather(sources=xs) | Fold(sources=xs):
                    sources = xs
                case _:
                    pass
            found.update(v for v in sources if v in self.made and (task is None or self.made[v] is not task))
        return found

    def run(self) -> dict[Variable, Any]:
        index = self.recurrence.index
        levels = self.e.entry("levels", index)
        kinds = [
            (task, width)
            for task in self.recurrence.tasks
            for width in window_widths(self.e.request, self.e.signature, task.order.index)
        ]

        def level(carry: Carry) -> Carry:
            level, done, buffers = carry
            done = list(done)
            for k, (task, width) in enumerate(kinds):
                done[k], buffers = self.windows(task, width, level, done[k], buffers)
            return level + 1, done, buffers

        start: Carry = (jnp.int32(0), [jnp.int32(0)] * len(kinds), self.initial)
        _, _, final = jax.lax.while_loop(lambda c: c[0] < levels, level, start)
        found: dict[Variable, Any] = {}
        for variable, task in self.made.items():
            if variable in self.place:
                buffer, at = self.place[variable]
                rows = self.e.capacity(task.order)
                whole = final[buffer]
                found[variable] = whole if whole.shape[0] == rows else jax.lax.slice_in_dim(whole, at, at + rows)
        return found

    def windows(self, task: Task, width: int, level: Any, done: Any, buffers: list[Any]) -> tuple[Any, list[Any]]:
        """The windows of one width of a level; `done` counts those of the levels before. The bounds are read where they
        are compared and used: a scalar that the level computed for its loops would be a kernel of its own."""
        loop = f"loop{self.recurrence.index}.{task.order.index}"

        def step(carry: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
            at, held = carry
            start = self.e.entry(f"{loop}.{width}.start", at)
            live = self.e.entry(f"{loop}.end", level) - start
            return at + 1, self.window(task, width, start, live, held)

        def more(carry: tuple[Any, list[Any]]) -> Any:
            return carry[0] < self.e.entry(f"{loop}.{width}.first", level + 1)

        found: tuple[Any, list[Any]] = jax.lax.while_loop(more, step, (done, buffers))
        return found

    def window(self, task: Task, width: int, start: Any, live: Any, buffers: list[Any]) -> list[Any]:
        """Rows start:start+width of one task; those from `live` on are not of this level, and are overwritten."""
        order: Order = task.order
        local: dict[Variable, Any] = {}

        def row(x: Atom) -> Any:
            if not isinstance(x, Variable) or x.space is None:
                return self.e.atom(x)
            if x not in local:
                local[x] = self.slice(x, order, start, width, buffers)
            return local[x]

        for equation in task.equations:
            match equation:
                case Compute(operands=operands):
                    found = compute_live(equation, [row(x) for x in operands], width, live)
                case Gather(table=table):
                    index = self.e.window(f"{table}@{order.index}", start, width)
                    found = [take(self.source(equation, buffers), index)]
                case Fold():
                    found = [self.run_of_rows(equation, order, start, width, buffers)]
                case _:
                    raise AssertionError("only computations, gathers and folds are in cycles")
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

    def slice(self, x: Variable, order: Order, start: Any, width: int, buffers: list[Any]) -> Any:
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

    def source(self, equation: Gather | Fold, buffers: list[Any]) -> Any:
        """The array that a gather inside the loop reads."""
        inside = next((s for s in equation.sources if s in self.made), None)
        return self.joined[equation.table] if inside is None else buffers[self.place[inside][0]]

    def run_of_rows(self, fold: Fold, order: Order, start: Any, width: int, buffers: list[Any]) -> Any:
        """A fold for one window: a loop as long as the longest run in it, lanes that are done keep their value."""
        name = f"{fold.table}@{order.index}"
        bounds = self.e.window(f"{name}.start", start, width + 1)
        first, last = bounds[:-1], bounds[1:]
        source = self.source(fold, buffers)
        base, _ = self.e.places[f"{name}.index"]
        dtype = jax_compat.device_dtype(fold.result.type)
        longest = jnp.max(last - first)
        empty = jnp.full((width, *fold.result.type.shape), NEUTRAL[fold.kind](dtype), dtype)

        def element(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            at, total = carry
            where = first + at
            live = where < last
            rows = take(self.e.tables["integers"], base + jnp.where(live, where, 0))
            values = take(source, rows).astype(dtype)
            mask = live.reshape((width,) + (1,) * (values.ndim - 1))
            return at + 1, jnp.where(mask, COMBINE[fold.kind](total, values), total)

        return jax.lax.while_loop(lambda c: c[0] < longest, element, (jnp.int32(0), empty))[1]


def compute_live(equation: Compute, xs: Sequence[Any], rows: int, live: Any) -> Sequence[Any]:
    """As `compute`, on `rows` rows of which the first `live` ones matter: an operation that holds a loop runs on the
    operands of the first row in place of the others, whose loops might never end."""
    if not jax_compat.holds_loop(equation.op):
        return compute(equation, xs)
    row = jnp.arange(rows)
    chosen = jnp.where(row < live, row, 0)
    varying = [isinstance(x, Variable) and x.space is not None for x in equation.operands]

    def run() -> list[Any]:
        return list(compute(equation, [take(x, chosen) if v else x for v, x in zip(varying, xs, strict=True)]))

    def skip() -> list[Any]:
        return [jax_compat.zeros(a.shape, a.dtype) for a in jax.eval_shape(run)]

    found: Sequence[Any] = jax.lax.cond(live > 0, run, skip)
    return found


def compute(equation: Compute, xs: Sequence[Any]) -> Sequence[Any]:
    """A leaf operation on rows: JAX's batching rule of the one primitive, batch axis 0, uniform operands unbatched."""
    types = [r.type for r in equation.results]
    varying = [isinstance(x, Variable) and x.space is not None for x in equation.operands]
    if not any(varying):
        return leaf.evaluate(equation.op, types, *xs)

    def lane(*rows: Any) -> Sequence[Any]:
        rest = iter(rows)
        return leaf.evaluate(equation.op, types, *(next(rest) if v else x for v, x in zip(varying, xs, strict=True)))

    return jax.vmap(lane)(*(x for v, x in zip(varying, xs, strict=True) if v))
