"""Functions of vectors of floats, as LLVM IR, and formulas: operators that write LLVM's instructions.

    y = fma(x, x, 1.0) / sqrt(x)      ->      %v1 = call <8 x double> @llvm.fma.v8f64(...), ...

What is written carries no fast-math flags, and sums are fused with products only where `fma` says so: the same bits at
any number of lanes.

Polynomials and rational functions were fitted for this module: weighted least squares with Lawson's weights (C. L.
Lawson, "Contributions to the Theory of Linear Least Maximum Approximation", 1961), of relative errors. What they reach
in single precision is in `tests/backends/native/test_numbers.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autobatch.backends.llvm.text import LlvmFunction, broadcast, splat

# ---- functions


EXP = (0.499999934124816, 0.16666520107739446, 0.041668394214996886, 0.008368780418595751, 0.0013814466856635111)
"""exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2) / 2."""
LOG = (
    0.33333331707699854,
    -0.25000821034371856,
    0.2000122687626983,
    -0.16623357342776474,
    0.14201758002034945,
    -0.1316018240782685,
    0.12761577026160065,
    -0.07634496471185032,
)
"""log(1 + f) = f - f^2 / 2 + f^3 P(f) for 1 + f from sqrt(1/2) to sqrt(2)."""
TANH = (
    (0.9999999790244696, 0.1337971742922359, 0.003494033961156669, 2.0583472014121036e-05, 1.3319060387977876e-08),
    (1.0, 0.46713032671610105, 0.02587107089451215, 0.0003283091884743332, 7.762014444206248e-07),
)
"""tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9.02, where it is 1 in single precision."""
LN2 = (0.693359375, -2.1219444005471377e-04)
"""ln(2), as a number of few digits and the rest."""


@dataclass(frozen=True)
class VectorWriter:
    """Writes instructions on vectors of floats into one function: `lanes` of `float` or `double`, or one number."""

    f: LlvmFunction
    scalar: str
    lanes: int

    # ---- types

    @property
    def bits_of_one(self) -> int:
        return 32 if self.scalar == "float" else 64

    @property
    def type(self) -> str:
        return _vector(self.lanes, self.scalar)

    @property
    def integers(self) -> str:
        return _vector(self.lanes, f"i{self.bits_of_one}")

    @property
    def mask(self) -> str:
        return _vector(self.lanes, "i1")

    def constant(self, x: float) -> str:
        """A vector of equal floats, as LLVM writes constants."""
        return self.all_of(self.scalar, text_of(x, self.bits_of_one // 8))

    def whole(self, n: int) -> str:
        """A vector of equal integers."""
        return self.all_of(f"i{self.bits_of_one}", str(n))

    def all_of(self, type: str, number: str) -> str:
        """A vector of equal constants."""
        return number if self.lanes == 1 else splat(type, number)

    def vector(self, type: str) -> str:
        """As many of a type as there are lanes."""
        return _vector(self.lanes, type)

    # ---- instructions

    def two(self, name: str, a: str, b: str) -> str:
        return self.f.let(f"{name} {self.type} {a}, {b}")

    def call(self, name: str, *xs: str) -> str:
        operands = ", ".join(f"{self.type} {x}" for x in xs)
        suffix = f"{'' if self.lanes == 1 else f'v{self.lanes}'}f{self.bits_of_one}"
        return self.f.let(f"call {self.type} @llvm.{name}.{suffix}({operands})")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.call("fma", a, b, c)

    def broadcast(self, number: str) -> str:
        return number if self.lanes == 1 else broadcast(self.f, self.lanes, self.scalar, number)

    def compare(self, predicate: str, a: str, b: str) -> str:
        return self.f.let(f"fcmp {predicate} {self.type} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        return self.f.let(f"select {self.mask} {mask}, {self.type} {a}, {self.type} {b}")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        total = self.constant(coefficients[-1])
        for c in coefficients[-2::-1]:
            total = self.fma(total, x, self.constant(c))
        return total

    def bits(self, x: str) -> str:
        return self.f.let(f"bitcast {self.type} {x} to {self.integers}")

    def of_bits(self, x: str) -> str:
        return self.f.let(f"bitcast {self.integers} {x} to {self.type}")

    def integer(self, name: str, a: str, b: str) -> str:
        return self.f.let(f"{name} {self.integers} {a}, {b}")

    def to_integers(self, x: str) -> str:
        """Towards zero; some integer where none is that number, as of NaN. Without `freeze` it were poison, and what is
        computed with it anything, also where NaN is selected in its place."""
        whole = self.f.let(f"fptosi {self.type} {x} to {self.integers}")
        return self.f.let(f"freeze {self.integers} {whole}")


def text_of(x: float, size: int) -> str:
    """A float as LLVM IR has it: the bits of the double that is equal to it."""
    if size == 4:
        try:
            x = struct.unpack("<f", struct.pack("<f", x))[0]
        except OverflowError:  # a literal beyond the largest float is infinite there
            x = float("inf") if x > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


INTRINSICS = {
    "maxnum": 2,
    "minnum": 2,
    "maximum": 2,
    "minimum": 2,
    "rint": 1,
    "sqrt": 1,
    "fabs": 1,
    "floor": 1,
    "ceil": 1,
}
"""Of LLVM, for vectors of floats, by how many operands they take. The kernel of products declares `fma`."""


def declarations(vector: str, suffix: str) -> str:
    """The intrinsics that the functions of this module call, for a type of vectors."""
    return "\n".join(
        f"declare {vector} @llvm.{name}.{suffix}({', '.join([vector] * count)})" for name, count in INTRINSICS.items()
    )


def _vector(lanes: int, type: str) -> str:
    return type if lanes == 1 else f"<{lanes} x {type}>"


# ---- functions


def exp(v: VectorWriter, x: str) -> str:
    """By ln(2) n + r. The power of two is applied in two steps: results that are subnormal are right as well."""
    held = v.call("maxnum", v.call("minnum", x, v.constant(89.0)), v.constant(-104.0))
    n = v.call("rint", v.two("fmul", held, v.constant(1.4426950408889634)))
    r = v.fma(n, v.constant(-LN2[0]), held)
    r = v.fma(n, v.constant(-LN2[1]), r)
    p = v.fma(v.two("fmul", r, r), v.polynomial(r, EXP), v.two("fadd", r, v.constant(1.0)))
    whole = v.to_integers(n)
    half = v.integer("ashr", whole, v.whole(1))
    for part in (half, v.integer("sub", whole, half)):
        exponent = v.integer("shl", v.integer("add", part, v.whole(127)), v.whole(23))
        p = v.two("fmul", p, v.of_bits(exponent))
    return v.select(v.compare("uno", x, x), x, p)


def log(v: VectorWriter, x: str) -> str:
    """By x = 2^n (1 + f). Subnormal numbers are multiplied by 2^23 before."""
    small = v.compare("olt", x, v.constant(2.0**-126))
    scaled = v.select(small, v.two("fmul", x, v.constant(2.0**23)), x)
    bits = v.bits(scaled)
    # so that 1 + f begins at sqrt(1/2), whose bits are these
    above = v.integer("sub", bits, v.whole(0x3F3504F3))
    n = v.f.let(f"sitofp {v.integers} {v.integer('ashr', above, v.whole(23))} to {v.type}")
    n = v.two("fsub", n, v.select(small, v.constant(23.0), v.constant(0.0)))
    fraction = v.integer("add", v.integer("and", above, v.whole(0x007FFFFF)), v.whole(0x3F3504F3))
    f = v.two("fsub", v.of_bits(fraction), v.constant(1.0))
    square = v.two("fmul", f, f)
    p = v.two("fmul", v.two("fmul", square, f), v.polynomial(f, LOG))
    p = v.fma(n, v.constant(LN2[1]), p)
    p = v.fma(square, v.constant(-0.5), p)
    result = v.fma(n, v.constant(LN2[0]), v.two("fadd", f, p))
    infinite = v.compare("oeq", x, v.constant(float("inf")))
    result = v.select(infinite, x, result)
    result = v.select(v.compare("oeq", x, v.constant(0.0)), v.constant(float("-inf")), result)
    return v.select(v.compare("uge", x, v.constant(0.0)), v.select(v.compare("uno", x, x), x, result), nan(v))


def nan(v: VectorWriter) -> str:
    return v.constant(float("nan"))


def logistic(v: VectorWriter, x: str) -> str:
    negated = v.f.let(f"fneg {v.type} {x}")
    return v.two("fdiv", v.constant(1.0), v.two("fadd", v.constant(1.0), exp(v, negated)))


def tanh(v: VectorWriter, x: str) -> str:
    held = v.call("maxnum", v.call("minnum", x, v.constant(9.02)), v.constant(-9.02))
    square = v.two("fmul", held, held)
    above = v.two("fmul", held, v.polynomial(square, TANH[0]))
    found = v.two("fdiv", above, v.polynomial(square, TANH[1]))
    found = v.call("maxnum", v.call("minnum", found, v.constant(1.0)), v.constant(-1.0))
    return v.select(v.compare("uno", x, x), x, found)


def integer_pow(v: VectorWriter, x: str, y: int) -> str:
    total, power, left = "", x, abs(y)
    while left:
        if left & 1:
            total = power if not total else v.two("fmul", total, power)
        left >>= 1
        power = v.two("fmul", power, power) if left else power
    total = total or v.constant(1.0)
    return v.two("fdiv", v.constant(1.0), total) if y < 0 else total


Emit = Callable[[VectorWriter, Sequence[str]], str]


def _two(name: str) -> Emit:
    return lambda v, xs: v.two(name, xs[0], xs[1])


def _call_intrinsic(name: str) -> Emit:
    return lambda v, xs: v.call(name, *xs)


def _compare(predicate: str) -> Emit:
    return lambda v, xs: v.compare(predicate, xs[0], xs[1])


def _masks(name: str) -> Emit:
    return lambda v, xs: v.f.let(f"{name} {v.mask} {xs[0]}, {xs[1]}")


FUNCTIONS: Mapping[str, Emit] = {
    "add": _two("fadd"),
    "add_any": _two("fadd"),
    "sub": _two("fsub"),
    "mul": _two("fmul"),
    "div": _two("fdiv"),
    "truediv": _two("fdiv"),
    "neg": lambda v, xs: v.f.let(f"fneg {v.type} {xs[0]}"),
    "max": _call_intrinsic("maximum"),
    "min": _call_intrinsic("minimum"),
    "abs": _call_intrinsic("fabs"),
    "sqrt": _call_intrinsic("sqrt"),
    "floor": _call_intrinsic("floor"),
    "ceil": _call_intrinsic("ceil"),
    "square": lambda v, xs: v.two("fmul", xs[0], xs[0]),
    "one_minus_square": lambda v, xs: v.two(
        "fmul", v.two("fadd", v.constant(1.0), xs[0]), v.two("fsub", v.constant(1.0), xs[0])
    ),
    "rsqrt": lambda v, xs: v.two("fdiv", v.constant(1.0), v.call("sqrt", xs[0])),
    "exp": lambda v, xs: exp(v, xs[0]),
    "log": lambda v, xs: log(v, xs[0]),
    "tanh": lambda v, xs: tanh(v, xs[0]),
    "logistic": lambda v, xs: logistic(v, xs[0]),
    "lt": _compare("olt"),
    "le": _compare("ole"),
    "gt": _compare("ogt"),
    "ge": _compare("oge"),
    "eq": _compare("oeq"),
    "ne": _compare("une"),
    "is_finite": lambda v, xs: v.compare("ord", v.two("fsub", xs[0], xs[0]), v.constant(0.0)),
    "and": _masks("and"),
    "or": _masks("or"),
    "xor": _masks("xor"),
}
"""By the name of the operation: number by number. Comparisons give masks, logical operations take them."""

MASKS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "is_finite", "and", "or", "xor", "not"))
LOGICAL = frozenset(("and", "or", "xor", "not"))
COSTLY = frozenset(("exp", "log", "tanh", "logistic", "div", "truediv", "sqrt", "rsqrt", "integer_pow"))
"""Not computed twice for the same numbers of a row."""
REDUCTIONS: Mapping[str, tuple[str, float]] = {
    "reduce_sum": ("fadd", 0.0),
    "reduce_max": ("maximum", float("-inf")),
    "reduce_min": ("minimum", float("inf")),
}


# ---- formulas


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
