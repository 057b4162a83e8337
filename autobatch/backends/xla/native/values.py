"""What a task computes between two matrix products, number by number: expressions, and loops over the numbers of a row.

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
from dataclasses import dataclass, field
from itertools import pairwise

from autobatch.backends.llvm.formulas import COSTLY, FUNCTIONS, LOGICAL, MASKS, REDUCTIONS
from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError
from autobatch.backends.xla.products import kernel
from autobatch.backends.xla.products.operation import LARGEST, MANY, available_cores
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, Literal
from autobatch.ir.system import Atom, Compute, Equation, Variable, results
from autobatch.passes.equations import RowProduct, row_product
from autobatch.passes.fission import Recurrence, Schedule

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
        kernel.registered(DTYPE)
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
