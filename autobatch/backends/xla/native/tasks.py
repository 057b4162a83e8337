"""What a recurrence reads and writes, and where: the form of a level loop from which its code is written.

A task is phases of numbers (`values.py`) with matrix products between them, for a tile of rows at a time. What one
phase writes and another reads is in the memory of the tile; what anybody else reads is in the buffers of the loop.

The form says nothing of how many rows there are: numbers that depend on that are handed to the kernel as `meta`, so
that one kernel serves all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.xla.native.values import SAME, Values, check, check_product, size
from autobatch.backends.xla.products.kernel import ProductKernel
from autobatch.backends.xla.products.operation import SCRATCH, TILE
from autobatch.data.spec import window_widths
from autobatch.ir import core
from autobatch.ir.system import Collect, Compute, Equation, Fold, Follow, Gather, Variable, reads, results
from autobatch.passes.equations import RowProduct, row_product
from autobatch.passes.fission import Task

if TYPE_CHECKING:
    from autobatch.backends.xla.emit import LevelLoop


ROOM = 4 * 1024 * 1024
"""Bytes of all values of the rows of a tile, at most, where a tile has more rows than the kernel multiplies at once."""


@dataclass(frozen=True)
class IntegerTable:
    """Integers: a part of the array of all tables, from `meta[begin]` on, or a whole argument."""

    begin: int | None = None
    argument: int = 0


@dataclass(frozen=True)
class ArgumentRows:
    """Rows of an argument. Row r is row `meta[base]` + r of it, or + i where `index` has i at r; zeros where `misses`
    and i is negative."""

    argument: int
    size: int
    base: int | None = None
    index: IntegerTable | None = None
    misses: bool = False
    made: bool = False
    """Is it a result of the call, the buffer of that number, and no argument?"""


@dataclass(frozen=True)
class EntryRun:
    """Each row combines entries of `rows.index`: from `first` at r on to the next one's, or `count` at r many."""

    rows: ArgumentRows
    first: IntegerTable
    count: IntegerTable | None
    kind: str
    factors: int | None = None
    """The argument whose row at an entry it is multiplied by; a factor of zero stands for an entry that is not read."""


@dataclass(frozen=True)
class Tile:
    """Rows of the tile that is worked on, in scratch memory: `begin` is in numbers."""

    begin: int
    size: int


Memory = ArgumentRows | Tile


@dataclass(frozen=True)
class ProductStep:
    """Rows of some memories, side by side, times a packed matrix: the argument `panels`."""

    sources: tuple[Memory, ...]
    panels: int
    contracted: int
    columns: int
    out: Memory


@dataclass
class RowsStep:
    """A phase: runs that are added up first, then the loops of `values`."""

    runs: list[tuple[EntryRun, Tile]]
    values: Values


@dataclass
class TaskForm:
    end: int
    """See `Form._ends` and `Form._rows`."""
    steps: list[RowsStep | ProductStep] = field(default_factory=list)
    memory: dict[Variable, Memory] = field(default_factory=dict)
    """Where to read what is in memory."""
    written: dict[Variable, Memory] = field(default_factory=dict)
    """Where the phases write."""
    uniform: dict[Variable | int, int] = field(default_factory=dict)
    """Arguments that all rows share: variables, and constants by their number."""


class RecurrenceForm:
    """A recurrence as the kernel runs it; RefusedError where it cannot. `arguments`: what it reads."""

    def __init__(self, loop: LevelLoop, kernel: ProductKernel, matrix: Any) -> None:
        """`matrix`: packs the matrix of a product."""
        self.loop, self.kernel, self.matrix = loop, kernel, matrix
        self.reverse = loop.recurrence.reverse
        self.arguments: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self.meta: list[int] = []
        self.metas: dict[Any, int] = {}
        self.scratch = 0
        self.zeros = 0
        """Numbers of the longest row of zeros that is read."""
        self.parts: list[tuple[int, int, int, int]] = []
        """What is copied before anything else: (buffer, argument, `meta` of the row where it begins, `meta` of how many
        numbers)."""
        for k, buffer in enumerate(loop.buffers):
            at = 0
            for n, (part, rows) in enumerate(zip(buffer.parts, buffer.rows, strict=True)):
                if part is not None:
                    key, width = (k, n), math.prod(buffer.shape)
                    argument = self._argument(("part", key), self._check_array(part))
                    begin = self._meta(("part", key), at * width)
                    self.parts.append((k, argument, begin, self._meta(("length", key), rows * width)))
                at += rows
        self.integers = self._argument("integers", loop.e.tables["integers"])
        self.levels = self._meta("levels", loop.e.places["levels"][0] + loop.recurrence.index)
        products = [p for t in loop.tasks for e in t.equations if (p := row_product(e)) is not None]
        room = max((_up(p.contracted, kernel.chunk) for p in products), default=0)
        rows = kernel.vectors.rows
        numbers = sum(size(r) for t in loop.tasks for e in t.equations for r in results(e))
        fitting = min(SCRATCH // max(room * kernel.bytes, 1), ROOM // max(numbers * kernel.bytes, 1))
        self.tile = max(rows, min(TILE, fitting))
        self.block = self._room(self.tile * room) if room else 0
        self.before = [self._task(t, self._rows(t)) for t in loop.before]
        self.tasks = [self._task(t, self._ends(t)) for t in loop.recurrence.tasks]
        self.zero_row = self._argument("zeros", jnp.zeros((self.zeros,), kernel.dtype)) if self.zeros else -1
        self.meta_argument = self._argument("meta", jnp.asarray(self.meta, jnp.int32))

    # ---- arguments

    def _argument(self, key: Any, array: Any) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.arguments)
            self.arguments.append(array)
        return self.numbers[key]

    def _meta(self, key: Any, number: int) -> int:
        if number >= 2**31:
            raise RefusedError("more numbers than 32 bits count")
        if key not in self.metas:
            self.metas[key] = len(self.meta)
            self.meta.append(number)
        return self.metas[key]

    def _check_array(self, array: Any) -> Any:
        if str(array.dtype) != self.kernel.dtype:
            raise RefusedError(f"rows of {array.dtype}")
        return array

    def _room(self, numbers: int) -> int:
        """Scratch memory for so many numbers, on a boundary of cache lines."""
        begin = self.scratch
        self.scratch += _up(numbers, self.kernel.chunk)
        return begin

    def _table(self, name: str) -> IntegerTable:
        """A table by its name."""
        if name in self.loop.e.places:
            return IntegerTable(self._meta(("table", name), self.loop.e.places[name][0]))
        return IntegerTable(None, self._argument(("table", name), self.loop.e.table(name)))

    # ---- memory

    def _buffer(self, x: Variable, index: IntegerTable | None = None) -> ArgumentRows:
        buffer, at = self.loop.place[x]
        return ArgumentRows(buffer, size(x), self._meta(("place", x), at), index, made=True)

    def _source(self, equation: Gather | Fold | Collect | Follow) -> ArgumentRows:
        """What an equation reads rows of."""
        numbers = size(equation.result)
        inside = next((s for s in equation.sources if s in self.loop.made), None)
        if inside is not None:
            return ArgumentRows(self.loop.place[inside][0], numbers, made=True)
        assert isinstance(equation, Gather | Fold)
        whole = self._check_array(self.loop.joined[equation.table])
        return ArgumentRows(self._argument(("joined", equation.table), whole), numbers)

    def _read(self, equation: Gather | Fold | Collect | Follow, order: int) -> ArgumentRows | EntryRun:
        """What an equation reads that reads other rows."""
        source = self._source(equation)
        match equation:
            case Gather(table=table):
                return replace(source, index=self._table(f"{table}@{order}"))
            case Fold(kind=kind, table=table):
                if kind not in ("sum", "prod", "max", "min"):
                    raise RefusedError(f"a fold by {kind}")
                name = f"{table}@{order}"
                entries = replace(source, index=self._table(f"{name}.index"))
                first_only = kind in ("max", "min") and not equation.even
                return EntryRun(entries, self._table(f"{name}.start"), None, f"first {kind}" if first_only else kind)
            case _:
                return self._runs(equation, source)

    def _runs(self, equation: Collect | Follow, source: ArgumentRows) -> ArgumentRows | EntryRun:
        found, key = self.loop.runs_of(equation), equation.result
        entries = replace(source, index=IntegerTable(None, self._argument((key, "index"), found.index)), misses=True)
        self.zeros = max(self.zeros, source.size)
        if found.first is None:
            if found.factors is not None:
                raise RefusedError("single cotangents times factors")
            return entries
        first, count = (IntegerTable(None, self._argument((key, n), getattr(found, n))) for n in ("first", "count"))
        factors = None
        if found.factors is not None:
            factors = self._argument((key, "factors"), self._check_array(found.factors))
        return EntryRun(entries, first, count, "sum", factors)

    def _operand(self, x: Variable, task: Task) -> ArgumentRows:
        """Where an operand is that the same rows have, and that this task does not make."""
        order = task.order.index
        if x in self.loop.copied:
            whole, table = self.loop.copied[x]
            argument = self._argument(("copied", x), self._check_array(whole))
            return ArgumentRows(argument, size(x), index=self._table(table))
        if x not in self.loop.made:
            whole = self._check_array(self.loop.ordered[x, order])
            return ArgumentRows(self._argument(("ordered", x, order), whole), size(x))
        return self._buffer(x, self._table(f"perm{order}<{self.loop.made[x].order.index}"))

    # ---- tasks

    def _ends(self, task: Task) -> int:
        """Of `meta`: where the table begins that says where the rows of each level end."""
        name = f"loop{self.loop.recurrence.index}.{task.order.index}.end"
        return self._meta(name, self.loop.e.places[name][0])

    def _rows(self, task: Task) -> int:
        """Of `meta`: which integer says how many rows a task has that runs before the levels."""
        count = self.loop.e.places["counts"][0] + task.order.space.index
        return self._meta(("rows", task.order.space.index), count)

    def _task(self, task: Task, end: int) -> TaskForm:
        loop = self.loop
        form = TaskForm(end)
        makers: dict[Variable, Equation] = {r: e for e in task.equations for r in results(e)}
        depth: dict[Variable, int] = {}
        products: dict[Variable, RowProduct] = {}
        runs: list[tuple[EntryRun, Tile]] = []
        for equation in task.equations:
            below = max((depth.get(x, 0) for x in reads(equation)), default=0)
            product = row_product(equation)
            if product is not None and product.weight in loop.products.matrices.values:
                self._check_product(product, task)
                products[product.equation.results[0]] = product
                depth[product.equation.results[0]] = below + 1
            elif isinstance(equation, Compute):
                check(equation, self.kernel.dtype)
                self._uniform(equation, form)
                depth.update((r, below) for r in equation.results)
            else:
                assert isinstance(equation, Gather | Fold | Collect | Follow)
                read = self._read(equation, task.order.index)
                if isinstance(read, EntryRun):
                    tile = Tile(self._room(self.tile * read.rows.size), read.rows.size)
                    runs.append((read, tile))
                    form.memory[equation.result] = tile
                else:
                    form.memory[equation.result] = read
                depth[equation.result] = 0
        for equation in task.equations:
            for x in reads(equation):
                if x not in makers and x.space is not None and x not in form.memory and isinstance(equation, Compute):
                    form.memory[x] = self._operand(x, task)
        needed = self._needed(task, makers, products, depth)
        for x in products:
            form.memory[x] = self._buffer(x) if x in loop.place else self._in_tile(x)
        wanted: dict[int, list[Variable]] = {}
        for x in makers:
            if x not in products and (x in loop.place or (x in needed and x not in form.memory)):
                form.written[x] = self._buffer(x) if x in loop.place else self._in_tile(x)
                wanted.setdefault(depth[x], []).append(x)
        for at in range(max(depth.values(), default=0) + 1):
            for x, product in products.items():
                if depth[x] == at:
                    form.steps.append(self._product(product, form, makers))
            made = {r: e for r, e in makers.items() if isinstance(e, Compute) and r not in products and depth[r] == at}
            if wanted.get(at) or (runs and not at):
                form.steps.append(RowsStep([] if at else runs, self._values(made, wanted.get(at, ()), form)))
            # from here on they are read from memory
            form.memory.update({x: form.written[x] for x in wanted.get(at, ()) if x not in form.memory})
        return form

    def _values(self, made: Mapping[Variable, Compute], wanted: Sequence[Variable], form: TaskForm) -> Values:
        values = Values(made, wanted)
        for x in values.kept:
            if x not in form.written:
                form.written[x] = self._in_tile(x)
        return values

    def _in_tile(self, x: Variable) -> Tile:
        return Tile(self._room(self.tile * size(x)), size(x))

    def _uniform(self, equation: Compute, form: TaskForm) -> None:
        for x in equation.operands:
            if isinstance(x, core.Literal):
                if x.constant >= 0:
                    array = jnp.asarray(self.loop.e.constants[x.constant], self.kernel.dtype)
                    form.uniform[x.constant] = self._argument(("constant", x.constant), array)
            elif x.space is None:
                form.uniform[x] = self._argument(("uniform", x), self._check_array(self.loop.e.env[x]))

    def _needed(
        self,
        task: Task,
        makers: Mapping[Variable, Equation],
        products: Mapping[Variable, RowProduct],
        depth: Mapping[Variable, int],
    ) -> set[Variable]:
        """What is read from memory: by products, and in later phases than it is made in."""
        found: set[Variable] = set()
        for product in products.values():
            found.update(self._parts(product.row, makers, products))
        for equation in task.equations:
            if isinstance(equation, Compute) and equation.results[0] not in products:
                late = depth[equation.results[0]]
                found.update(x for x in reads(equation) if x in makers and depth[x] < late)
        return found

    def _parts(
        self, x: Variable, makers: Mapping[Variable, Equation], products: Mapping[Variable, RowProduct]
    ) -> list[Variable]:
        """The values that lie side by side in an operand of a product."""
        maker = makers.get(x)
        if isinstance(maker, Compute) and maker.op.name == "concatenate" and x not in self.loop.place:
            parts = [p for p in maker.operands if isinstance(p, Variable) and p.space is not None and size(p)]
            if len(parts) == len(maker.operands):
                return [q for p in parts for q in self._parts(p, makers, products)]
        if isinstance(maker, Compute) and maker.op.name in SAME and x not in self.loop.place:
            (operand,) = maker.operands
            if isinstance(operand, Variable) and operand.space is not None:
                return self._parts(operand, makers, products)
        return [x]

    def _product(self, product: RowProduct, form: TaskForm, makers: Mapping[Variable, Equation]) -> ProductStep:
        parts = self._parts(product.row, makers, {})
        sources = tuple(form.memory[x] for x in parts)
        if any(isinstance(s, ArgumentRows) and s.misses for s in sources):
            raise RefusedError("a product of rows that may be missing")
        panels = self._argument(("panels", product.weight, product.axis), self.matrix(product).panels)
        out = form.memory[product.equation.results[0]]
        return ProductStep(sources, panels, product.contracted, product.columns, out)

    def _check_product(self, product: RowProduct, task: Task) -> None:
        e = self.loop.e
        widest = e.capacity(task.order)
        if task not in self.loop.before:
            widest = max(window_widths(e.request, e.signature, task.order.index), default=1)
        check_product(product, widest if e.loops == "auto" else 1)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
