"""log and what is made of it: x = 2^n m with m between sqrt(1/2) and sqrt(2), and the series of s = (m - 1) / (m + 1).

`log` follows the arrangement of Sun's fdlibm, `e_log.c`. Powers, and logarithms of sums, take the logarithm as a pair
with some 66 digits.
"""

from __future__ import annotations

from autobatch.backends.llvm.double.exponentials import LEAST, LN2, LN2_SHORT, MOST, or_nan, reduced
from autobatch.backends.llvm.double.pairs import (
    Pair,
    exact_product,
    exact_sum,
    exactly,
    quick_sum,
    sqrt,
)
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    IntegerVector,
    Real,
    absolute,
    clamped,
    floor,
    fma,
    polynomial,
    scaled,
    where,
    with_sign_of,
)

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
    root = sqrt(square.plus(1.0))
    found = _log1p_of(exactly(held) + square / root.plus(1.0))
    found = where(large, log(size) + LN2[0], where(tiny, size, found))
    return or_nan(x, with_sign_of(found, x))


def acosh(x: Real) -> Real:
    """log(1 + t) with t = (x - 1) + sqrt((x - 1) (x + 1))."""
    large = x > 2.0**30
    held = where(large, 2.0, x)
    above = exact_sum(held, -1.0)
    root = sqrt(above * exact_sum(held, 1.0))
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
