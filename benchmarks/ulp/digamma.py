"""digamma of long doubles, which no library at hand has; near its zeros in decimal arithmetic.

digamma(x) = digamma(x + 1) - 1 / x up to 30, then log(x) - 1 / (2 x) - 1 / (12 x^2) + ... (DLMF 5.11.2). Below 0
digamma(-s) = digamma(1 + s) + pi / tan(pi s).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FAR = 30
TERMS = 14
DIGITS = 60
PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"

Longs = NDArray[np.longdouble]
Number = TypeVar("Number", Longs, Decimal)


def _bernoulli(count: int) -> list[Fraction]:
    """Those of even numbers from 2 on."""
    found = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        found.append(-sum((comb(m + 1, k) * found[k] for k in range(m)), Fraction(0)) / (m + 1))
    return found[2::2]


COEFFICIENTS = [b / (2 * k) for k, b in enumerate(_bernoulli(TERMS), 1)]


def _series(inverse: Number, coefficients: Sequence[Number]) -> Number:
    """What log(x) exceeds digamma(x) by."""
    w = inverse * inverse
    total = w * coefficients[-1]
    for c in coefficients[-2::-1]:
        total = (total + c) * w
    return total + inverse / 2


def digamma(x: Longs) -> Longs:
    """Of long doubles. NaN at the poles, as XLA has it."""
    size = np.abs(x)
    back = x < 0
    y, less = np.where(back, size + 1, size), np.zeros_like(x)
    tiny = size < 1e-25
    y = np.where(tiny, 1, y)
    for _ in range(FAR):
        low = y < FAR
        less, y = np.where(low, less + 1 / y, less), np.where(low, y + 1, y)
    numbers = [np.asarray(np.longdouble(c.numerator) / np.longdouble(c.denominator)) for c in COEFFICIENTS]
    inverse: Longs = np.divide(1, y)
    found: Longs = np.log(y) - _series(inverse, numbers) - less
    rest = size - np.rint(size)
    pi = np.longdouble(PI)
    found = np.where(back, found + pi / np.tan(pi * rest), found)
    found = np.where(tiny, -1 / x, found)
    found = np.where((x == 0) | np.isneginf(x) | (back & (rest == 0)), np.nan, found)
    for k in np.flatnonzero((np.abs(found) < 0.125) & ~tiny):
        found[k] = np.longdouble(str(_exact(Decimal(float(x[k])))))
    return found


def _exact(x: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = DIGITS
        y, found = (x, Decimal(0)) if x > 0 else (1 - x, Decimal(0))
        while y < FAR:
            found, y = found - 1 / y, y + 1
        numbers = [Decimal(c.numerator) / Decimal(c.denominator) for c in COEFFICIENTS]
        found += y.ln() - _series(1 / y, numbers)
        if x < 0:
            sin, cos = _circle((-x - round(-x)) * Decimal(PI))
            found += Decimal(PI) * cos / sin
        return found


def _circle(x: Decimal) -> tuple[Decimal, Decimal]:
    """sin and cos by their series, up to pi / 2."""
    term, parts = Decimal(1), [Decimal(0), Decimal(0)]
    for k in range(1, 60):
        parts[(k - 1) % 2] += term * (-1) ** ((k - 1) // 2)
        term *= x / k
    return parts[1], parts[0]
