"""Elementary functions of doubles, as formulas: to two units in the last place, for all numbers there are.

    pairs          numbers of twice the digits: sums of two doubles
    exponentials   exp, exp2, expm1, sinh, cosh, tanh, logistic
    logarithms     log, log1p, powers, asinh, acosh, atanh
    circle         sin, cos, tan, and angles of any size less whole quarter turns
    arcs           asin, acos, atan, atan2

exp and what is made of it: x = n ln(2) + r, so that e^x = 2^n e^r. `expm1` of r is kept as a pair, so that sums and
quotients with it round once. Reduction and structure: J.-M. Muller, "Elementary Functions" (3rd edition, 2016), chapter
11; W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980).

Polynomials without a comment were fitted by interpolation at Chebyshev's points, which is within little of the best
fit (L. N. Trefethen, "Approximation Theory and Approximation Practice", 2013, chapter 16), with 400 bits. What the
functions reach is measured by `python -m benchmarks.ulp`. Error functions, lgamma and digamma are in
`float64_special.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    IntegerVector,
    Mask,
    Real,
    absolute,
    clamped,
    floor,
    fma,
    if_any,
    least,
    nearest,
    polynomial,
    power_of_two,
    scaled,
    sqrt,
    table,
    toward_zero,
    where,
    where_whole,
    with_sign_of,
)
from autobatch.backends.llvm.formulas import sqrt as root

# ---- pairs
#
# Numbers of twice the digits: the sum of two floats, of which the second is at most half a unit of the first.
#
# The building blocks are those of T. J. Dekker, "A floating-point technique for extending the available precision"
# (1971) and D. E. Knuth, "The Art of Computer Programming", volume 2, 4.2.2; with a fused multiply-add the error of a
# product is one operation. Bounds are in M. Joldes, J.-M. Muller, V. Popescu, "Tight and rigorous error bounds for
# basic building blocks of double-word arithmetic" (2017).


@dataclass(frozen=True)
class Pair:
    high: Real
    low: Real

    def __add__(self, other: Pair) -> Pair:
        """Of numbers that do not cancel."""
        high = exact_sum(self.high, other.high)
        return quick_sum(high.high, high.low + (self.low + other.low))

    def __mul__(self, other: Pair) -> Pair:
        high = exact_product(self.high, other.high)
        return quick_sum(high.high, high.low + fma(self.high, other.low, self.low * other.high))

    def __truediv__(self, other: Pair) -> Pair:
        return quick_sum(*_quotient(self, other))

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)

    def plus(self, x: Real | float) -> Pair:
        high = exact_sum(self.high, x)
        return quick_sum(high.high, high.low + self.low)

    def times(self, x: Real | float) -> Pair:
        high = exact_product(self.high, self.high.read(x))
        return quick_sum(high.high, fma(self.low, x, high.low))

    def by_power_of_two(self, x: Real | float) -> Pair:
        """Times a number without digits behind its first one."""
        return Pair(self.high * x, self.low * x)

    def one(self) -> Real:
        return self.high + self.low


def exact_sum(a: Real, b: Real | float) -> Pair:
    total = a + b
    second = total - a
    return Pair(total, (a - (total - second)) + (a.read(b) - second))


def quick_sum(a: Real, b: Real) -> Pair:
    """Where the first is the larger one."""
    total = a + b
    return Pair(total, b - (total - a))


def exact_product(a: Real, b: Real) -> Pair:
    product = a * b
    return Pair(product, fma(a, b, -product))


def exactly(x: Real) -> Pair:
    return Pair(x, x.like(0.0))


def quotient(a: Pair, b: Pair) -> Real:
    """Rounded nearly once."""
    high, low = _quotient(a, b)
    return high + low


def _quotient(a: Pair, b: Pair) -> tuple[Real, Real]:
    high = a.high / b.high
    left = fma(-high, b.high, a.high) + fma(-high, b.low, a.low)
    return high, left / b.high


def sqrt_of_pair(x: Pair) -> Pair:
    """Of positive numbers; of zero it is zero."""
    high = root(x.high)
    low = (fma(-high, high, x.high) + x.low) / (high + high)
    return quick_sum(high, where(high.equals(0.0), 0.0, low))


def choose(mask: Mask, a: Pair, b: Pair) -> Pair:
    return Pair(where(mask, a.high, b.high), where(mask, a.low, b.low))


EXPM1 = (
    0.5,
    0.16666666666666666,
    0.04166666666666668,
    0.008333333333333333,
    0.001388888888887897,
    0.00019841269841263228,
    2.480158733672408e-05,
    2.7557319247406586e-06,
    2.7557262977857477e-07,
    2.5052070893516935e-08,
    2.0918249029237566e-09,
    1.608670213477445e-10,
)
"""expm1(r) = r + r^2 P(r) for |r| <= ln(2) / 2: to 2^-56."""
LOG2_E = 1.4426950408889634
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
"""ln(2), and what the nearest double lacks."""
LN2_SHORT = (0.6931471805582987, 1.6465949582897082e-12)
"""The same, beginning with 36 bits: products with exponents are exact."""
LEAST, MOST = -746.0, 710.0
"""Beyond them e^x is zero and infinite."""


@dataclass(frozen=True)
class ReducedExponent:
    """2^n (1 + `rest`)."""

    n: Real
    rest: Pair

    def one(self) -> Real:
        held = quick_sum(self.rest.high.like(1.0), self.rest.high)
        return scaled(held.high + (held.low + self.rest.low), self.n.whole())

    def pair(self) -> Pair:
        """For n of normal numbers."""
        held = quick_sum(self.rest.high.like(1.0), self.rest.high)
        return quick_sum(held.high, held.low + self.rest.low).by_power_of_two(power_of_two(self.n.whole()))

    def minus_one(self) -> Pair:
        """For n of at most 64, where it does not matter any more how far off the 1 is."""
        power = power_of_two(clamped(self.n, -1000.0, 64.0).whole())
        return exact_sum(power, -1.0).plus(self.rest.high * power).plus(self.rest.low * power)


def rest_of(high: Real, low: Real) -> Pair:
    """expm1 of `high` + `low`, at most ln(2) / 2."""
    return quick_sum(high, fma(high * high, polynomial(high, EXPM1), fma(low, high, low)))


def reduced(x: Real, low: Real | None = None) -> ReducedExponent:
    """Of numbers between -746 and 710, to which a small one may be added."""
    n = nearest(x * LOG2_E)
    exact = fma(n, -LN2_SHORT[0], x)
    high = fma(n, -LN2_SHORT[1], exact)
    rest = fma(n, -LN2_SHORT[1], exact - high)
    held = Pair(high, rest) if low is None else exact_sum(high, rest + low)
    return ReducedExponent(n, rest_of(held.high, held.low))


def or_nan(x: Real, found: Real) -> Real:
    return where(x.is_nan(), x, found)


def exp(x: Real) -> Real:
    """Rounded some 0.9 units off at most; cheaper than by pairs."""
    held = clamped(x, LEAST, MOST)
    n = nearest(held * LOG2_E)
    r = fma(n, -LN2[1], fma(n, -LN2[0], held))
    return or_nan(x, scaled(fma(r * r, polynomial(r, EXPM1), r) + 1.0, n.whole()))


def exp2(x: Real) -> Real:
    held = clamped(x, -1080.0, 1024.0)
    n = nearest(held)
    r = held - n
    high = r * LN2[0]
    return or_nan(x, ReducedExponent(n, rest_of(high, fma(r, LN2[1], fma(r, LN2[0], -high)))).one())


def expm1(x: Real) -> Real:
    parts = reduced(clamped(x, -60.0, MOST))
    found = where(parts.n > 64.0, parts.one(), parts.minus_one().one())
    return or_nan(x, with_sign_of(found, x))


def sinh(x: Real) -> Real:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|). From 40 on it is e^|x| / 2."""
    size = least(absolute(x), 720.0)
    e = reduced(least(size, 40.0)).minus_one()
    usual = (e + e / e.plus(1.0)).one() * 0.5
    return or_nan(x, with_sign_of(where(size > 40.0, _half_exp(size), usual), x))


def cosh(x: Real) -> Real:
    size = least(absolute(x), 720.0)
    e = reduced(least(size, 40.0)).pair()
    usual = (e + exactly(x.like(1.0)) / e).one() * 0.5
    return or_nan(x, where(size > 40.0, _half_exp(size), usual))


def _half_exp(size: Real) -> Real:
    parts = reduced(size)
    return ReducedExponent(parts.n - 1.0, parts.rest).one()


def tanh(x: Real) -> Real:
    """e / (e + 2) with e = expm1(2 |x|). From 22 on it is 1."""
    size = least(absolute(x), 22.0)
    e = reduced(size + size).minus_one()
    return or_nan(x, with_sign_of(quotient(e, e.plus(2.0)), x))


def logistic(x: Real) -> Real:
    """1 / (1 + e) or e / (1 + e), with e = exp(-|x|): nothing overflows. Below -40 it is exp(x)."""
    parts = reduced(-least(absolute(x), -LEAST))
    e = ReducedExponent(clamped(parts.n, -100.0, 0.0), parts.rest).pair()
    one = exactly(x.like(1.0))
    usual = quotient(choose(x < 0.0, e, one), e.plus(1.0))
    return or_nan(x, where(x < -40.0, parts.one(), usual))


# ---- logarithms
#
# log and what is made of it: x = 2^n m with m between sqrt(1/2) and sqrt(2), and the series of s = (m - 1) / (m + 1).
#
# `log` follows the arrangement of Sun's fdlibm, `e_log.c`. Powers, and logarithms of sums, take the logarithm as a pair
# with some 66 digits.


LOG = (
    0.6666666666666666,
    0.40000000000000885,
    0.28571428570799784,
    0.22222222392581045,
    0.18181795547521137,
    0.15386244737621665,
    0.13268638369266825,
    0.13088034850927555,
)
"""log((1 + s) / (1 - s)) = 2 s + s^3 P(s^2)."""
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
TWO_FIFTHS = (0.4, -2.2204460492503132e-17)
LOG_BEHIND = (
    0.2857142857142857,
    0.22222222222222215,
    0.18181818181823933,
    0.15384615382614494,
    0.13333333681627674,
    0.11764671876824287,
    0.1052826122626766,
    0.09459258405549681,
    0.09836818483019942,
)
"""log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + 2/5 s^5 + s^7 P(s^2)."""
ROOT_OF_HALF = 0x3FE6A09E00000000
"""Bits of a number near sqrt(1/2)."""
TINY = 2.0**-1022
MOST_POWER = 1e25
"""Larger ones of any number but 1 are zero or infinite."""


def split(x: Real) -> tuple[IntegerVector, Real]:
    """n and m of positive numbers."""
    small = x < TINY
    above = where(small, x * 2.0**54, x).bits() - ROOT_OF_HALF
    n = above >> 52
    m = ((above & 0x000FFFFFFFFFFFFF) + ROOT_OF_HALF).bits_as_float()
    return n - where(small, x.like(54.0), 0.0).whole(), m


def or_special(x: Real, found: Real) -> Real:
    """What logarithms are of zero, of infinity, of negative numbers and NaN."""
    found = where(x.equals(INFINITY), x, found)
    found = where(x.equals(0.0), -INFINITY, found)
    return or_nan(x, where(x < 0.0, NAN, found))


def log(x: Real) -> Real:
    return or_special(x, _log(x, None))


def _log(x: Real, low: Real | None) -> Real:
    """Of positive numbers. `low`: what is to be added to x."""
    exponent, m = split(x)
    n, f = exponent.as_float(), m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    rest = n * LN2_SHORT[1] if low is None else fma(n, LN2_SHORT[1], low / x)
    rest = fma(s, fma(z, polynomial(z, LOG), half), rest)
    return fma(n, LN2_SHORT[0], f - (half - rest))


def log_of(x: Pair) -> Pair:
    """Of positive numbers, to 2^-66."""
    exponent, m = split(x.high)
    n = exponent.as_float()
    f = quick_sum(m - 1.0, scaled(x.low, (-n).whole()))
    s = f / exact_sum(m.like(2.0), f.high).plus(f.low)
    z = s * s
    series = exact_sum(z.high * polynomial(z.high, LOG_BEHIND), TWO_FIFTHS[0]).plus(TWO_FIFTHS[1])
    series = Pair(z.high.like(TWO_THIRDS[0]), z.high.like(TWO_THIRDS[1])) + series * z
    of_m = s.by_power_of_two(2.0) + (s * z) * series
    whole = exact_sum(n * LN2_SHORT[0], n * LN2_SHORT[1])
    return whole + of_m


def log1p(x: Real) -> Real:
    """Where 1 + x is 1 it is x."""
    found = _log1p_of(exactly(x))
    found = where(absolute(x) < 2.0**-54, x, found)
    found = where(x.equals(INFINITY), x, found)
    found = where(x.equals(-1.0), -INFINITY, found)
    return or_nan(x, where(x < -1.0, NAN, found))


def pow(x: Real, y: Real) -> Real:
    """exp(y log |x|), with the logarithm and the product as pairs."""
    product = log_of(exactly(absolute(x))).times(clamped(y, -MOST_POWER, MOST_POWER))
    inside = absolute(product.high) < 1000.0
    exponent = clamped(product.high, LEAST, MOST)
    return power_or_special(x, y, reduced(exponent, where(inside, product.low, 0.0)).one())


def power_or_special(x: Real, y: Real, found: Real) -> Real:
    """As C has it: 1 to any power is 1, anything to the power 0 is 1, a negative number has whole powers. `found`: of
    the size of x, where that and y are numbers."""
    size, rises = absolute(x), y > 0.0
    found = where(size.equals(0.0), where(rises, 0.0, x.like(INFINITY)), found)
    found = where(size.equals(INFINITY), where(rises, x.like(INFINITY), 0.0), found)
    to_endless = where((size > 1.0) ^ rises, 0.0, x.like(INFINITY))
    to_endless = where(size.equals(1.0), 1.0, to_endless)
    found = where(absolute(y).equals(INFINITY), to_endless, found)
    whole, half = floor(y).equals(y), y * 0.5
    odd = whole & floor(half).is_("une", half)
    found = where(x.is_negative() & odd, -found, found)
    found = where((x < 0.0) & ~whole & size.is_("one", INFINITY), NAN, found)
    found = or_nan(y, or_nan(x, found))
    return where(x.equals(1.0) | y.equals(0.0), 1.0, found)


def asinh(x: Real) -> Real:
    """log(|x| + sqrt(x^2 + 1)); for small numbers log(1 + t) with t = |x| + x^2 / (1 + sqrt(x^2 + 1))."""
    size = absolute(x)
    large, tiny = size > 2.0**30, size < 2.0**-28
    held = where(large | tiny, 1.0, size)
    square = exact_product(held, held)
    root = sqrt_of_pair(square.plus(1.0))
    found = _log1p_of(exactly(held) + square / root.plus(1.0))
    found = where(large, log(size) + LN2[0], where(tiny, size, found))
    return or_nan(x, with_sign_of(found, x))


def acosh(x: Real) -> Real:
    """log(1 + t) with t = (x - 1) + sqrt((x - 1) (x + 1))."""
    large = x > 2.0**30
    held = where(large, 2.0, x)
    above = exact_sum(held, -1.0)
    root = sqrt_of_pair(above * exact_sum(held, 1.0))
    found = _log1p_of(above + root)
    found = where(large, log(x) + LN2[0], found)
    found = where(x.equals(1.0), 0.0, found)
    return or_nan(x, where(x < 1.0, NAN, found))


def atanh(x: Real) -> Real:
    """log(1 + t) / 2 with t = 2 |x| / (1 - |x|)."""
    size = absolute(x)
    tiny = size < 2.0**-28
    held = where((size >= 1.0) | tiny, 0.5, size)
    quotient = exactly(held + held) / exact_sum(held.like(1.0), -held)
    found = where(tiny, size, _log1p_of(quotient) * 0.5)
    found = where(size.equals(1.0), INFINITY, found)
    return or_nan(x, where(size > 1.0, NAN, with_sign_of(found, x)))


def _log1p_of(t: Pair) -> Real:
    """Of numbers above -1 and at least 2^-54 in size."""
    total = t.plus(1.0)
    return _log(total.high, total.low)


# ---- circle
#
# sin, cos and tan: x = n pi/2 + r, and n says which series of r it is, and with what sign.
#
# Up to 2^30 the product of n is taken away in three parts (W. J. Cody, W. Waite, "Software Manual for the Elementary
# Functions", 1980). Beyond, only those digits of 2/pi are multiplied that reach what is behind the quarter turns (M. H.
# Payne, R. N. Hanek, "Radian reduction for trigonometric functions", 1983), in integers. No float is so near to a
# multiple of pi/2 that the digits would not do: J.-M. Muller, "Elementary Functions" (3rd edition, 2016), section 11.3.


SIN = (
    -0.16666666666666666,
    0.008333333333333331,
    -0.00019841269841264821,
    2.7557319219150783e-06,
    -2.5052106167335705e-08,
    1.6058521349954986e-10,
    -7.586094789672621e-13,
)
"""sin(r) = r + r^3 P(r^2), up to pi/4."""
COS = (
    0.041666666666666664,
    -0.0013888888888888887,
    2.480158730158451e-05,
    -2.755731922129809e-07,
    2.0876755754879594e-09,
    -1.1470455178216906e-11,
    4.745537017319258e-14,
)
"""cos(r) = 1 - r^2 / 2 + r^4 P(r^2)."""
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
"""pi/2, in three doubles."""
TWO_OVER_PI = 0.6366197723675814
LARGE = 2.0**30
DIGITS = (
    0x0000000000000000,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)
"""64 zeros, then digits of 2/pi: as many as any double needs."""


@dataclass(frozen=True)
class Angle:
    """n pi/2 + r; of n the last bits matter."""

    n: IntegerVector
    r: Pair


def angle(x: Real) -> Angle:
    size = absolute(x)
    large = (size > LARGE) & size.is_("one", float("inf"))
    held = where(large, 0.0, x)
    n = nearest(held * TWO_OVER_PI)
    exact = fma(n, -HALF_PI[0], held)
    second = exact_product(n, n.like(HALF_PI[1]))
    high = exact_sum(exact, -second.high)
    r = quick_sum(high.high, high.low - fma(n, HALF_PI[2], second.low))
    usual = n.whole().bits_as_float()  # integers in the dress of floats, as `if_any` takes them
    whole, first, rest = if_any(large, [usual, r.high, r.low], lambda: _of_large(x))
    return Angle(whole.bits(), Pair(first, rest))


def _of_large(x: Real) -> list[Real]:
    """53 digits of x times 192 of 2/pi: those of which the product has digits within a turn."""
    bits = x.bits()
    digits = (bits & 0x000FFFFFFFFFFFFF) | 0x0010000000000000
    shift = (bits.logical(52) & 0x7FF) - (1023 + 52)  # x is digits 2^shift
    begin = where_whole(shift.is_("slt", 2 - 64), 0, shift + (64 - 2))  # two bits of quarter turns count
    words = [table("two_over_pi", DIGITS, begin.logical(6) + k) for k in range(4)]
    a, b, c = (words[k].followed_by(words[k + 1], begin & 63) for k in range(3))
    middle = digits * b
    low = middle + digits.times_high(c)
    carry = where_whole(low.is_("ult", middle), 1, 0)
    high = digits * a + digits.times_high(b) + carry
    n = (high + (1 << 61)).logical(62)
    r = _fraction(high - (n << 62), low) * Pair(x.like(HALF_PI[0]), x.like(HALF_PI[1]))
    negative = x.is_negative()
    n = where_whole(negative, n.like(0) - n, n)
    return [n.bits_as_float(), where(negative, -r.high, r.high), where(negative, -r.low, r.low)]


def _fraction(high: IntegerVector, low: IntegerVector) -> Pair:
    """A signed number of 128 bits, of which 126 are behind the point: three floats of 43, 43 and 42 bits."""
    first = (high >> 21).as_float() * 2.0**-41
    second = (((high & 0x1FFFFF) << 22) | low.logical(42)).as_float() * 2.0**-84
    third = (low & 0x3FFFFFFFFFF).as_float() * 2.0**-126
    total = exact_sum(first, second)
    return quick_sum(total.high, total.low + third)


def _sin_and_cos(r: Pair) -> tuple[Pair, Pair]:
    """Of angles up to pi/4."""
    x = r.high
    z = x * x
    # sin(x + y) = sin(x) + y cos(x), cos(x + y) = cos(x) - y sin(x), for what a pair adds to a float
    sin = quick_sum(x, fma(x * z, polynomial(z, SIN), fma(r.low * z, -0.5, r.low)))
    half = exact_product(x, x * 0.5)
    one = quick_sum(x.like(1.0), -half.high)
    rest = fma(z * z, polynomial(z, COS), fma(-x, r.low, -half.low))
    return sin, quick_sum(one.high, one.low + rest)


def _quarter(at: Angle) -> tuple[Pair, Pair, Mask]:
    sin, cos = _sin_and_cos(at.r)
    return sin, cos, at.n.has(1)


def or_nan_of_infinity(x: Real, found: Real) -> Real:
    return found + (x - x)


def sin(x: Real) -> Real:
    at = angle(x)
    sin, cos, odd = _quarter(at)
    found = choose(odd, cos, sin).one()
    found = where(at.n.has(2), -found, found)
    return where(x.equals(0.0), x, or_nan_of_infinity(x, found))


def cos(x: Real) -> Real:
    at = angle(x)
    sin, cos, odd = _quarter(at)
    found = choose(odd, sin, cos).one()
    return or_nan_of_infinity(x, where((at.n + 1).has(2), -found, found))


def tan(x: Real) -> Real:
    sin, cos, odd = _quarter(angle(x))
    found = quotient(choose(odd, -cos, sin), choose(odd, sin, cos))
    return where(x.equals(0.0), x, or_nan_of_infinity(x, found))


# ---- arcs
#
# asin, acos, atan and atan2: an angle that is known, and the arc of a small number.
#
#     atan(a / b)  =  pi/4 + atan((a - b) / (a + b))
#     asin(x)      =  pi/2 - 2 asin(sqrt((1 - x) / 2))
#
# The numbers that remain are kept as pairs. The structure is that of Sun's fdlibm, `s_atan.c` and `e_asin.c`.


ATAN = (
    -0.3333333333333333,
    0.19999999999999993,
    -0.1428571428571149,
    0.11111111110751482,
    -0.0909090906681608,
    0.07692306729194896,
    -0.06666641869131183,
    0.058819230561140225,
    -0.05258020272656758,
    0.04719259188242093,
    -0.04103887546862687,
    0.030622995553735516,
    -0.013905374533113234,
)
"""atan(x) = x + x^3 P(x^2), up to sqrt(2) - 1."""
ASIN = (
    0.16666666666666666,
    0.07500000000000119,
    0.04464285714255019,
    0.030381944475693704,
    0.022372157435623815,
    0.017352816768546473,
    0.013963775787848137,
    0.011566511821890942,
    0.00962140274734483,
    0.009322101501082774,
    0.0030350071727267623,
    0.019579201619744684,
    -0.019277545928584557,
    0.02963502626354855,
)
"""asin(x) = x + x^3 P(x^2), up to 1/2."""
TAN_OF_EIGHTH = 0.41421356237309503


def _quarters(like: Real, count: Real | float) -> Pair:
    """pi/4, as often as one of 0 to 4."""
    return Pair(like.read(count) * (HALF_PI[0] * 0.5), like.read(count) * (HALF_PI[1] * 0.5))


def _arc(above: Real, below: Real) -> Pair:
    """atan of a quotient of numbers that are not negative, and at most 1."""
    turned = above > below * TAN_OF_EIGHTH
    a = choose(turned, exact_sum(above, -below), exactly(above))
    b = choose(turned, exact_sum(above, below), exactly(below))
    q = a / b
    z = q.high * q.high
    arc = quick_sum(q.high, fma(q.high * z, polynomial(z, ATAN), fma(-z, q.low, q.low)))
    offset = _quarters(above, where(turned, above.like(1.0), 0.0))
    total = exact_sum(offset.high, arc.high)
    return quick_sum(total.high, total.low + (offset.low + arc.low))


def atan(x: Real) -> Real:
    size = absolute(x)
    steep = size > 1.0
    least = where(size > 2.0**60, 2.0**60, size)
    arc = _arc(where(steep, 1.0, size), where(steep, least, 1.0))
    quarter = _quarters(x, 2.0)
    rest = exact_sum(quarter.high, -arc.high)
    other = rest.high + (rest.low + (quarter.low - arc.low))
    return or_nan(x, with_sign_of(where(steep, other, arc.one()), x))


def atan2(y: Real, x: Real) -> Real:
    """As C has it. Numbers near the ends of the range are brought to its middle; a quotient beyond 2^60 is a quarter
    turn."""
    along, up = absolute(x), absolute(y)
    steep = up > along
    above, below = where(steep, along, up), where(steep, up, along)
    factor = where(below > 2.0**1000, below.like(2.0**-60), where(below < 2.0**-900, below.like(2.0**100), 1.0))
    both = below.equals(INFINITY) & above.equals(INFINITY)
    above, below = above * factor, below * factor
    above, below = where(both, 1.0, above), where(both, 1.0, below)
    none = below.equals(0.0)
    flat = above < below * 2.0**-200  # the quotient alone, which may be subnormal
    below = where(none, 1.0, below)
    arc = _arc(where(flat, 0.0, above), where(flat, 1.0, below))
    arc = choose(flat, exactly(above / below), arc)
    back = x.is_negative()
    # steep: pi/2 -+ arc; else arc or pi - arc
    turned = steep ^ back
    part = choose(turned, -arc, arc)
    count = where(steep, x.like(2.0), where(back, x.like(4.0), 0.0))
    offset = _quarters(x, count)
    total = exact_sum(offset.high, part.high)
    found = total.high + (total.low + (offset.low + part.low))
    return or_nan(x, or_nan(y, with_sign_of(found, y)))


def _series(x: Real, z: Real) -> Real:
    """asin(x) - x."""
    return x * z * polynomial(z, ASIN)


def asin(x: Real) -> Real:
    size = absolute(x)
    usual = fma(x * (x * x), polynomial(x * x, ASIN), x)
    arc = _far(size)
    quarter = exact_sum(arc.high.like(HALF_PI[0]), arc.high * -2.0)
    far = with_sign_of(quarter.high + (quarter.low + (HALF_PI[1] - arc.low * 2.0)), x)
    found = where(size <= 0.5, usual, far)
    return or_nan(x, where(size > 1.0, NAN, where(x.equals(0.0), x, found)))


def acos(x: Real) -> Real:
    size = absolute(x)
    arc = _far(size)
    rest = exact_sum(x.like(HALF_PI[0]), -x)
    usual = rest.high + (rest.low + (HALF_PI[1] - _series(x, x * x)))
    half = exact_sum(x.like(HALF_PI[0]), -arc.high)
    behind = (half.high + (half.low + (HALF_PI[1] - arc.low))) * 2.0
    far = where(x < 0.0, behind, arc.one() * 2.0)
    return or_nan(x, where(size > 1.0, NAN, where(size <= 0.5, usual, far)))


def _far(size: Real) -> Pair:
    """asin(sqrt((1 - x) / 2)) for x from 1/2 to 1."""
    z = fma(size, -0.5, 0.5)
    z = where(z > 0.25, 0.25, where(z > 0.0, z, 0.0))
    root = sqrt(z)
    low = where(z.equals(0.0), 0.0, fma(-root, root, z) / (root + root))
    return quick_sum(root, low + _series(root, z))


# ---- steps
#
# Functions of single digits: cube roots, remainders, neighbours. Of floats of either size.


Factor = TypeVar("Factor", Real, Pair)
CBRT_OFFSET = 715094163 << 32
"""What a third of a double's bits lacks of its cube root's, as in FreeBSD's `s_cbrt.c`: to 5 %."""


def cbrt(x: Real) -> Real:
    """Of doubles. Two steps of Halley's method from a third of the exponent, and one of Newton's with an exact rest."""
    size = absolute(x)
    small, large = size < 2.0**-1022, size > 2.0**1000
    held = size * where(small, size.like(2.0**54), where(large, size.like(2.0**-54), 1.0))
    t = (((held.bits().logical(32)).third() << 32) + CBRT_OFFSET).bits_as_float()
    for _ in range(2):
        cube = t * t * t
        t = t * ((cube + (held + held)) / ((cube + cube) + held))
    # t with 26 bits, whose square is exact
    short = (t.bits() & ~0x7FFFFFF).bits_as_float()
    square = short * short
    cube = short * square
    rest = (held - cube) - fma(short, square, -cube)
    t = short + rest / (3.0 * fma(short, t - short, square))
    found = with_sign_of(t * where(small, x.like(2.0**-18), where(large, x.like(2.0**18), 1.0)), x)
    plain = x.equals(0.0) | size.equals(INFINITY)
    return or_nan(x, where(plain, x, found))


def power_by_squares(x: Real, n: int) -> Real:
    base = x if n >= 0 else 1.0 / x
    return _by_squares(base, abs(n), lambda a, b: a * b)


def whole_power(x: Real, n: int) -> Real:
    """x^n of doubles, by squares that are pairs: every product of floats rounds. Where a pair overflows, or is zero, it
    is the product of floats."""
    one = exactly(x.like(1.0))
    found = _by_squares(exactly(x) if n >= 0 else one / exactly(x), abs(n), lambda a, b: a * b).one()
    return where(found.is_nan() | found.equals(0.0), power_by_squares(x, n), found)


def _by_squares(x: Factor, n: int, times: Callable[[Factor, Factor], Factor]) -> Factor:
    """For n from 1 on."""
    total: Factor | None = None
    while n:
        if n & 1:
            total = x if total is None else times(total, x)
        n >>= 1
        x = times(x, x) if n else x
    assert total is not None
    return total


def remainder(x: Real, y: Real) -> Real:
    """Of division that rounds toward zero, as C's `fmod`: exact."""
    a, b = absolute(x), absolute(y)
    wrong = a.equals(INFINITY) | b.equals(0.0)
    usual = _less_whole(a, b)
    far = (a / b).is_("oge", 2.0 ** (_digits(x) - 1)) & ~wrong
    (rest,) = if_any(far, [usual], lambda: [_long_division(a, b, far)])
    rest = where(b.equals(INFINITY), a, rest)
    return or_nan(y, or_nan(x, where(wrong, NAN, with_sign_of(rest, x))))


def _digits(x: Real) -> int:
    return 24 if x.v.bits_of_one == 32 else 53


def _less_whole(a: Real, b: Real) -> Real:
    """a - n b for the largest whole n, which fits a float. The quotient is rounded: it may be one too large."""
    rest = fma(-toward_zero(a / b), b, a)
    return where(rest < 0.0, rest + b, rest)


def _long_division(a: Real, b: Real, mask: Mask) -> Real:
    """By b 2^k, where quotients are short, until k is 0."""
    v, short = a.v, _digits(a) - 6
    most = 253 if v.bits_of_one == 32 else 2045  # of two factors that are floats
    slot = v.f.vector_slot(v.type)
    v.f.do(f"store {v.type} {where(mask, a, 0.0).text}, ptr {slot}")

    def held() -> Real:
        return Real(v, v.f.let(f"load {v.type}, ptr {slot}"))

    with v.f.whilst(lambda: (mask & (held() >= b)).any()):
        rest = held()
        k = _exponent(rest) - _exponent(b) - short
        k = where_whole(k.is_("sgt", most), most, where_whole(k.is_("sgt", 0), k, 0))
        by = scaled(b, k)
        found = where(mask & (rest >= b), _less_whole(rest, by), rest)
        v.f.do(f"store {v.type} {found.text}, ptr {slot}")
    return held()


def _exponent(x: Real) -> IntegerVector:
    """Of positive numbers, subnormal ones as well."""
    digits = _digits(x)
    small = x < 2.0 ** (-126 if digits == 24 else -1022)
    bits = where(small, x * 2.0**digits, x).bits().logical(digits - 1)
    return bits - where_whole(small, digits, 0)


def neighbour(x: Real, toward: Real) -> Real:
    """C's `nextafter`: the next float in the order of their bits."""
    bits, other = x.bits(), toward.bits()
    sign = 1 << (x.v.bits_of_one - 1)
    size, size_of_other = bits & (sign - 1), other & (sign - 1)
    opposite = (bits ^ other).is_("slt", 0)
    shrinks = size.is_("ugt", size_of_other) | opposite
    moved = where_whole(shrinks, bits - 1, bits + 1)
    moved = where_whole(size.is_("eq", 0), (other & -sign) | 1, moved)
    found = where(x.equals(toward), toward, moved.bits_as_float())
    return or_nan(toward, or_nan(x, found))
