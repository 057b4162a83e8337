"""Functions of float32 in single precision: those that networks compute by the million, at half the instructions of a
detour through double. They are off by less than 2 units in the last place (`python -m benchmarks.ulp --full`).
"""

from __future__ import annotations

from autobatch.backends.llvm import functions
from autobatch.backends.llvm.double.exponentials import LOG2_E, or_nan
from autobatch.backends.llvm.formulas import (
    Real,
    absolute,
    fma,
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


def logistic(x: Real) -> Real:
    """With e = exp(-|x|) and t = e / (1 + e), which is at most a half: 1 - t above 0, and t below; from -1 on e - e t,
    where a sum with 1 would cost digits."""
    e = Real(x.v, functions.exp(x.v, (-absolute(x)).text))
    t = e / (e + 1.0)
    return where(x >= 0.0, 1.0 - t, where(x > -1.0, t, fma(-e, t, e)))
