"""Functions of float32 in single precision: those that networks compute by the million, at half the instructions of a
detour through double. They are off by less than 2 units in the last place (`python -m benchmarks.ulp --full`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autobatch.backends.llvm import functions, wide
from autobatch.backends.llvm.double.exponentials import LOG2_E, or_nan
from autobatch.backends.llvm.formulas import (
    Real,
    absolute,
    called,
    fma,
    if_any,
    least,
    nearest,
    polynomial,
    power_of_two,
    where,
    with_sign_of,
)

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


def _circle(x: Real, quarter: int, far: Callable[..., str]) -> Real:
    """sin(x + quarter pi / 2): x = n pi / 2 + r (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions",
    1980). `far`: the same of any angle, for the few that are large."""
    n = nearest(x * (2.0 / math.pi))
    r = fma(n, -HALF_PI[2], fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x)))
    z = r * r
    sin = fma(r * z, polynomial(z, SIN), r)
    cos = fma(z * z, polynomial(z, COS), fma(z, -0.5, 1.0))
    turn = n.whole() + quarter
    found = where(turn.has(1), cos, sin)
    found = where(turn.has(2), -found, found)
    (whole,) = if_any(absolute(x).is_("ugt", FAR), [found], lambda: [Real(x.v, far(x.v, x.text))])
    return whole


def sin(x: Real) -> Real:
    return where(x.equals(0.0), x, _circle(x, 0, called("ab_sin_far", wide.sin)))


def cos(x: Real) -> Real:
    return _circle(x, 1, called("ab_cos_far", wide.cos))
