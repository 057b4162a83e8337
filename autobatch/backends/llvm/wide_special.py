"""erf, its inverse, and the logarithm of the gamma function with its derivative, of float32, in double precision."""

from __future__ import annotations

import math

from autobatch.backends.llvm.double.circle import COS, SIN
from autobatch.backends.llvm.double.errors import inverse
from autobatch.backends.llvm.double.exponentials import or_nan
from autobatch.backends.llvm.double.logarithms import log
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Real,
    absolute,
    clamped,
    floor,
    fma,
    in_double,
    least,
    nearest,
    polynomial,
    where,
    with_sign_of,
)
from autobatch.backends.llvm.wide import exp_of_double

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
"""erfc(x) = e^(-x^2) P((x - 3) / (x + 3)) / (1 + 2 x), as in `double/errors.py`, from 1 to 11: 1e-10."""
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
    of = log(where(large | (size < 1.0), size, product))
    near = fma((y - 1.0) * (y - 2.0), polynomial(y - 1.5, LGAMMA), where(size < 1.0, -of, of))
    inverse_of = 1.0 / size
    series = inverse_of * polynomial(inverse_of * inverse_of, STIRLING)
    far = fma(size - 0.5, of - 1.0, series) + (0.5 * math.log(2.0 * math.pi) - 0.5)
    found = where(large, far, near)
    sin, _ = _circle_of_halves(size)
    found = where(x < 0.0, math.log(math.pi) - log(size * sin) - found, found)
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
    far = fma(inverse_of, -0.5, log(size)) - square * polynomial(square, OF_DIGAMMA)
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
