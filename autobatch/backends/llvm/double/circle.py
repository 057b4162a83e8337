"""sin, cos and tan: x = n pi/2 + r, and n says which series of r it is, and with what sign.

Up to 2^30 the product of n is taken away in three parts (W. J. Cody, W. Waite, "Software Manual for the Elementary
Functions", 1980). Beyond, only those digits of 2/pi are multiplied that reach what is behind the quarter turns (M. H.
Payne, R. N. Hanek, "Radian reduction for trigonometric functions", 1983), in integers. No float is so near to a
multiple of pi/2 that the digits would not do: J.-M. Muller, "Elementary Functions" (3rd edition, 2016), section 11.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobatch.backends.llvm.double.pairs import Pair, choose, exact_product, exact_sum, quick_sum, quotient
from autobatch.backends.llvm.formulas import (
    IntegerVector,
    Mask,
    Real,
    absolute,
    fma,
    if_any,
    nearest,
    polynomial,
    table,
    where,
    where_whole,
)

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
