"""What a recurrence reads and writes, and where: the form of a level loop from which its code is written.

A task is phases of numbers with matrix products between them, for a tile of rows at a time. What one phase writes and
another reads is in the memory of the tile; what anybody else reads is in the buffers of the loop. The form says nothing
of how many rows there are: numbers that depend on that are handed to the kernel as `meta`, so that one kernel serves
all sizes.

A phase computes number by number: expressions, and loops over the numbers of a row.

    split, slice, concatenate, pad, reshape     no work: they say where numbers are
    mul, tanh, select_n, ...                    a node for each vector of numbers
    reduce_sum, reduce_max                      a loop of their own, whose result is in memory

A value is a row of numbers, flat. What is written to memory is cut where concatenated parts begin, so that a number
comes from one place; parts of one length that do not wait for each other are one loop, and share what they have in
common. A costly function that two loops would both compute is written to memory by the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from autobatch.backends.llvm.formulas import COSTLY, FUNCTIONS, LOGICAL, MASKS, REDUCTIONS
from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError
from autobatch.backends.xla import product_kernels
from autobatch.backends.xla.product_kernels import ProductKernel
from autobatch.backends.xla.rows import LARGEST, MANY, SCRATCH, TILE, available_cores
from autobatch.data.spec import window_widths
from autobatch.ir import core, jax_compat
from autobatch.ir.core import Array, Literal
from autobatch.ir.system import Atom, Collect, Compute, Equation, Fold, Follow, Gather, Variable, reads, results
from autobatch.passes.equations import RowProduct, row_product
from autobatch.passes.fission import Recurrence, Schedule, Task

if TYPE_CHECKING:
    from autobatch.backends.xla.emit import LevelLoop

# ---- tasks


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


# ---- values


SAME = frozenset(("reshape", "squeeze", "expand_dims", "copy", "copy_p", "stop_gradient"))
"""Their result is the row of numbers that their operand is."""


def size(x: Atom) -> int:
    assert isinstance(x.type, Array)
    return math.prod(x.type.shape)


def is_mask(x: Atom) -> bool:
    return isinstance(x.type, Array) and x.type.is_bool


@dataclass(frozen=True, slots=True)
class ValueNode:
    """`load`, `splat` (of `source`, from number `at` on), `constant`, `convert` (a mask to numbers), or a function of
    other nodes."""

    name: str
    args: tuple[int, ...] = ()
    source: Variable | int = -1
    at: int = 0
    number: float = 0.0
    power: int = 0


@dataclass
class Write:
    """Numbers of a value that a loop writes to memory, from `at` on. With a reduction, all of them to one number."""

    result: Variable
    at: int
    node: int
    reduction: str | None = None


@dataclass
class ValueLoop:
    """A loop over `length` numbers."""

    length: int
    writes: list[Write] = field(default_factory=list)


def check(equation: Compute, dtype: str) -> None:
    """RefusedError where an equation is none that this module knows."""
    op = equation.op
    name, xs = op.name, equation.operands

    def refuse(why: str) -> None:
        raise RefusedError(f"{name} {why}")

    for x in (*xs, *equation.results):
        if not isinstance(x.type, Array):
            refuse("of what is no array")
        elif is_mask(x):
            logical = name in MASKS or name in ("select_n", "convert_element_type", "broadcast_in_dim") or name in SAME
            if isinstance(x, Literal) or x.space is None or not logical:
                refuse("of bools")
        elif str(jax_compat.device_dtype(x.type)) != dtype:
            refuse(f"of {x.type.dtype}")
        if isinstance(x, Literal) and x.constant < 0 and not isinstance(x.value, int | float):
            refuse(f"of {x.value!r}")
    shape = equation.results[0].type.shape
    if name in SAME:
        if name == "reshape" and op["dimensions"] is not None:
            refuse("of another order")
    elif name in FUNCTIONS or name in ("not", "integer_pow", "clamp"):
        if any(size(x) not in (1, math.prod(shape)) for x in xs):
            refuse("of several shapes")
        if (name in LOGICAL or name == "not") and not all(map(is_mask, xs)):
            refuse("of numbers")
        if any(key == "accuracy" and value is not None for key, value in op.params):
            refuse("of an accuracy")
    elif name == "select_n":
        if len(xs) != 3 or not is_mask(xs[0]) or any(map(is_mask, xs[1:])):
            refuse("of other than two rows")
        if any(size(x) not in (1, math.prod(shape)) for x in xs):
            refuse("of several shapes")
    elif name == "convert_element_type":
        if is_mask(equation.results[0]) and not is_mask(xs[0]):
            refuse("to bools")
    elif name == "broadcast_in_dim":
        if size(xs[0]) not in (1, math.prod(shape)):
            refuse("of a part")
    elif name in ("split", "concatenate"):
        axis = op["axis" if name == "split" else "dimension"]
        if math.prod(shape[:axis]) != 1:
            refuse("along an inner axis")
    elif name == "pad":
        if len(shape) != 1 or op["padding_config"][0][2]:
            refuse("of several axes or between numbers")
    elif name == "slice":
        _slice_start(equation)
    elif name in REDUCTIONS:
        if len(op["axes"]) != len(xs[0].type.shape if isinstance(xs[0].type, Array) else ()) or not size(xs[0]):
            refuse("along some axes")
    else:
        refuse("is not known to it")


def _slice_start(equation: Compute) -> int:
    """The number at which the part begins that a slice takes, where it is one part."""
    op, (x,) = equation.op, equation.operands
    assert isinstance(x.type, Array)
    shape, start, limit = x.type.shape, op["start_indices"], op["limit_indices"]
    strides = op["strides"] or (1,) * len(shape)
    first, inner, whole = 0, 1, True
    for axis in reversed(range(len(shape))):
        taken = limit[axis] - start[axis]
        if strides[axis] != 1 or (not whole and taken != 1):
            raise RefusedError("slice of several parts")
        whole = whole and taken == shape[axis]
        first += start[axis] * inner
        inner *= shape[axis]
    return first


class Values:
    """The loops of a phase: everything that a task computes for a row between two matrix products.

    `made`: the equations of the phase by what they make. `wanted`: what of it is written to memory. Everything else
    that they read is in memory, or is a constant."""

    def __init__(self, made: Mapping[Variable, Compute], wanted: Sequence[Variable]) -> None:
        self.made = made
        self.wanted = list(wanted)
        self.kept: dict[Variable, None] = {}
        self.nodes: list[ValueNode] = []
        self.loops: list[ValueLoop] = []
        while not self._attempt():
            pass

    def _attempt(self) -> bool:
        """Lay everything out with what is kept so far; False where more has to be kept."""
        self.numbers: dict[ValueNode, int] = {}
        self.nodes = []
        self.ranks: dict[Variable, int] = {}
        self.origin: dict[int, Variable] = {}
        self.cut: dict[Variable, frozenset[int]] = {}
        loops: dict[tuple[int, int], ValueLoop] = {}
        before = len(self.kept)
        order = {v: k for k, v in enumerate(self.made, 1)}
        for variable in sorted(dict.fromkeys((*self.wanted, *self.kept)), key=lambda v: order.get(v, 0)):
            rank = 0
            for write, length in self._writes(variable):
                at = self._rank(write.node)
                rank = max(rank, at)
                loops.setdefault((at, length), ValueLoop(length)).writes.append(write)
            self.ranks[variable] = rank
            if len(self.kept) > before:
                return False
        self.loops = [loops[key] for key in sorted(loops)]
        seen: dict[int, ValueLoop] = {}
        for loop in self.loops:
            for node in self.reached(w.node for w in loop.writes):
                if self.nodes[node].name in COSTLY and seen.setdefault(node, loop) is not loop:
                    self.kept.setdefault(self.origin[node])
        return len(self.kept) == before

    def reached(self, roots: Iterable[int]) -> list[int]:
        """All nodes that some nodes are computed from, and they themselves, each after those that it reads."""
        done: dict[int, None] = {}
        stack = [(n, False) for n in roots][::-1]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done[node] = None
                continue
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(self.nodes[node].args))
        return list(done)

    def _writes(self, variable: Variable) -> list[tuple[Write, int]]:
        length = size(variable)
        if variable not in self.made:  # rows that were gathered, for those who read them elsewhere
            return [(Write(variable, 0, self._node(variable, 0, False)), length)]
        equation = self.made[variable]
        if equation.op.name in REDUCTIONS:
            operand = equation.operands[0]
            if self._cuts(operand):
                assert isinstance(operand, Variable)
                self.kept.setdefault(operand)
            node = self._node(operand, 0, False)
            return [(Write(variable, 0, node, equation.op.name), size(operand))]
        if is_mask(variable):
            raise RefusedError("bools in memory")
        bounds = sorted({0, length, *self._cuts(variable, root=True)})
        found = []
        for first, end in pairwise(bounds):
            found.append((Write(variable, first, self._node(variable, first, False, root=True)), end - first))
        return found

    def _rank(self, node: int) -> int:
        """How many loops must have run before."""
        found = 0
        for n in self.reached([node]):
            source = self.nodes[n].source
            if isinstance(source, Variable) and source in self.made:
                found = max(found, self.ranks[source] + 1)
        return found

    # ---- where numbers come from

    def _cuts(self, x: Atom, root: bool = False) -> frozenset[int]:
        """Where a new part of a value begins, which comes from somewhere else."""
        if not isinstance(x, Variable) or self._in_memory(x, root):
            return frozenset()
        if x not in self.cut:
            self.cut[x] = self._cuts_of(x)
        return self.cut[x]

    def _cuts_of(self, x: Variable) -> frozenset[int]:
        equation, length = self.made[x], size(x)
        name, xs = equation.op.name, equation.operands
        found: set[int] = set()
        if name == "concatenate":
            at = 0
            for part in xs:
                found.update((at, *(at + c for c in self._cuts(part))))
                at += size(part)
        elif name == "pad":
            first = equation.op["padding_config"][0][0]
            found.update((first, first + size(xs[0]), *(first + c for c in self._cuts(xs[0]))))
        elif name in ("split", "slice"):
            found.update(c - self._start(equation, x) for c in self._cuts(xs[0]))
        else:
            found.update(c for operand in xs if size(operand) == length for c in self._cuts(operand))
        return frozenset(c for c in found if 0 < c < length)

    def _in_memory(self, x: Variable, root: bool) -> bool:
        if x not in self.made:
            return True
        return not root and (x in self.kept or self.made[x].op.name in REDUCTIONS)

    def _start(self, equation: Compute, result: Variable) -> int:
        """Where the result of a split or a slice begins in its operand."""
        if equation.op.name == "slice":
            return _slice_start(equation)
        at = equation.results.index(result)
        return sum(size(r) for r in equation.results[:at])

    def _add(self, node: ValueNode, origin: Variable | None = None) -> int:
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
            if origin is not None:
                self.origin[self.numbers[node]] = origin
        return self.numbers[node]

    def _node(self, x: Atom, at: int, splat: bool, root: bool = False) -> int:
        """The numbers of `x` from `at` on; with `splat` the one number there, in all lanes."""
        splat = splat or size(x) == 1
        if isinstance(x, Literal):
            if x.constant < 0:
                assert isinstance(x.value, int | float)
                return self._add(ValueNode("constant", number=float(x.value)))
            return self._add(ValueNode("splat" if splat else "load", source=x.constant, at=at))
        if self._in_memory(x, root):
            if x in self.made and x not in self.ranks:  # a reduction that nobody else asked for
                self.kept.setdefault(x)
                return self._add(ValueNode("constant"))
            return self._add(ValueNode("splat" if splat else "load", source=x, at=at))
        equation = self.made[x]
        name, xs = equation.op.name, equation.operands
        if name in SAME or name == "broadcast_in_dim":
            return self._node(xs[0], 0 if size(xs[0]) == 1 else at, splat)
        if name in ("split", "slice"):
            return self._node(xs[0], self._start(equation, x) + at, splat)
        if name == "concatenate":
            for part in xs:
                if at < size(part):
                    return self._node(part, at, splat)
                at -= size(part)
        if name == "pad":
            inside = at - equation.op["padding_config"][0][0]
            return self._node(xs[0], inside, splat) if 0 <= inside < size(xs[0]) else self._node(xs[1], 0, True)
        args = tuple(self._node(operand, 0 if size(operand) == 1 else at, splat) for operand in xs)
        if name == "convert_element_type":
            if not is_mask(xs[0]) or is_mask(x):
                return args[0]
            return self._add(ValueNode("convert", args))
        if name == "integer_pow":
            return self._add(ValueNode(name, args, power=equation.op["y"]), x)
        if (simpler := self._simpler(name, args)) is not None:
            return simpler
        return self._add(ValueNode(name, args), x)

    def _simpler(self, name: str, args: tuple[int, ...]) -> int | None:
        """Sums with the zeros around a part: which of several parts a number belongs to is known."""
        if name in ("add", "add_any"):
            zero = ValueNode("constant", number=0.0)
            for one, other in (args, args[::-1]):
                if self.nodes[one] == zero:
                    return other
        return None


# ---- eligible
#
# Will the kernel run all level loops of a schedule? Asked before any array is there: what windows cost on a machine is
# measured for XLA's loops alone.


DTYPE = "float32"
"""Of the numbers that `numbers.py` has functions for."""


def all_by_kernel(schedule: Schedule, loops: str, products: str, widths: Sequence[int]) -> bool:
    """`loops`, `products`, `widths`: the options of these names."""
    if loops == "xla" or (loops == "auto" and products == "xla"):
        return False
    try:
        product_kernels.registered(DTYPE)
        for step in schedule.steps:
            for equation in (e for t in step.tasks for e in t.equations) if isinstance(step, Recurrence) else ():
                _check(equation, max(widths) if loops == "auto" else 1)
    except (RefusedError, UnavailableError):
        return False
    return True


def _check(equation: Equation, rows: int) -> None:
    if (product := row_product(equation)) is not None:
        check_product(product, rows)
    elif isinstance(equation, Compute):
        check(equation, DTYPE)
    elif any(str(jax_compat.device_dtype(r.type)) != DTYPE for r in results(equation)):
        raise RefusedError("rows of other numbers")


def check_product(product: RowProduct, rows: int) -> None:
    """RefusedError where a product is none for the kernel, or where XLA's is as fast, of so many rows at once."""
    types = (product.row.type, product.weight.type, product.equation.results[0].type)
    if {str(jax_compat.device_dtype(t)) for t in types} != {DTYPE}:
        raise RefusedError("a product of other numbers")
    numbers = product.contracted * product.columns
    if not numbers:
        raise RefusedError("an empty matrix")
    if numbers >= LARGEST:
        raise RefusedError("a matrix so large that XLA's product is as fast")
    if rows * numbers >= MANY and available_cores() > 1:
        raise RefusedError(f"XLA cuts so much work among {available_cores()} cores")
