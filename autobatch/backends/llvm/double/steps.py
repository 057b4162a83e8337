"""Functions of single digits: cube roots, remainders, neighbours. Of floats of either size."""

from __future__ import annotations

from autobatch.backends.llvm.double.exponentials import or_nan
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Real,
    absolute,
    fma,
    if_any,
    toward_zero,
    where,
    where_whole,
    with_sign_of,
)

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


def remainder(x: Real, y: Real) -> Real:
    """Of division that rounds toward zero, as C's `fmod`: exact. Where the quotient has more digits than a float it is
    C's function, lane by lane."""
    a, b = absolute(x), absolute(y)
    digits = 23 if x.v.bits_of_one == 32 else 52
    quotient = a / b
    # the quotient is rounded, so that the whole number may be one too large
    rest = fma(-toward_zero(quotient), b, a)
    rest = where(rest < 0.0, rest + b, rest)
    rest = where(b.equals(INFINITY), a, rest)
    far = quotient.is_("oge", 2.0**digits) & a.is_("one", INFINITY) & (b > 0.0)
    (rest,) = if_any(
        far, [rest], lambda: [Real(x.v, x.v.two("frem", where(far, a, 0.0).text, where(far, b, 1.0).text))]
    )
    found = with_sign_of(rest, x)
    return or_nan(y, or_nan(x, where(a.equals(INFINITY) | b.equals(0.0), NAN, found)))


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
