"""Level loops: one recurrence as nested loops over levels, tasks and windows of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from autobatch.backends.row_operations import NEUTRAL, combine
from autobatch.backends.xla.native.operation import native
from autobatch.backends.xla.products.operation import LoopProducts, Source, choose_empty, empty
from autobatch.backends.xla.rows import Runs, compute_live, take
from autobatch.data.spec import window_widths
from autobatch.ir import jax_compat
from autobatch.ir.system import Atom, Collect, Compute, Equation, Fold, Follow, Gather, Variable, reads, results
from autobatch.passes.fission import Recurrence, RowOrder, Task
from autobatch.planning.plan import of_word

if TYPE_CHECKING:
    from autobatch.backends.xla.emit import Emission


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
