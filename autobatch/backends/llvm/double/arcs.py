"""asin, acos, atan and atan2: an angle that is known, and the arc of a small number.

    atan(a / b)  =  pi/4 + atan((a - b) / (a + b))
    asin(x)      =  pi/2 - 2 asin(sqrt((1 - x) / 2))

The numbers that remain are kept as pairs. The structure is that of Sun's fdlibm, `s_atan.c` and `e_asin.c`.
"""

from __future__ import annotations

from autobatch.backends.llvm.double.circle import HALF_PI
from autobatch.backends.llvm.double.exponentials import or_nan
from autobatch.backends.llvm.double.pairs import Pair, choose, exact_sum, exactly, quick_sum
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Real,
    absolute,
    fma,
    polynomial,
    sqrt,
    where,
    with_sign_of,
)

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
