"""Functions of float32, as formulas.

Those that networks compute by the million (exp, log, pow, tanh, sin, cos) are in single precision, at half the
instructions of a detour through double. They are off by less than 2 units in the last place.

All others are computed in double precision, where short series are exact enough. A result is off by little more than
its last rounding. What is not here is computed as a double would be (`float64.py`).

`python -m benchmarks.ulp --full` measures all of them.
"""

from __future__ import annotations

import math

from autobatch.backends.llvm import formulas
from autobatch.backends.llvm.float64 import (
    COS,
    LN2,
    LOG2_E,
    SIN,
    TAN_OF_EIGHTH,
    angle,
    or_nan,
    or_nan_of_infinity,
    or_special,
    power_or_special,
)
from autobatch.backends.llvm.float64 import log as log_of_double
from autobatch.backends.llvm.float64_special import inverse
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Real,
    absolute,
    called,
    clamped,
    floor,
    fma,
    if_any,
    in_double,
    least,
    nearest,
    polynomial,
    power_of_two,
    sqrt,
    where,
    with_sign_of,
)
from autobatch.backends.llvm.machine_code import ROUNDING, completed, exponent, mantissa, scaled

# ---- in double precision


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
logistic = in_double(_logistic)
asinh = in_double(_asinh)
acosh = in_double(_acosh)
atanh = in_double(_atanh)
asin = in_double(_asin)
acos = in_double(_acos)
atan2 = in_double(_atan2)
atan = in_double(lambda x: _atan2(x, x.like(1.0)))


# ---- wide special
#
# erf, its inverse, and the logarithm of the gamma function with its derivative, of float32, in double precision.


ERF_OF_FLOAT = (
    1.1283791670615175,
    -0.3761263846774074,
    0.11283782490078903,
    -0.0268654303851591,
    0.005221030734855508,
    -0.0008484063283527477,
    0.00011265824431458933,
    -9.666631243926762e-06,
)
"""erf(x) = x P(x^2), up to 1: 4e-11."""
ERFC_OF_FLOAT = (
    1.2530080581948193,
    -0.13562110427289895,
    -0.047562278738094474,
    0.12964502774313297,
    -0.11927417405981612,
    0.06831067757440742,
    -0.02376473547906362,
    0.0025070022961252636,
    0.0018620468849291935,
    -0.000694732199089292,
    -6.113322304891179e-05,
)
"""erfc(x) = e^(-x^2) P((x - 3) / (x + 3)) / (1 + 2 x), as in `float64_special.py`, from 1 to 11: 1e-10."""
LGAMMA = (
    0.4831289505409809,
    -0.14595989591430608,
    0.06291140107458175,
    -0.03130848750102174,
    0.01679709862897521,
    -0.00942562244705625,
    0.00544645795718968,
    -0.003212074149185382,
    0.0019229132354157629,
    -0.0011644126175534965,
    0.0007115651196832767,
    -0.0004380225133830832,
    0.0002708943397948761,
    -0.00016864972124333035,
    0.00010771837018407164,
    -6.76520724985272e-05,
    3.498234399652184e-05,
    -2.205863515610156e-05,
    2.834678721123555e-05,
    -1.8046752031436395e-05,
)
"""lgamma(x) = (x - 1) (x - 2) P(x - 3/2), from 1 to 2."""
DIGAMMA = (
    0.9676722454476211,
    -0.4427631689835922,
    0.2584997609557209,
    -0.16394270544242412,
    0.1078240506810355,
    -0.07219956124987416,
    0.04880428874314386,
    -0.03316112699589378,
    0.022597631646964482,
    -0.015424747465159757,
    0.01053906257477966,
    -0.007204888715901113,
    0.004924123005724323,
    -0.003365796982848141,
    0.0023208235570082955,
    -0.0016041851104357545,
    0.0010263848823307364,
    -0.000629460903057055,
    0.0005829168268178969,
    -0.000572109318819875,
    0.0002523233348590831,
)
ROOT = (1.4616321449683622, 9.549995429965697e-17)
"""digamma(x) = (x - root) P(x - root), from 1 to 2."""
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
OF_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""Of 1 / x^2, from 8 on (DLMF 5.11.1 and 5.11.2)."""
SMALL = 8


def _erfc_of_large(size: Real) -> Real:
    x = clamped(size, 1.0, 11.0)
    t = (x - 3.0) / (x + 3.0)
    return exp_of_double(-(x * x)) * polynomial(t, ERFC_OF_FLOAT) / (x + x + 1.0)


def _erf(x: Real) -> Real:
    size = absolute(x)
    small = size * polynomial(size * size, ERF_OF_FLOAT)
    return or_nan(x, with_sign_of(where(size < 1.0, small, 1.0 - _erfc_of_large(size)), x))


def _erfc(x: Real) -> Real:
    size = absolute(x)
    small = 1.0 - x * polynomial(x * x, ERF_OF_FLOAT)
    far = _erfc_of_large(size)
    return or_nan(x, where(size < 1.0, small, where(x < 0.0, 2.0 - far, far)))


def _between_1_and_2(size: Real) -> tuple[Real, Real, Real]:
    """A number below 8 less a whole one, the product and the sum of reciprocals of what lies between; of numbers below
    1 that and 1."""
    y, product, total = size, size.like(1.0), size.like(0.0)
    for _ in range(SMALL - 2):
        more = y > 2.0
        y = where(more, y - 1.0, y)
        product = where(more, product * y, product)
        total = where(more, total + 1.0 / y, total)
    return where(size < 1.0, size + 1.0, y), product, total


def _circle_of_halves(x: Real) -> tuple[Real, Real]:
    """sin(pi x) and cos(pi x) without their signs for x from 0 on, and whether they differ."""
    r = x - nearest(x)
    flat = absolute(r) > 0.25
    t = where(flat, 0.5 - absolute(r), absolute(r)) * math.pi
    z = t * t
    sin = fma(t * z, polynomial(z, SIN), t)
    cos = fma(z * z, polynomial(z, COS), fma(z, -0.5, 1.0))
    return where(flat, cos, sin), with_sign_of(where(flat, sin, cos), r)


def _lgamma(x: Real) -> Real:
    """Below 0 by lgamma(x) + lgamma(-x) = log(pi / |x sin(pi x)|)."""
    size = absolute(x)
    y, product, _ = _between_1_and_2(least(size, 9.0))
    large = size >= SMALL
    of = log_of_double(where(large | (size < 1.0), size, product))
    near = fma((y - 1.0) * (y - 2.0), polynomial(y - 1.5, LGAMMA), where(size < 1.0, -of, of))
    inverse_of = 1.0 / size
    series = inverse_of * polynomial(inverse_of * inverse_of, STIRLING)
    far = fma(size - 0.5, of - 1.0, series) + (0.5 * math.log(2.0 * math.pi) - 0.5)
    found = where(large, far, near)
    sin, _ = _circle_of_halves(size)
    found = where(x < 0.0, math.log(math.pi) - log_of_double(size * sin) - found, found)
    pole = x.equals(0.0) | ((x < 0.0) & floor(x).equals(x)) | size.equals(INFINITY)
    return or_nan(x, where(pole, INFINITY, found))


def _digamma(x: Real) -> Real:
    """Below 0 by digamma(x) - digamma(-x) = -1 / x - pi / tan(pi x). NaN where there are poles, as XLA has it."""
    size = absolute(x)
    y, _, total = _between_1_and_2(least(size, 9.0))
    off = (y - ROOT[0]) - ROOT[1]
    near = fma(off, polynomial(off, DIGAMMA), where(size < 1.0, -1.0 / size, total))
    inverse_of = 1.0 / size
    square = inverse_of * inverse_of
    far = fma(inverse_of, -0.5, log_of_double(size)) - square * polynomial(square, OF_DIGAMMA)
    found = where(size >= SMALL, far, near)
    sin, cos = _circle_of_halves(size)
    found = where(x < 0.0, found + inverse_of + math.pi * cos / sin, found)
    pole = x.equals(0.0) | ((x < 0.0) & (floor(x).equals(x) | size.equals(INFINITY)))
    return or_nan(x, where(x.equals(INFINITY), x, where(pole, NAN, found)))


erf = in_double(_erf)
erfc = in_double(_erfc)
erf_inv = in_double(lambda x: inverse(x, _erf, _erfc, 1))
lgamma = in_double(_lgamma)
digamma = in_double(_digamma)


# ---- in single precision


TANH_OF_FLOAT = (-0.3333328194277347, 0.133314422148151, -0.053739716263963316, 0.02063908, -0.00570498)
"""tanh(x) = x + x^3 P(x^2) for |x| <= 5/8: 4e-9 (weighted least squares with Lawson's weights)."""
NEAR = 0.625
ONE = 10.0
"""Where tanh is 1 in single precision."""


SIN_OF_FLOAT = (-0.16666654609662848, 0.008332160767609842, -0.00019515283845407665)
"""sin(r) = r + r^3 P(r^2) for |r| <= pi / 4: 4e-9."""
COS_OF_FLOAT = (0.041666645682764646, -0.0013887316245905432, 2.4433156233225977e-05)
"""cos(r) = 1 - r^2 / 2 + r^4 P(r^2): 1e-10."""
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi / 2, in three floats."""
FAR = 1e5
"""Angles up to which a multiple of the first part is taken away without an error."""


LOG_OF_FLOAT = (
    0.3333344911277431,
    -0.2500009584141469,
    0.19990861225060175,
    -0.16647312174918968,
    0.1447839500381777,
    -0.1316119359295505,
    0.10463022185618853,
    -0.045074800772943596,
)
"""log(1 + f) = f - f^2 / 2 + f^3 P(f) for f from -1/4 to 1/2: 5e-9."""
LN2_OF_FLOAT = (0.693138122558594, 9.05800061445916e-06)
"""ln(2): in 17 bits, and the rest, which has the same sign, so that an infinite exponent gives no NaN."""
LOG2 = (0.9617967089467907, 0.5770636155066772, 0.41611915205785127)
"""log2((1 + s) / (1 - s)) = 2 / ln(2) s + s^3 P(s^2) for |s| <= 0.0795: 2e-12 of it."""
TWO_LOG2_E = (2.885390043258667, 3.85192597818218e-08)
"""2 / ln(2), in two floats."""
FROM, TO = 0.875, 1.17
"""Mantissas that are near 1; others are multiplied by 5/4 and 3/4, which is exact when 1 is taken away."""
OF_LOWER, OF_UPPER = (-0.3218994140625, -2.8680824862348242e-05), (0.4150390625, -1.5632211561866782e-06)
"""-log2(5/4) and -log2(3/4): in so few bits that a sum with an exponent is exact, and the rest."""
EXP2 = (
    0.6931471824645996,
    0.24022647191277424,
    0.055503557049405475,
    0.009618550419945417,
    0.0013393178622137182,
    0.00015320804540498386,
)
"""2^r = 1 + r P(r) for |r| <= 0.51: 3e-9; the first is a float."""
LIMIT = 200.0
"""Where 2^x is infinite, and 2^-x zero."""


def exp(x: Real) -> Real:
    """By x = n ln(2) + r. NaN passes through all of it."""
    held = where(x > 89.0, 89.0, where(x < -104.0, -104.0, x))
    turned = fma(held, LOG2_E, ROUNDING)
    n = turned - ROUNDING
    r = fma(n, -formulas.LN2[1], fma(n, -formulas.LN2[0], held))
    return scaled(fma(r * r, polynomial(r, formulas.EXP), r + 1.0), turned)


def log(x: Real) -> Real:
    """By x = 2^n (1 + f)."""
    n, f = exponent(x), mantissa(x) - 1.0
    square = f * f
    p = fma(n, LN2_OF_FLOAT[1], square * f * polynomial(f, LOG_OF_FLOAT))
    return completed(x, fma(n, LN2_OF_FLOAT[0], f + fma(square, -0.5, p)))


def _log2(x: Real) -> tuple[Real, Real]:
    """Of a positive finite number, as a sum of two, of which the second may be a thousandth of it: to 2^-31 of it, so
    that a product of 128 is known to 2^-24."""
    m = mantissa(x)
    lower, upper = m < FROM, m > TO
    f = fma(m, where(upper, 0.75, where(lower, m.like(1.25), 1.0)), -1.0)
    k, rest = (where(upper, b, where(lower, m.like(a), 0.0)) for a, b in zip(OF_LOWER, OF_UPPER, strict=True))
    g = f + 2.0
    lost, inverse = f - (g - 2.0), 1.0 / g
    s = f * inverse
    low, z = fma(-s, lost, fma(-s, g, f)) * inverse, s * s
    low = fma(low, z, low)  # the derivative of artanh is 1 / (1 - s^2)
    high = s * TWO_LOG2_E[0]
    low = fma(low, TWO_LOG2_E[0], fma(s, TWO_LOG2_E[1], fma(s, TWO_LOG2_E[0], -high)))
    low = fma(s, z * polynomial(z, LOG2), low) + rest
    whole = exponent(x) + k
    total = whole + high
    return total, low + (whole - total + high)


def pow(x: Real, y: Real) -> Real:
    """2^(y log2|x|), with a product of two parts (as in Sun's fdlibm, `e_powf.c`, 1993)."""
    high, low = _log2(absolute(x))
    product = y * high
    low = fma(y, low, fma(y, high, -product))
    held = where(product > LIMIT, LIMIT, where(product < -LIMIT, -LIMIT, product))
    low = where(held.equals(product), low, 0.0)
    turned = held + low + ROUNDING
    r = held - (turned - ROUNDING) + low
    found = scaled(fma(r, polynomial(r, EXP2), 1.0), turned)
    usual = (x >= 2.0**-126) & (x < INFINITY) & (absolute(y) < INFINITY)  # where XLA calls us, what is smaller is 0
    special = in_double(power_or_special)  # LLVM's tests of the bits of floats know nothing of such zeros
    if x.v.lanes == 1:  # it makes no vectors of a loop with branches in it
        return where(usual, found, special(x, y, found))
    (whole,) = if_any(~usual, [found], lambda: [special(x, y, found)])
    return whole


def _exp(x: Real) -> Real:
    """Of numbers whose exponential is neither subnormal nor infinite."""
    n = nearest(x * LOG2_E)
    r = fma(n, -formulas.LN2[1], fma(n, -formulas.LN2[0], x))
    return fma(r * r, polynomial(r, formulas.EXP), r + 1.0) * power_of_two(n.whole())


def tanh(x: Real) -> Real:
    """Far from 0 it is 1 - 2 / (e^2|x| + 1), where an error of the exponential counts half at most."""
    size = absolute(x)
    z = size * size
    near = fma(size * z, polynomial(z, TANH_OF_FLOAT), size)
    far = 1.0 - 2.0 / (_exp(2.0 * least(size, ONE)) + 1.0)
    return or_nan(x, with_sign_of(where(size <= NEAR, near, far), x))


_far = called("ab_circle_far", turned)
"""Of any angle, for the few that are large: one function for both, for it takes the compiler long."""


def _short_circle(x: Real, quarter: int) -> Real:
    """sin(x + quarter pi / 2): x = n pi / 2 + r (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions",
    1980)."""
    n = nearest(x * (2.0 / math.pi))
    r = fma(n, -HALF_PI[2], fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x)))
    z = r * r
    sin = fma(r * z, polynomial(z, SIN_OF_FLOAT), r)
    cos = fma(z * z, polynomial(z, COS_OF_FLOAT), fma(z, -0.5, 1.0))
    turn = n.whole() + quarter
    found = where(turn.has(1), cos, sin)
    found = where(turn.has(2), -found, found)
    any_angle = lambda: [Real(x.v, _far(x.v, x.text, x.like(quarter).text))]
    (whole,) = if_any(absolute(x).is_("ugt", FAR), [found], any_angle)
    return whole


def sin(x: Real) -> Real:
    return where(x.equals(0.0), x, _short_circle(x, 0))


def cos(x: Real) -> Real:
    return _short_circle(x, 1)
