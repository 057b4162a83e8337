"""Functions of vectors of floats, as LLVM IR.

Polynomials and rational functions were fitted for this module: weighted least squares with Lawson's weights (C. L.
Lawson, "Contributions to the Theory of Linear Least Maximum Approximation", 1961), of relative errors. What they reach
in single precision is in `tests/backends/native/test_numbers.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autobatch.backends.llvm.text import LlvmFunction, broadcast, splat

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


def _intrinsic(name: str) -> Emit:
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
    "max": _intrinsic("maximum"),
    "min": _intrinsic("minimum"),
    "abs": _intrinsic("fabs"),
    "sqrt": _intrinsic("sqrt"),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
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
