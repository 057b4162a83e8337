"""Functions of `math` and of Python on integers, of the examples and of those that floats decide."""

from __future__ import annotations

import math

import pytest

import autobatch as ab
from autobatch.errors import ExampleError

XS = [12.0, 18.5, 7.0, 0.5, 30.25]
NS = [12, 18, 7, 0, 97]


def counted(x):
    """An integer that a float decides."""
    n = 0
    while n * n < x:
        n += 1
    return n


def divisors(x, n):
    k = counted(x)
    return math.gcd(k, 12), math.gcd(n, k, 6), math.gcd(-n, 8), math.lcm(k + 1, n, 4), math.gcd(), math.lcm()


def roots(x, n):
    return math.isqrt(counted(x)), math.isqrt(n), math.isqrt(n * n + 2 * n), math.isqrt(2**31 - 1 - n)


def ways(x, n):
    k, m = counted(x), n % 9
    return math.comb(k, 2), math.comb(m, k), math.perm(m, 2), math.perm(k), math.factorial(k), math.factorial(m % 5)


def bits(x, n):
    k = counted(x)
    return k.bit_length(), (n - 9).bit_count(), bin(k).count("1"), bin(n - 9), hex(n * 31), oct(k)[2:], hex(k - n)


def fraction(x, n):
    k = counted(x) + 1
    g = math.gcd(n, k)
    return n // g * x + k // g, pow(n, k, 7)


@pytest.mark.parametrize("backend", ["llvm", "xla", "auto"])
@pytest.mark.parametrize("function", [divisors, roots, ways, bits, fraction], ids=lambda f: f.__name__)
def test_agrees_with_python(function, backend):
    found = ab.unbatch(ab.batched(function, backend=backend)(XS, NS))
    for a, b in zip(found, map(function, XS, NS), strict=True):
        assert list(a) == [pytest.approx(x) if isinstance(x, float) else x for x in b]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda n: math.isqrt(n), "isqrt\\(\\) argument must be nonnegative"),
        (lambda n: math.factorial(n), "factorial\\(\\) not defined for negative values"),
        (lambda n: math.comb(n, 2), "n must be a non-negative integer"),
        (lambda n: math.perm(3, n), "k must be a non-negative integer"),
    ],
)
def test_what_has_no_result(function, message):
    with pytest.raises(ExampleError, match=f"ValueError: {message}"):
        ab.batched(function, backend="llvm")([4, -1])
