"""Numbers of twice the digits: the sum of two floats, of which the second is at most half a unit of the first.

The building blocks are those of T. J. Dekker, "A floating-point technique for extending the available precision" (1971)
and D. E. Knuth, "The Art of Computer Programming", volume 2, 4.2.2; with a fused multiply-add the error of a product is
one operation. Bounds are in M. Joldes, J.-M. Muller, V. Popescu, "Tight and rigorous error bounds for basic building
blocks of double-word arithmetic" (2017).
"""

from __future__ import annotations

from dataclasses import dataclass

from autobatch.backends.llvm.formulas import Mask, Real, fma, where
from autobatch.backends.llvm.formulas import sqrt as root


@dataclass(frozen=True)
class Pair:
    high: Real
    low: Real

    def __add__(self, other: Pair) -> Pair:
        """Of numbers that do not cancel."""
        high = exact_sum(self.high, other.high)
        return quick_sum(high.high, high.low + (self.low + other.low))

    def __mul__(self, other: Pair) -> Pair:
        high = exact_product(self.high, other.high)
        return quick_sum(high.high, high.low + fma(self.high, other.low, self.low * other.high))

    def __truediv__(self, other: Pair) -> Pair:
        return quick_sum(*_quotient(self, other))

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)

    def plus(self, x: Real | float) -> Pair:
        high = exact_sum(self.high, x)
        return quick_sum(high.high, high.low + self.low)

    def times(self, x: Real | float) -> Pair:
        high = exact_product(self.high, self.high.read(x))
        return quick_sum(high.high, fma(self.low, x, high.low))

    def by_power_of_two(self, x: Real | float) -> Pair:
        """Times a number without digits behind its first one."""
        return Pair(self.high * x, self.low * x)

    def one(self) -> Real:
        return self.high + self.low


def exact_sum(a: Real, b: Real | float) -> Pair:
    total = a + b
    second = total - a
    return Pair(total, (a - (total - second)) + (a.read(b) - second))


def quick_sum(a: Real, b: Real) -> Pair:
    """Where the first is the larger one."""
    total = a + b
    return Pair(total, b - (total - a))


def exact_product(a: Real, b: Real) -> Pair:
    product = a * b
    return Pair(product, fma(a, b, -product))


def exactly(x: Real) -> Pair:
    return Pair(x, x.like(0.0))


def quotient(a: Pair, b: Pair) -> Real:
    """Rounded nearly once."""
    high, low = _quotient(a, b)
    return high + low


def _quotient(a: Pair, b: Pair) -> tuple[Real, Real]:
    high = a.high / b.high
    left = fma(-high, b.high, a.high) + fma(-high, b.low, a.low)
    return high, left / b.high


def sqrt(x: Pair) -> Pair:
    """Of positive numbers; of zero it is zero."""
    high = root(x.high)
    low = (fma(-high, high, x.high) + x.low) / (high + high)
    return quick_sum(high, where(high.equals(0.0), 0.0, low))


def choose(mask: Mask, a: Pair, b: Pair) -> Pair:
    return Pair(where(mask, a.high, b.high), where(mask, a.low, b.low))
