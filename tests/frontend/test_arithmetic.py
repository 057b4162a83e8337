"""Python's meaning of arithmetic, also with negative operands; types of joins."""

from __future__ import annotations

import math

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frontend.harness import Lowering, check, same

INTEGERS = st.integers(-50, 50)
FLOATS = st.floats(-50, 50, width=32)


def arithmetic(pair):
    x, y = pair
    return (
        x + y,
        x - y,
        x * y,
        -x,
        +y,
        abs(x),
        x // y,
        x % y,
        x / y,
        divmod(x, y),
        x**2,
        x**-1 if x > 0 else 0.0,
        round(x),
        round(x, 1),
        int(x),
        float(y),
        bool(x),
        x < y,
        x <= y,
        x == y,
        x != y,
        float(min(x, y)),
        float(max(x, y, 3)),
        not x,
    )


def integers(pair):
    x, y = pair
    return x & y, x | y, x ^ y, ~x, x << 2, x >> 1, x ** abs(y % 4), (x > 0) + (y > 0), (x > 0) - y, -(x > y)


LOWERED: dict = {}


def run(fun, pair):
    key = fun, tuple(map(type, pair))
    if key not in LOWERED:
        LOWERED[key] = Lowering(fun, [pair])
    return LOWERED[key].with_examples([pair])


@given(INTEGERS, INTEGERS.filter(bool))
def test_integers(x, y):
    run(arithmetic, (x, y)).check()
    run(integers, (x, y)).check()


@given(FLOATS, FLOATS.filter(lambda y: abs(y) > 1e-3))
def test_floats(x, y):
    run(arithmetic, (x, y)).check()


@given(INTEGERS, FLOATS.filter(lambda y: abs(y) > 1e-3))
def test_mixed(x, y):
    run(arithmetic, (x, y)).check()


@pytest.mark.parametrize("pair", [(1, 0), (1.0, 0.0)])
def test_division_by_zero_fails_like_python(pair):
    for f in (lambda p: p[0] // p[1], lambda p: p[0] % p[1], lambda p: p[0] / p[1]):
        check(f, [pair], batched=isinstance(pair[1], int))  # floats divide as IEEE 754 says


@given(st.lists(INTEGERS, min_size=1, max_size=6), st.data())
def test_indices(xs, data):
    n = len(xs)
    index = data.draw(st.integers(-n - 1, n))
    bounds = data.draw(st.tuples(*[st.none() | st.integers(-n - 2, n + 2)] * 2))
    step = data.draw(st.sampled_from([1, 2, -1, -2]))

    def item(t):
        return t[0][t[1]]

    def ahead(t):
        return list(t[0][t[1] : t[2]])

    def back(t):
        return list(t[0][t[1] : t[2] : -1])

    check(item, [(xs, index)], batched=False)
    low, high = (0 if b is None else b for b in bounds)
    check(ahead, [(xs, low, high)], batched=False)
    check(back, [(xs, low, high)], batched=False)
    check(lambda t: list(t[bounds[0] : bounds[1] : step]), [xs], batched=False)


def test_indices_of_a_batch():
    def f(t):
        xs, n, low, high = t
        return xs[n], list(xs[low:high]), list(xs[low:high:-1]), list(xs[-3:high:2])

    xs = [3, 1, 4, 1, 5]
    check(f, [(xs, n, low, high) for n in (-6, -5, 0, 4, 5) for low, high in ((0, 3), (-2, 9), (4, -7))])


def test_joins_of_numbers():
    def f(n):
        a = 1 if n > 0 else 2.5
        b = 0 if n > 0 else jnp.ones(3)
        c = 1.5 if n > 0 else jnp.float32(2)
        return a, b * 1.0, c, True if n > 0 else n < -5

    made = Lowering(f, [1, -1])
    for n, example in ((0, 1), (1, -1)):
        a, b, c, d = made.run(n)
        assert isinstance(a, float) and b.shape == (3,) and c.dtype == "float32"
        same(d, f(example)[3])


def test_floats_are_what_math_says():
    check(lambda x: math.exp(x) + math.log(abs(x) + 1) + math.floor(x) + math.ceil(x), [1.5, -1.5])


def test_ints_are_rounded_to_tens():
    check(lambda n: (round(n, -1), round(n, -2), round(n, 1)), [-25, -15, 5, 15, 0, 13, -13, 250, 350])


def test_tuples_of_the_examples_are_ordered():
    check(lambda q: (q < (1, 0), q >= (1, 0), (0, 5) < q, (1, 0) <= q), [(0, 9), (1, 0), (2, -1), (0, 5)])


def test_every_augmented_assignment():
    def f(n):
        a = n
        a += 3
        a -= 1
        a *= 2
        b = a
        b //= 3
        c = a
        c %= 5
        d = a
        d /= 4
        e = a
        e **= 2
        g = a
        g <<= 1
        g >>= 2
        g &= 13
        g |= 2
        g ^= 5
        return a, b, c, d, e, g

    check(f, [-7, -2, 0, 1, 8])
