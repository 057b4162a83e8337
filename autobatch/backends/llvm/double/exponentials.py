"""exp and what is made of it: x = n ln(2) + r, so that e^x = 2^n e^r.

`expm1` of r is kept as a pair, so that sums and quotients with it round once. Reduction and structure: J.-M. Muller,
"Elementary Functions" (3rd edition, 2016), chapter 11; W. J. Cody and W. Waite, "Software Manual for the Elementary
Functions" (1980).
"""

from __future__ import annotations

from dataclasses import dataclass

from autobatch.backends.llvm.double.pairs import Pair, choose, exact_sum, exactly, quick_sum, quotient
from autobatch.backends.llvm.formulas import (
    Real,
    absolute,
    clamped,
    fma,
    least,
    nearest,
    polynomial,
    power_of_two,
    scaled,
    where,
    with_sign_of,
)

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
