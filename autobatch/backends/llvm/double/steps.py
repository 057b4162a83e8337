"""Functions of single digits: cube roots, remainders, neighbours. Of floats of either size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from autobatch.backends.llvm.double.exponentials import or_nan
from autobatch.backends.llvm.double.pairs import Pair, exactly
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    IntegerVector,
    Mask,
    Real,
    absolute,
    fma,
    if_any,
    scaled,
    toward_zero,
    where,
    where_whole,
    with_sign_of,
)

Factor = TypeVar("Factor", Real, Pair)
CBRT_OFFSET = 715094163 << 32
"""What a third of a double's bits lacks of its cube root's, as in FreeBSD's `s_cbrt.c`: to 5 %."""


def cbrt(x: Real) -> Real:
    """Of doubles. Two steps of Halley's method from a third of the exponent, and one of Newton's with an exact rest."""
    size = absolute(x)
    small, large = size < 2.0**-1022, size > 2.0**1000
    held = size * where(small, size.like(2.0**54), where(large, size.like(2.0**-54), 1.0))
    t = (((held.bits().logical(32)).third() << 32) + CBRT_OFFSET).bits_as_float()
    for _ in range(2):
        cube = t * t * t
        t = t * ((cube + (held + held)) / ((cube + cube) + held))
    # t with 26 bits, whose square is exact
    short = (t.bits() & ~0x7FFFFFF).bits_as_float()
    square = short * short
    cube = short * square
    rest = (held - cube) - fma(short, square, -cube)
    t = short + rest / (3.0 * fma(short, t - short, square))
    found = with_sign_of(t * where(small, x.like(2.0**-18), where(large, x.like(2.0**18), 1.0)), x)
    plain = x.equals(0.0) | size.equals(INFINITY)
    return or_nan(x, where(plain, x, found))


def power_by_squares(x: Real, n: int) -> Real:
    base = x if n >= 0 else 1.0 / x
    return _by_squares(base, abs(n), lambda a, b: a * b)


def whole_power(x: Real, n: int) -> Real:
    """x^n of doubles, by squares that are pairs: every product of floats rounds. Where a pair overflows, or is zero, it
    is the product of floats."""
    one = exactly(x.like(1.0))
    found = _by_squares(exactly(x) if n >= 0 else one / exactly(x), abs(n), lambda a, b: a * b).one()
    return where(found.is_nan() | found.equals(0.0), power_by_squares(x, n), found)


def _by_squares(x: Factor, n: int, times: Callable[[Factor, Factor], Factor]) -> Factor:
    """For n from 1 on."""
    total: Factor | None = None
    while n:
        if n & 1:
            total = x if total is None else times(total, x)
        n >>= 1
        x = times(x, x) if n else x
    assert total is not None
    return total


def remainder(x: Real, y: Real) -> Real:
    """Of division that rounds toward zero, as C's `fmod`: exact."""
    a, b = absolute(x), absolute(y)
    wrong = a.equals(INFINITY) | b.equals(0.0)
    usual = _less_whole(a, b)
    far = (a / b).is_("oge", 2.0 ** (_digits(x) - 1)) & ~wrong
    (rest,) = if_any(far, [usual], lambda: [_long_division(a, b, far)])
    rest = where(b.equals(INFINITY), a, rest)
    return or_nan(y, or_nan(x, where(wrong, NAN, with_sign_of(rest, x))))


def _digits(x: Real) -> int:
    return 24 if x.v.bits_of_one == 32 else 53


def _less_whole(a: Real, b: Real) -> Real:
    """a - n b for the largest whole n, which fits a float. The quotient is rounded: it may be one too large."""
    rest = fma(-toward_zero(a / b), b, a)
    return where(rest < 0.0, rest + b, rest)


def _long_division(a: Real, b: Real, mask: Mask) -> Real:
    """By b 2^k, where quotients are short, until k is 0."""
    v, short = a.v, _digits(a) - 6
    most = 253 if v.bits_of_one == 32 else 2045  # of two factors that are floats
    slot = v.f.vector_slot(v.type)
    v.f.do(f"store {v.type} {where(mask, a, 0.0).text}, ptr {slot}")

    def held() -> Real:
        return Real(v, v.f.let(f"load {v.type}, ptr {slot}"))

    with v.f.whilst(lambda: (mask & (held() >= b)).any()):
        rest = held()
        k = _exponent(rest) - _exponent(b) - short
        k = where_whole(k.is_("sgt", most), most, where_whole(k.is_("sgt", 0), k, 0))
        by = scaled(b, k)
        found = where(mask & (rest >= b), _less_whole(rest, by), rest)
        v.f.do(f"store {v.type} {found.text}, ptr {slot}")
    return held()


def _exponent(x: Real) -> IntegerVector:
    """Of positive numbers, subnormal ones as well."""
    digits = _digits(x)
    small = x < 2.0 ** (-126 if digits == 24 else -1022)
    bits = where(small, x * 2.0**digits, x).bits().logical(digits - 1)
    return bits - where_whole(small, digits, 0)


def neighbour(x: Real, toward: Real) -> Real:
    """C's `nextafter`: the next float in the order of their bits."""
    bits, other = x.bits(), toward.bits()
    sign = 1 << (x.v.bits_of_one - 1)
    size, size_of_other = bits & (sign - 1), other & (sign - 1)
    opposite = (bits ^ other).is_("slt", 0)
    shrinks = size.is_("ugt", size_of_other) | opposite
    moved = where_whole(shrinks, bits - 1, bits + 1)
    moved = where_whole(size.is_("eq", 0), (other & -sign) | 1, moved)
    found = where(x.equals(toward), toward, moved.bits_as_float())
    return or_nan(toward, or_nan(x, found))
