"""What leaf operations are in machine code: one table, and how what is not in it is expanded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from autobatch.backends.llvm.checked import is_checking
from autobatch.backends.llvm.lanes.bits import BITS
from autobatch.backends.llvm.lanes.by_number import BY_NUMBER, COSTLY, convert
from autobatch.backends.llvm.lanes.complexes import COMPLEX_RULES
from autobatch.backends.llvm.lanes.expand import Equations, expanded
from autobatch.backends.llvm.lanes.gathers import INDEXING, taken
from autobatch.backends.llvm.lanes.halves import in_single
from autobatch.backends.llvm.lanes.inner import INNER
from autobatch.backends.llvm.lanes.moves import MOVES, Shapes
from autobatch.backends.llvm.lanes.products import product
from autobatch.backends.llvm.lanes.random import RANDOM
from autobatch.backends.llvm.lanes.reductions import REDUCTIONS
from autobatch.backends.llvm.lanes.sorting import SORTING
from autobatch.backends.llvm.lanes.tensors import (
    KEY,
    SMALL,
    Element,
    Indices,
    Tensor,
    apart,
    constant,
    element,
    kept,
    registers,
    scalar,
    zeros,
)
from autobatch.backends.llvm.lanes.windows import WINDOWS
from autobatch.backends.llvm.lanes.writer import COMPLEX, ELEMENTS, HALVES, LaneValue, LaneWriter, rounded
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Instruction, Operand, Value
from autobatch.ir.ops import Op
from autobatch.ir.types import Array, Type
from autobatch.source import NOWHERE

Environment = dict[Value, Tensor]


def shape_of(type: Type) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape of a type, as the device has it."""
    return _shape_of(type, _CONFIG.jax_enable_x64)


_CONFIG: Any = jax.config


@lru_cache(maxsize=4096)
def _shape_of(type: Type, x64: bool) -> tuple[str, tuple[int, ...]]:
    if not isinstance(type, Array):
        raise RefusedError(f"a value of type {type}")
    dtype = type.dtype
    if not dtype.startswith("key<"):  # without x64 an array of 64 bits has 32 on the device
        dtype = str(jax.dtypes.canonicalize_dtype(jax_compat.device_dtype(type)))
    if dtype != KEY and dtype not in ELEMENTS and dtype not in COMPLEX:
        raise RefusedError(f"numbers of {dtype}")
    return dtype, type.shape


def by_number(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """An operation on the numbers at each index; a single number, and an axis of one, stands for all."""
    dtype, shape = results[0]
    make, wheres = BY_NUMBER[op.name], [_where(x, shape) for x in xs]

    def at(index: Indices) -> Element:
        found = make(w, op, *(x.one(where(index)) for x, where in zip(xs, wheres, strict=True)))
        return (convert(w, found, dtype),)

    return [Tensor(dtype, shape, at)]


def _where(x: Tensor, shape: tuple[int, ...]) -> Callable[[Indices], Indices]:
    """Where the number of an operand stands that belongs to an index of the result."""
    if x.shape == shape:
        return lambda index: index
    if not x.shape:
        return lambda index: ()
    if len(x.shape) != len(shape) or any(n not in (1, m) for n, m in zip(x.shape, shape, strict=True)):
        raise RefusedError(f"operands of shapes {x.shape} and {shape}")
    return lambda index: tuple(0 if n == 1 else i for n, i in zip(x.shape, index, strict=True))


def select_n(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Of two cases by a bool, of more by an integer; beyond the last it is the last."""
    which, *cases = xs
    dtype, shape = results[0]

    def at(index: Indices) -> Element:
        chosen = which.one(index if which.shape else ())
        found, *others = (x.at(index if x.shape else ()) for x in cases)
        for k, other in enumerate(others, 1):
            here = chosen
            if which.dtype != "bool":
                least = "icmp sge" if chosen.is_signed else "icmp uge"
                here = w.instruction(least, chosen, w.constant(k, chosen.dtype), "bool")
            found = tuple(w.select(here, a, b) for a, b in zip(other, found, strict=True))
        return found

    return [Tensor(dtype, shape, at)]


def undefined(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    dtype, shape = results[0]
    return [zeros(w, dtype, shape)]


def within(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    return [xs[0]]


def same(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    return list(xs)


Lower = Callable[[LaneWriter, Op, Sequence[Tensor], Shapes], list[Tensor]]

LOWER: Mapping[str, Lower] = {
    **dict.fromkeys(BY_NUMBER, by_number),
    **MOVES,
    **REDUCTIONS,
    "dot_general": product,
    **INDEXING,
    **RANDOM,
    **BITS,
    **SORTING,
    **WINDOWS,
    "complex": COMPLEX_RULES["complex"],
    "conj": COMPLEX_RULES["conj"],
    "device_put": same,
    "imag": COMPLEX_RULES["imag"],
    "name": same,
    "optimization_barrier": same,
    "real": COMPLEX_RULES["real"],
    "select_n": select_n,
    "undefined": undefined,
    "unknown": same,
    "within": within,
}
"""By the name of the operation. What is none of these brings code of its own (`inner.py`), consists of some of them
(`expand.py`), or is refused."""

AS_PYTHON = frozenset(("pow", "round"))
"""What Python means by a name that a primitive of JAX has as well: it is traced, and then consists of primitives."""

MOVED = frozenset(
    {*MOVES, *INDEXING, "bitcast_convert_type", "convert_element_type", "copy", "stop_gradient", "select_n"}
    | {"device_put", "name", "optimization_barrier", "undefined", "unknown", "within"}
) - {"iota", "scatter-max", "scatter-min", "scatter-mul"}
"""Operations that look at no number: they are the same for elements of any kind. (A sum of complex numbers is that of
their parts.)"""


def rule_of(name: str, dtypes: set[str]) -> Lower:
    """The rule for an operation on numbers of some dtypes."""
    if not dtypes.isdisjoint(COMPLEX):
        found = COMPLEX_RULES.get(name) or (LOWER[name] if name in MOVED else None)
        if found is None:
            raise RefusedError(f"{name} of complex numbers")
        return found
    if not dtypes.isdisjoint(HALVES) and (name not in MOVED or name == "scatter-add"):
        if name in BITS:
            raise RefusedError(f"{name} of floats of 16 bits")
        return in_single(LOWER[name], convert)
    return LOWER[name]


PLAIN = frozenset(ELEMENTS) - frozenset(HALVES)
"""Dtypes whose numbers are one number each, which instructions take as they are."""


class LeafOperations:
    """Leaf operations one after another. `uses`: how often a value is read; what is read once and costs little is
    computed where it is read. `mask`: the lanes that what is written next is for; None: all."""

    def __init__(self, w: LaneWriter, constants: Callable[[Any], Tensor]) -> None:
        self.w, self.constants = w, constants
        self.mask: LaneValue | None = None

    def read(self, x: Operand, env: Environment, arrays: Sequence[Any] = ()) -> Tensor:
        if isinstance(x, Value):
            return env[x]
        if x.constant >= 0:
            return self.array(arrays[x.constant], shape_of(x.type)[0])
        dtype, shape = shape_of(x.type)
        return constant(self.w, x.value, dtype, shape)

    def array(self, value: Any, dtype: str) -> Tensor:
        """A constant of the program: few numbers stand in it, many are an operand of the call."""
        held = np.asarray(value, dtype)  # NumPy's floats have 64 bits where the program's have 32
        if held.size and held.tobytes() == held.flat[0].tobytes() * held.size:
            return constant(self.w, held.flat[0].item(), str(held.dtype), held.shape)
        if held.size <= SMALL:
            numbers = [element(self.w, x.item(), str(held.dtype)) for x in held.flat]
            return registers(self.w, str(held.dtype), held.shape, numbers)
        return self.constants(held)

    def run(
        self, body: Sequence[Apply], env: Environment, wanted: Sequence[Operand], arrays: Sequence[Any] = ()
    ) -> None:
        """Straight-line code. `wanted`: what is read behind it."""
        uses = uses_of(body, wanted)
        for i in body:
            self.apply(i, env, uses, arrays)

    def apply(self, i: Apply, env: Environment, uses: dict[Value, int], arrays: Sequence[Any] = ()) -> None:
        if not any(uses.get(r) for r in i.results):
            return
        if is_checking():
            self.w.f.note = f" ; {i.span}: {i.op.name}"
        xs = self.operands(i, env, arrays)
        try:
            if (number := self.number(i, xs)) is not None:
                env[i.results[0]] = scalar(rounded(number) if uses.get(i.results[0], 0) > 1 else number)
                return
            found = self.lowered(i.op, xs, [x.type for x in i.operands], [r.type for r in i.results])
        except RefusedError as error:
            located(error, i)
            raise
        for r, x in zip(i.results, found, strict=True):
            again = uses.get(r, 0) > 1 or i.op.name in COSTLY
            env[r] = kept(self.w, x) if (again and x.size > 1) or x.size == 1 else x
            if uses.get(r, 0) > 1:
                env[r] = apart(env[r])

    def number(self, i: Apply, xs: Sequence[Tensor]) -> LaneValue | None:
        """The result of an operation on single numbers, which are most of them; None for others."""
        make = BY_NUMBER.get(i.op.name)
        if make is None or is_traced(i.op) or len(i.results) != 1 or any(x.shape or x.dtype not in PLAIN for x in xs):
            return None
        dtype, shape = shape_of(i.results[0].type)
        if shape or dtype not in PLAIN:
            return None
        return convert(self.w, make(self.w, i.op, *[x.one() for x in xs]), dtype)

    def operands(self, i: Apply, env: Environment, arrays: Sequence[Any]) -> list[Tensor]:
        return [self.read(x, env, arrays) for x in i.operands]

    def lowered(self, op: Op, xs: Sequence[Tensor], operands: Sequence[Type], results: Sequence[Type]) -> list[Tensor]:
        shapes = [shape_of(t) for t in results]
        if op.name == "take_row" and not op.is_jax:
            column, row = xs
            assert column.memory is not None
            return [kept(self.w, taken(self.w, column.memory, row.one(), self.mask))]
        if op.name in INNER:
            return INNER[op.name](self, op, xs, shapes)
        if op.name in LOWER and not is_traced(op):
            dtypes = {*(x.dtype for x in xs), *(dtype for dtype, _ in shapes)}
            return rule_of(op.name, dtypes)(self.w, op, xs, shapes)
        arrays = [t for t in operands if isinstance(t, Array)]
        return self.expansion(expanded(op, arrays, [t for t in results if isinstance(t, Array)]), xs)

    def expansion(self, equations: Equations, xs: Sequence[Tensor]) -> list[Tensor]:
        """The results of equations on tensors."""
        uses = uses_of(equations.body, equations.results)
        pairs = zip(equations.inputs, xs, strict=True)
        env: Environment = {v: apart(kept(self.w, x)) if uses.get(v, 0) > 1 else x for v, x in pairs}
        self.run(equations.body, env, equations.results, equations.constants)
        return [self.read(x, env, equations.constants) for x in equations.results]


def is_traced(op: Op) -> bool:
    return op.name in AS_PYTHON and not op.is_jax


def located(error: RefusedError, i: Instruction) -> None:
    """The same, with the innermost operation, and the line of the innermost that has one."""
    if error.operation is None and isinstance(i, Apply):
        error.operation = f"{i.op.name}({', '.join(str(x.type) for x in i.operands)})"
    if error.span is None and i.span != NOWHERE:
        error.span = i.span


def uses_of(body: Sequence[Apply], wanted: Sequence[Operand]) -> dict[Value, int]:
    uses: dict[Value, int] = {}
    for x in (*(x for i in body for x in i.operands), *wanted):
        if isinstance(x, Value):
            uses[x] = uses.get(x, 0) + 1
    return uses
