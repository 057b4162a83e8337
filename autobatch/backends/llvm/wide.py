"""Functions of float32 that are computed in double precision: short series are exact enough there.

A result is off by little more than its last rounding; `python -m benchmarks.ulp --full` measures all of them. What is
not here is computed as a double would be (`double/`).
"""

from __future__ import annotations

import math

from autobatch.backends.llvm.double.arcs import TAN_OF_EIGHTH
from autobatch.backends.llvm.double.circle import angle, or_nan_of_infinity
from autobatch.backends.llvm.double.exponentials import LN2, LOG2_E, or_nan
from autobatch.backends.llvm.double.logarithms import or_special
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Real,
    absolute,
    clamped,
    fma,
    in_double,
    least,
    nearest,
    polynomial,
    power_of_two,
    sqrt,
    where,
    with_sign_of,
)

LOG_TERMS = tuple(2.0 / (2 * k + 1) for k in range(7))
"""log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + 2/5 s^5 + ..., for |s| up to 0.172: what is left out is 3e-13 of it."""
EXP_TERMS = tuple(1.0 / math.factorial(k) for k in range(10))
"""For |r| up to ln(2) / 2: what is left out is 7e-12."""
EXPM1_TERMS = tuple(1.0 / math.factorial(k + 1) for k in range(4))
LOG1P_TERMS = tuple((-1.0) ** k / (k + 1) for k in range(5))
"""Up to 1e-4."""
SIN_TERMS = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(6))
COS_TERMS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(7))
"""For |r| up to pi / 4: 7e-12 and 4e-13."""
ATAN = (
    -0.33333333333265697,
    0.1999999994953061,
    -0.14285708076608974,
    0.11110818413358031,
    -0.09084078141663537,
    0.07604579486852303,
    -0.06026298394701879,
    0.03293875797470985,
)
"""atan(x) = x + x^3 P(x^2), up to sqrt(2) - 1: 2e-12."""
ASIN = (
    0.1666666666549084,
    0.07500000600759216,
    0.04464235707939134,
    0.030397671953511674,
    0.022131964555376638,
    0.0193093461897726,
    0.005433409887231671,
    0.02931732560480542,
)
"""asin(x) = x + x^3 P(x^2), up to 1/2: 8e-11."""
ROOT_OF_HALF = 0x3FE6A09E667F3BCD
"""The bits of sqrt(1/2)."""


def exp_of_double(x: Real) -> Real:
    """Far beyond what float32 holds it is as large, or as small, as a double may be."""
    held = clamped(x, -700.0, 700.0)
    n = nearest(held * LOG2_E)
    r = fma(n, -LN2[1], fma(n, -LN2[0], held))
    return polynomial(r, EXP_TERMS) * power_of_two(n.whole())


def _log(x: Real) -> Real:
    """Of doubles that are not subnormal; of 0 it is some -709, of infinity some 710, of negative numbers nonsense."""
    above = x.bits() - ROOT_OF_HALF
    n = (above >> 52).as_float()
    m = ((above & 0x000FFFFFFFFFFFFF) + ROOT_OF_HALF).bits_as_float()
    s = (m - 1.0) / (m + 1.0)
    return fma(n, LN2[0], fma(n, LN2[1], s * polynomial(s * s, LOG_TERMS)))


def _expm1(x: Real) -> Real:
    series = x * polynomial(x, EXPM1_TERMS)
    return or_nan(x, where(absolute(x) < 1e-4, series, exp_of_double(x) - 1.0))


def _log1p(x: Real) -> Real:
    """Of a small number by its series, so that no digit of it is lost in a sum with 1."""
    above = x + 1.0
    return where(absolute(x) < 1e-4, x * polynomial(x, LOG1P_TERMS), or_special(above, _log(above)))


def _sinh(x: Real) -> Real:
    """By expm1, which is exact near 0: sinh(x) = (e + e / (e + 1)) / 2 for x from 0 on."""
    e = _expm1(least(absolute(x), 200.0))
    return or_nan(x, with_sign_of((e + e / (e + 1.0)) * 0.5, x))


def _cosh(x: Real) -> Real:
    e = exp_of_double(clamped(x, -200.0, 200.0))
    return or_nan(x, (e + 1.0 / e) * 0.5)


def _tanh(x: Real) -> Real:
    """e / (e + 2) with e = expm1(2 |x|)."""
    e = _expm1(2.0 * least(absolute(x), 20.0))
    return or_nan(x, with_sign_of(e / (e + 2.0), x))


def _logistic(x: Real) -> Real:
    return or_nan(x, 1.0 / (exp_of_double(-x) + 1.0))


def _asinh(x: Real) -> Real:
    """log(1 + t) with t = |x| + x^2 / (1 + sqrt(x^2 + 1))."""
    size = absolute(x)
    found = _log1p(size + size * size / (sqrt(fma(size, size, 1.0)) + 1.0))
    return with_sign_of(where(size.equals(INFINITY), size, found), x)


def _acosh(x: Real) -> Real:
    """log(1 + t) with t = (x - 1) + sqrt((x - 1) (x + 1))."""
    above = x - 1.0
    return _log1p(above + sqrt(where(above < 0.0, NAN, above * (x + 1.0))))


def _atanh(x: Real) -> Real:
    """log(1 + t) / 2 with t = 2 |x| / (1 - |x|)."""
    size = absolute(x)
    return with_sign_of(_log1p((size + size) / (1.0 - size)) * 0.5, x)


def _atan2(y: Real, x: Real) -> Real:
    """The smaller number over the larger one, and that less an eighth of a turn."""
    along, up = absolute(x), absolute(y)
    steep = up > along
    above, below = where(steep, along, up), where(steep, up, along)
    level = above.equals(below)
    above = where(level, where(below.equals(0.0), 0.0, above.like(1.0)), above)
    below = where(level, 1.0, below)
    turned = above > below * TAN_OF_EIGHTH
    q = where(turned, above - below, above) / where(turned, above + below, below)
    q = where(below.equals(INFINITY), 0.0, q)
    arc = fma(q * (q * q), polynomial(q * q, ATAN), q) + where(turned, q.like(0.25 * math.pi), 0.0)
    arc = where(steep, 0.5 * math.pi - arc, arc)
    return or_nan(x, or_nan(y, with_sign_of(where(x.is_negative(), math.pi - arc, arc), y)))


def _asin_of_small(x: Real) -> Real:
    return fma(x * (x * x), polynomial(x * x, ASIN), x)


def _acos(x: Real) -> Real:
    """By asin; from 1/2 on by that of the half angle."""
    size = absolute(x)
    far = size > 0.5
    arc = _asin_of_small(where(far, sqrt(fma(size, -0.5, 0.5)), x))
    folded = where(x < 0.0, math.pi - (arc + arc), arc + arc)
    return or_nan(x, where(far, folded, 0.5 * math.pi - arc))


def _asin(x: Real) -> Real:
    size = absolute(x)
    far = size > 0.5
    arc = _asin_of_small(where(far, sqrt(fma(size, -0.5, 0.5)), size))
    return or_nan(x, with_sign_of(where(far, 0.5 * math.pi - (arc + arc), arc), x))


def _circle(x: Real) -> tuple[Real, Real]:
    at = angle(x)
    r = at.r.high
    z = r * r
    sin, cos = r * polynomial(z, SIN_TERMS), polynomial(z, COS_TERMS)
    odd = at.n.has(1)
    found = []
    for one, other, n in ((sin, cos, at.n), (cos, sin, at.n + 1)):
        chosen = where(odd, other, one)
        found.append(or_nan_of_infinity(x, where(n.has(2), -chosen, chosen)))
    return found[0], found[1]


def _turned(x: Real, cosine: Real) -> Real:
    """The sine, or the cosine where that is 1."""
    sin, cos = _circle(x)
    return where(cosine > 0.5, cos, sin)


def _tan(x: Real) -> Real:
    sin, cos = _circle(x)
    return where(x.equals(0.0), x, sin / cos)


exp2 = in_double(lambda x: or_nan(x, exp_of_double(x * LN2[0])))
expm1 = in_double(_expm1)
log1p = in_double(_log1p)
sinh = in_double(_sinh)
cosh = in_double(_cosh)
turned = in_double(_turned)
tan = in_double(_tan)
tanh = in_double(_tanh)
logistic = in_double(_logistic)
asinh = in_double(_asinh)
acosh = in_double(_acosh)
atanh = in_double(_atanh)
asin = in_double(_asin)
acos = in_double(_acos)
atan2 = in_double(_atan2)
atan = in_double(lambda x: _atan2(x, x.like(1.0)))
