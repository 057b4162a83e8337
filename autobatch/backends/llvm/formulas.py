"""Formulas of vectors of floats: operators that write LLVM's instructions.

    y = fma(x, x, 1.0) / sqrt(x)      ->      %v1 = call <8 x double> @llvm.fma.v8f64(...), ...

What is written carries no fast-math flags, and sums are fused with products only where `fma` says so: the same bits at
any number of lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autobatch.backends.llvm.functions import VectorWriter
from autobatch.backends.llvm.text import LlvmFunction


@dataclass(frozen=True)
class Mask:
    """Of each lane, whether."""

    v: VectorWriter
    text: str

    def __and__(self, other: Mask) -> Mask:
        return self._with("and", other.text)

    def __or__(self, other: Mask) -> Mask:
        return self._with("or", other.text)

    def __xor__(self, other: Mask) -> Mask:
        return self._with("xor", other.text)

    def __invert__(self) -> Mask:
        return self._with("xor", self.v.all_of("i1", "true"))

    def any(self) -> str:
        """Is there a lane? An `i1`."""
        v, lanes = self.v, self.v.lanes
        if lanes == 1:
            return self.text
        return v.f.let(f"icmp ne i{lanes} {v.f.let(f'bitcast {v.mask} {self.text} to i{lanes}')}, 0")

    def _with(self, name: str, other: str) -> Mask:
        return Mask(self.v, self.v.f.let(f"{name} {self.v.mask} {self.text}, {other}"))


@dataclass(frozen=True)
class IntegerVector:
    """Integers of as many bits as the floats have."""

    v: VectorWriter
    text: str

    def __add__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("add", other)

    def __sub__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("sub", other)

    def __mul__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("mul", other)

    def __and__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("and", other)

    def __or__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("or", other)

    def __xor__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("xor", other)

    def __lshift__(self, other: IntegerVector | int) -> IntegerVector:
        return self._with("shl", other)

    def __rshift__(self, other: IntegerVector | int) -> IntegerVector:
        """With copies of the sign."""
        return self._with("ashr", other)

    def logical(self, by: IntegerVector | int) -> IntegerVector:
        """Shifted right, with zeros."""
        return self._with("lshr", by)

    def third(self) -> IntegerVector:
        """Of numbers that are not negative."""
        return self._with("udiv", 3)

    def times_high(self, other: IntegerVector) -> IntegerVector:
        """The high half of the product of numbers without a sign."""
        v, bits = self.v, self.v.bits_of_one
        of = v.vector(f"i{2 * bits}")
        a, b = (v.f.let(f"zext {v.integers} {x.text} to {of}") for x in (self, other))
        shift = v.all_of(f"i{2 * bits}", str(bits))
        high = v.f.let(f"lshr {of} {v.f.let(f'mul {of} {a}, {b}')}, {shift}")
        return IntegerVector(v, v.f.let(f"trunc {of} {high} to {v.integers}"))

    def followed_by(self, other: IntegerVector, by: IntegerVector) -> IntegerVector:
        """Bits of the two behind each other, from bit `by` on."""
        v = self.v
        name = f"@llvm.fshl.{'' if v.lanes == 1 else f'v{v.lanes}'}i{v.bits_of_one}"
        v.f.declare(f"declare {v.integers} {name}({', '.join([v.integers] * 3)})")
        operands = ", ".join(f"{v.integers} {x.text}" for x in (self, other, by))
        return IntegerVector(v, v.f.let(f"call {v.integers} {name}({operands})"))

    def is_(self, predicate: str, other: IntegerVector | int) -> Mask:
        """`predicate`: one of LLVM's `icmp`."""
        return Mask(self.v, self.v.f.let(f"icmp {predicate} {self.v.integers} {self.text}, {self._read(other)}"))

    def has(self, bit: int) -> Mask:
        return (self & bit).is_("ne", 0)

    def bits_as_float(self) -> Real:
        return Real(self.v, self.v.of_bits(self.text))

    def as_float(self) -> Real:
        return Real(self.v, self.v.f.let(f"sitofp {self.v.integers} {self.text} to {self.v.type}"))

    def like(self, value: int) -> IntegerVector:
        """A constant."""
        return IntegerVector(self.v, self.v.whole(value))

    def _read(self, other: IntegerVector | int) -> str:
        return other.text if isinstance(other, IntegerVector) else self.v.whole(other)

    def _with(self, name: str, other: IntegerVector | int) -> IntegerVector:
        return IntegerVector(self.v, self.v.integer(name, self.text, self._read(other)))


@dataclass(frozen=True)
class Real:
    """Floats, one in each lane."""

    v: VectorWriter
    text: str

    def __add__(self, other: Real | float) -> Real:
        return self._with("fadd", self, other)

    def __radd__(self, other: float) -> Real:
        return self._with("fadd", other, self)

    def __sub__(self, other: Real | float) -> Real:
        return self._with("fsub", self, other)

    def __rsub__(self, other: float) -> Real:
        return self._with("fsub", other, self)

    def __mul__(self, other: Real | float) -> Real:
        return self._with("fmul", self, other)

    def __rmul__(self, other: float) -> Real:
        return self._with("fmul", other, self)

    def __truediv__(self, other: Real | float) -> Real:
        return self._with("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Real:
        return self._with("fdiv", other, self)

    def __neg__(self) -> Real:
        return Real(self.v, self.v.f.let(f"fneg {self.v.type} {self.text}"))

    def __lt__(self, other: Real | float) -> Mask:
        return self.is_("olt", other)

    def __le__(self, other: Real | float) -> Mask:
        return self.is_("ole", other)

    def __gt__(self, other: Real | float) -> Mask:
        return self.is_("ogt", other)

    def __ge__(self, other: Real | float) -> Mask:
        return self.is_("oge", other)

    def is_(self, predicate: str, other: Real | float) -> Mask:
        """`predicate`: one of LLVM's `fcmp`."""
        return Mask(self.v, self.v.compare(predicate, self.text, self.read(other).text))

    def equals(self, other: Real | float) -> Mask:
        return self.is_("oeq", other)

    def is_nan(self) -> Mask:
        return self.is_("uno", self)

    def is_negative(self) -> Mask:
        """Of the sign: of -0 as well."""
        return self.bits().is_("slt", 0)

    def bits(self) -> IntegerVector:
        return IntegerVector(self.v, self.v.bits(self.text))

    def whole(self) -> IntegerVector:
        """Of whole numbers that an integer holds."""
        return IntegerVector(self.v, self.v.to_integers(self.text))

    def like(self, value: float) -> Real:
        """A constant."""
        return Real(self.v, self.v.constant(value))

    def read(self, other: Real | float) -> Real:
        return other if isinstance(other, Real) else self.like(other)

    def _with(self, name: str, a: Real | float, b: Real | float) -> Real:
        return Real(self.v, self.v.two(name, self.read(a).text, self.read(b).text))


# ---- what is not an operator


def fma(a: Real, b: Real | float, c: Real | float) -> Real:
    """a b + c, rounded once."""
    return _intrinsic("fma", a, a.read(b), a.read(c))


def sqrt(x: Real) -> Real:
    return _intrinsic("sqrt", x)


def absolute(x: Real) -> Real:
    return _intrinsic("fabs", x)


def nearest(x: Real) -> Real:
    """The nearest whole number; of two, the even one."""
    return _intrinsic("rint", x)


def floor(x: Real) -> Real:
    return _intrinsic("floor", x)


def toward_zero(x: Real) -> Real:
    return _intrinsic("trunc", x)


def with_sign_of(x: Real, sign: Real) -> Real:
    return _intrinsic("copysign", x, sign)


def where(mask: Mask, a: Real | float, b: Real | float) -> Real:
    like = Real(mask.v, "")
    return Real(mask.v, mask.v.select(mask.text, like.read(a).text, like.read(b).text))


def where_whole(mask: Mask, a: IntegerVector | int, b: IntegerVector | int) -> IntegerVector:
    v = mask.v
    of_a, of_b = (x.text if isinstance(x, IntegerVector) else v.whole(x) for x in (a, b))
    return IntegerVector(v, v.f.let(f"select {v.mask} {mask.text}, {v.integers} {of_a}, {v.integers} {of_b}"))


def table(name: str, numbers: Sequence[int], index: IntegerVector) -> IntegerVector:
    """Of a table of integers of 64 bits, those that stand at indices, which are within it."""
    v = index.v
    v.f.declare(f"@{name} = internal constant [{len(numbers)} x i64] [{', '.join(f'i64 {n}' for n in numbers)}]")
    if v.lanes == 1:
        return IntegerVector(
            v, v.f.let(f"load i64, ptr {v.f.let(f'getelementptr i64, ptr @{name}, i64 {index.text}')}")
        )
    pointers, gather = v.vector("ptr"), f"@llvm.masked.gather.v{v.lanes}i64.v{v.lanes}p0"
    v.f.declare(f"declare {v.integers} {gather}({pointers}, i32, {v.mask}, {v.integers})")
    places = v.f.let(f"getelementptr i64, ptr @{name}, {v.integers} {index.text}")
    every = f"{v.mask} {v.all_of('i1', 'true')}"
    return IntegerVector(
        v, v.f.let(f"call {v.integers} {gather}({pointers} {places}, i32 8, {every}, {v.integers} poison)")
    )


def least(x: Real, most: Real | float) -> Real:
    """The second where one of them is NaN."""
    return where(x < most, x, most)


def greatest(x: Real, least: Real | float) -> Real:
    return where(x > least, x, least)


def clamped(x: Real, low: float, high: float) -> Real:
    return greatest(least(x, high), low)


def polynomial(x: Real, coefficients: Sequence[float]) -> Real:
    """From the constant term on, by Horner's rule."""
    total = x.like(coefficients[-1])
    for c in coefficients[-2::-1]:
        total = fma(total, x, c)
    return total


def power_of_two(n: IntegerVector) -> Real:
    """Of the exponents of normal numbers."""
    digits, bias = (23, 127) if n.v.bits_of_one == 32 else (52, 1023)
    return ((n + bias) << digits).bits_as_float()


def scaled(x: Real, n: IntegerVector) -> Real:
    """x 2^n for n of a float's whole range of exponents and somewhat beyond: in two steps, of which only the second one
    may round."""
    half = n >> 1
    return x * power_of_two(half) * power_of_two(n - half)


def if_any(mask: Mask, usual: Sequence[Real], make: Callable[[], Sequence[Real]]) -> list[Real]:
    """`make()` where the mask is set and `usual` elsewhere; nothing of it is computed where no lane needs it."""
    v = mask.v
    slots = [v.f.vector_slot(v.type) for _ in usual]
    for slot, x in zip(slots, usual, strict=True):
        v.f.do(f"store {v.type} {x.text}, ptr {slot}")
    with v.f.when(mask.any()):
        for slot, x, other in zip(slots, make(), usual, strict=True):
            v.f.do(f"store {v.type} {where(mask, x, other).text}, ptr {slot}")
    return [Real(v, v.f.let(f"load {v.type}, ptr {slot}")) for slot in slots]


def _intrinsic(name: str, *xs: Real) -> Real:
    v = xs[0].v
    suffix = f"{'' if v.lanes == 1 else f'v{v.lanes}'}f{v.bits_of_one}"
    v.f.declare(f"declare {v.type} @llvm.{name}.{suffix}({', '.join([v.type] * len(xs))})")
    return Real(v, v.call(name, *(x.text for x in xs)))


# ---- functions made of formulas

Formula = Callable[..., Real]
"""`formula(*xs)`."""


def inline(formula: Formula) -> Callable[..., str]:
    """Written where it is used."""
    return lambda v, *xs: formula(*(Real(v, x) for x in xs)).text


def called(name: str, formula: Formula) -> Callable[..., str]:
    """Written once for each type of vectors in a module, as a function that is called: for formulas so long that
    copies would take the compiler time. Where there is one call, or where it is short, LLVM puts it in place."""

    def make(v: VectorWriter, *xs: str) -> str:
        lanes = "" if v.lanes == 1 else f"v{v.lanes}"
        symbol = f"@{name}.{lanes}f{v.bits_of_one}"
        if symbol not in v.f.called:
            v.f.called.add(symbol)
            define(v, symbol, len(xs))
        return v.f.let(f"call {v.type} {symbol}({', '.join(f'{v.type} {x}' for x in xs)})")

    def define(v: VectorWriter, symbol: str, count: int) -> None:
        parameters = [f"%x{k}" for k in range(count)]
        heads = ", ".join(f"{v.type} {p}" for p in parameters)
        inner = LlvmFunction(f"internal {v.type} {symbol}({heads}) nounwind")
        within = VectorWriter(inner, v.scalar, v.lanes)
        found = formula(*(Real(within, p) for p in parameters))
        inner.do(f"ret {v.type} {found.text}")
        for declaration in (*inner.declarations, str(inner)):
            v.f.declare(declaration)

    return make


def in_double(formula: Formula) -> Formula:
    """A formula of doubles as one of floats: a result is off by little more than its last rounding."""

    def single(*xs: Real) -> Real:
        v = xs[0].v
        wide = VectorWriter(v.f, "double", v.lanes)
        held = [Real(wide, v.f.let(f"fpext {v.type} {x.text} to {wide.type}")) for x in xs]
        return Real(v, v.f.let(f"fptrunc {wide.type} {formula(*held).text} to {v.type}"))

    return single


INFINITY = math.inf
NAN = math.nan
