"""Functions of float32 in single precision: those that networks compute by the million, at half the instructions of a
detour through double. They are off by less than 2 units in the last place (`python -m benchmarks.ulp --full`).
"""

from __future__ import annotations

import math

from autobatch.backends.llvm import functions, wide
from autobatch.backends.llvm.float64 import LOG2_E, or_nan, power_or_special
from autobatch.backends.llvm.formulas import (
    INFINITY,
    Real,
    absolute,
    called,
    fma,
    if_any,
    in_double,
    least,
    nearest,
    polynomial,
    power_of_two,
    where,
    with_sign_of,
)
from autobatch.backends.llvm.targets import ROUNDING, completed, exponent, mantissa, scaled

TANH = (-0.3333328194277347, 0.133314422148151, -0.053739716263963316, 0.02063908, -0.00570498)
"""tanh(x) = x + x^3 P(x^2) for |x| <= 5/8: 4e-9 (weighted least squares with Lawson's weights)."""
NEAR = 0.625
ONE = 10.0
"""Where tanh is 1 in single precision."""


SIN = (-0.16666654609662848, 0.008332160767609842, -0.00019515283845407665)
"""sin(r) = r + r^3 P(r^2) for |r| <= pi / 4: 4e-9."""
COS = (0.041666645682764646, -0.0013887316245905432, 2.4433156233225977e-05)
"""cos(r) = 1 - r^2 / 2 + r^4 P(r^2): 1e-10."""
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi / 2, in three floats."""
FAR = 1e5
"""Angles up to which a multiple of the first part is taken away without an error."""


LOG = (
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
LN2 = (0.693138122558594, 9.05800061445916e-06)
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
    r = fma(n, -functions.LN2[1], fma(n, -functions.LN2[0], held))
    return scaled(fma(r * r, polynomial(r, functions.EXP), r + 1.0), turned)


def log(x: Real) -> Real:
    """By x = 2^n (1 + f)."""
    n, f = exponent(x), mantissa(x) - 1.0
    square = f * f
    p = fma(n, LN2[1], square * f * polynomial(f, LOG))
    return completed(x, fma(n, LN2[0], f + fma(square, -0.5, p)))


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
    r = fma(n, -functions.LN2[1], fma(n, -functions.LN2[0], x))
    return fma(r * r, polynomial(r, functions.EXP), r + 1.0) * power_of_two(n.whole())


def tanh(x: Real) -> Real:
    """Far from 0 it is 1 - 2 / (e^2|x| + 1), where an error of the exponential counts half at most."""
    size = absolute(x)
    z = size * size
    near = fma(size * z, polynomial(z, TANH), size)
    far = 1.0 - 2.0 / (_exp(2.0 * least(size, ONE)) + 1.0)
    return or_nan(x, with_sign_of(where(size <= NEAR, near, far), x))


_far = called("ab_circle_far", wide.turned)
"""Of any angle, for the few that are large: one function for both, for it takes the compiler long."""


def _circle(x: Real, quarter: int) -> Real:
    """sin(x + quarter pi / 2): x = n pi / 2 + r (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions",
    1980)."""
    n = nearest(x * (2.0 / math.pi))
    r = fma(n, -HALF_PI[2], fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x)))
    z = r * r
    sin = fma(r * z, polynomial(z, SIN), r)
    cos = fma(z * z, polynomial(z, COS), fma(z, -0.5, 1.0))
    turn = n.whole() + quarter
    found = where(turn.has(1), cos, sin)
    found = where(turn.has(2), -found, found)
    any_angle = lambda: [Real(x.v, _far(x.v, x.text, x.like(quarter).text))]
    (whole,) = if_any(absolute(x).is_("ugt", FAR), [found], any_angle)
    return whole


def sin(x: Real) -> Real:
    return where(x.equals(0.0), x, _circle(x, 0))


def cos(x: Real) -> Real:
    return _circle(x, 1)
