"""Functions of float32 that are computed in double precision: short series are exact enough there.

A result is off by little more than its last rounding; `tests/backends/lanes/test_functions.py` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autobatch.backends.llvm.functions import INTRINSICS, Vectors

LN2 = (0.6931471805599453, 2.3190468138462996e-17)
"""ln(2) as the nearest double, and what it lacks."""
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
"""pi / 2, in three doubles."""
LOG_TERMS = tuple(2.0 / (2 * k + 1) for k in range(7))
"""log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + 2/5 s^5 + ..., for |s| up to 0.172: what is left out is 3e-13 of it."""
EXP_TERMS = tuple(1.0 / math.factorial(k) for k in range(10))
"""For |r| up to ln(2) / 2: what is left out is 7e-12."""
SIN_TERMS = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(6))
COS_TERMS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(7))
"""For |r| up to pi / 4: 7e-12 and 4e-13."""


def _double(v: Vectors) -> Vectors:
    wide = Vectors(v.f, "double", v.lanes)
    suffix = f"{'' if v.lanes == 1 else f'v{v.lanes}'}f64"
    for name, count in (*INTRINSICS.items(), ("fma", 3)):
        v.f.declare(f"declare {wide.type} @llvm.{name}.{suffix}({', '.join([wide.type] * count)})")
    return wide


def _in_double(make: Callable[..., str]) -> Callable[..., str]:
    """A function of doubles as one of floats."""

    def single(v: Vectors, *xs: str) -> str:
        wide = _double(v)
        held = [v.f.let(f"fpext {v.type} {x} to {wide.type}") for x in xs]
        return v.f.let(f"fptrunc {wide.type} {make(wide, *held)} to {v.type}")

    return single


def _series(v: Vectors, x: str, terms: Sequence[float]) -> str:
    return v.polynomial(x, terms)


def _power_of_two(v: Vectors, n: str) -> str:
    """Of whole numbers from -1022 to 1023."""
    whole = v.f.let(f"fptosi {v.type} {n} to {v.integers}")
    return v.of_bits(v.integer("shl", v.integer("add", whole, v.whole(1023)), v.whole(52)))


def _clamped(v: Vectors, x: str, low: float, high: float) -> str:
    return v.call("maxnum", v.call("minnum", x, v.constant(high)), v.constant(low))


def _or_nan(v: Vectors, found: str, *xs: str) -> str:
    """NaN where an operand is NaN."""
    for x in xs:
        found = v.select(v.compare("uno", x, x), x, found)
    return found


def _exp(v: Vectors, x: str) -> str:
    """Far beyond what float32 holds it is as large, or as small, as a double may be."""
    held = _clamped(v, x, -700.0, 700.0)
    n = v.call("rint", v.two("fmul", held, v.constant(1.0 / math.log(2.0))))
    r = v.fma(n, v.constant(-LN2[0]), held)
    r = v.fma(n, v.constant(-LN2[1]), r)
    return v.two("fmul", _series(v, r, EXP_TERMS), _power_of_two(v, n))


def _log(v: Vectors, x: str) -> str:
    """Of doubles that are not subnormal; of 0 it is some -709, of infinity some 710, of negative numbers nonsense."""
    bits = v.bits(x)
    above = v.integer("sub", bits, v.whole(0x3FE6A09E667F3BCD))  # the bits of sqrt(1/2)
    n = v.f.let(f"sitofp {v.integers} {v.integer('ashr', above, v.whole(52))} to {v.type}")
    low = v.integer("and", above, v.whole(0x000FFFFFFFFFFFFF))
    m = v.of_bits(v.integer("add", low, v.whole(0x3FE6A09E667F3BCD)))
    s = v.two("fdiv", v.two("fsub", m, v.constant(1.0)), v.two("fadd", m, v.constant(1.0)))
    series = v.two("fmul", s, _series(v, v.two("fmul", s, s), LOG_TERMS))
    return v.fma(n, v.constant(LN2[0]), v.fma(n, v.constant(LN2[1]), series))


def _log_or_special(v: Vectors, x: str) -> str:
    found = v.select(v.compare("oeq", x, v.constant(float("inf"))), x, _log(v, x))
    found = v.select(v.compare("oeq", x, v.constant(0.0)), v.constant(float("-inf")), found)
    return v.select(v.compare("uge", x, v.constant(0.0)), _or_nan(v, found, x), v.constant(float("nan")))


def _pow(v: Vectors, x: str, y: str) -> str:
    """As C has it: 1 to any power is 1, anything to the power 0 is 1, a negative number has whole powers."""
    zero, one = v.constant(0.0), v.constant(1.0)
    size = v.call("fabs", x)
    found = _exp(v, v.two("fmul", y, _log(v, v.call("maxnum", size, v.constant(1e-300)))))
    infinite = v.constant(float("inf"))
    rises = v.compare("ogt", y, zero)
    found = v.select(v.compare("oeq", size, zero), v.select(rises, zero, infinite), found)
    found = v.select(v.compare("oeq", size, infinite), v.select(rises, infinite, zero), found)
    y_size = v.call("fabs", y)
    endless = v.compare("oeq", y_size, infinite)
    above = v.compare("ogt", size, one)
    to_endless = v.select(_same_bool(v, above, rises), infinite, zero)
    to_endless = v.select(v.compare("oeq", size, one), one, to_endless)
    found = v.select(endless, to_endless, found)
    whole = v.compare("oeq", v.call("floor", y), y)
    half = v.two("fmul", y, v.constant(0.5))
    even = v.compare("oeq", v.call("floor", half), half)
    negative = v.f.let(f"icmp slt {v.integers} {v.bits(x)}, {v.whole(0)}")  # -0 as well
    flipped = v.f.let(f"fneg {v.type} {found}")
    odd = v.f.let(f"select {v.mask} {even}, {v.mask} {_all(v, False)}, {v.mask} {whole}")
    turns = v.f.let(f"and {v.mask} {negative}, {odd}")
    found = v.select(turns, flipped, found)
    below = v.compare("olt", x, zero)
    fraction = v.f.let(f"xor {v.mask} {whole}, {_all(v, True)}")
    finite = v.compare("one", size, infinite)
    wrong = v.f.let(f"and {v.mask} {v.f.let(f'and {v.mask} {below}, {fraction}')}, {finite}")
    found = v.select(wrong, v.constant(float("nan")), found)
    found = _or_nan(v, found, x, y)
    found = v.select(v.compare("oeq", x, one), one, found)
    return v.select(v.compare("oeq", y, zero), one, found)


def _all(v: Vectors, value: bool) -> str:
    text = "true" if value else "false"
    return text if v.lanes == 1 else f"<{', '.join([f'i1 {text}'] * v.lanes)}>"


def _same_bool(v: Vectors, a: str, b: str) -> str:
    different = v.f.let(f"xor {v.mask} {a}, {b}")
    return v.f.let(f"xor {v.mask} {different}, {_all(v, True)}")


def _expm1(v: Vectors, x: str) -> str:
    small = v.compare("olt", v.call("fabs", x), v.constant(1e-4))
    series = v.two("fmul", x, _series(v, x, [1.0 / math.factorial(k + 1) for k in range(4)]))
    return _or_nan(v, v.select(small, series, v.two("fsub", _exp(v, x), v.constant(1.0))), x)


def _log1p(v: Vectors, x: str) -> str:
    """Of a small number by its series, so that no digit of it is lost in a sum with 1."""
    small = v.compare("olt", v.call("fabs", x), v.constant(1e-4))
    series = v.two("fmul", x, _series(v, x, [(-1.0) ** k / (k + 1) for k in range(5)]))
    return v.select(small, series, _log_or_special(v, v.two("fadd", x, v.constant(1.0))))


def _exp2(v: Vectors, x: str) -> str:
    return _or_nan(v, _exp(v, v.two("fmul", x, v.constant(math.log(2.0)))), x)


def _sinh(v: Vectors, x: str) -> str:
    """By expm1, which is exact near 0: sinh(x) = (e + e / (e + 1)) / 2 for x from 0 on."""
    e = _expm1(v, v.call("minnum", v.call("fabs", x), v.constant(200.0)))
    found = v.two("fmul", v.constant(0.5), v.two("fadd", e, v.two("fdiv", e, v.two("fadd", e, v.constant(1.0)))))
    negative = v.f.let(f"icmp slt {v.integers} {v.bits(x)}, {v.whole(0)}")
    return _or_nan(v, v.select(negative, v.f.let(f"fneg {v.type} {found}"), found), x)


def _cosh(v: Vectors, x: str) -> str:
    e = _exp(v, _clamped(v, x, -200.0, 200.0))
    found = v.two("fmul", v.constant(0.5), v.two("fadd", e, v.two("fdiv", v.constant(1.0), e)))
    return _or_nan(v, found, x)


def _circle(v: Vectors, x: str) -> tuple[str, str]:
    """sin(x) and cos(x): x = n pi/2 + r, and n says which of the two series of r it is, and with what sign. Beyond
    some 1e15, where neighbouring floats are more than a turn apart, it is a sine of something near x."""
    n = v.call("rint", v.two("fmul", x, v.constant(2.0 / math.pi)))
    r = v.fma(n, v.constant(-HALF_PI[0]), x)
    r = v.fma(n, v.constant(-HALF_PI[1]), r)
    r = v.fma(n, v.constant(-HALF_PI[2]), r)
    square = v.two("fmul", r, r)
    sin = v.two("fmul", r, _series(v, square, SIN_TERMS))
    cos = _series(v, square, COS_TERMS)
    whole = v.f.let(f"fptosi {v.type} {_clamped(v, n, -9e18, 9e18)} to {v.integers}")

    def bit(n: str, value: int) -> str:
        return v.f.let(f"icmp ne {v.integers} {v.integer('and', n, v.whole(value))}, {v.whole(0)}")

    swapped = bit(whole, 1)
    found = []
    for one, other, turned in ((sin, cos, whole), (cos, sin, v.integer("add", whole, v.whole(1)))):
        chosen = v.select(swapped, other, one)
        found.append(v.select(bit(turned, 2), v.f.let(f"fneg {v.type} {chosen}"), chosen))
    wrong = v.two("fsub", x, x)  # NaN of what is not finite
    return v.two("fadd", found[0], wrong), v.two("fadd", found[1], wrong)


exp2 = _in_double(_exp2)
expm1 = _in_double(_expm1)
log1p = _in_double(_log1p)
pow = _in_double(_pow)
sinh = _in_double(_sinh)
cosh = _in_double(_cosh)
sin = _in_double(lambda v, x: _circle(v, x)[0])
cos = _in_double(lambda v, x: _circle(v, x)[1])
tan = _in_double(lambda v, x: v.two("fdiv", *_circle(v, x)))
