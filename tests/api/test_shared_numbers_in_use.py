"""Every use of a shared integer that Python has: what the batched call gives is what plain Python gives."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

X = [1, 2, 3]


@dataclass
class Config:
    a: int = 1
    b: tuple[int, ...] = (1, 2)


def matched(n, x):
    match n:
        case 0:
            return x
        case 1 | 2:
            return x * 10
        case _:
            return -x


def matched_pair(pair, x):
    match pair:
        case (0, k):
            return x * k
        case (1, k) if k > 1:
            return x * 10
        case _:
            return -x


def matched_class(c, x):
    match c:
        case Config(a=1):
            return x
        case Config(a=k):
            return x * k


def unpacked(ns, x):
    a, *b = ns
    return a * x + sum(b)


def closed_over(n, x):
    def g(y):
        return y * n if n > 1 else y - n

    return g(x) + (lambda: n)()


def replaced(c, x):
    if c.a == 0:
        return x
    return replaced(dataclasses.replace(c, a=c.a - 1), x) + c.b[0]


TABLE = {1: 5, 2: 7}
USES: dict[str, tuple[Any, list[Any]]] = {
    "comparison with an object": (lambda c, x: x if c == Config(2, (1, 2)) else -x, [Config(1), Config(2)]),
    "comparison with a tuple": (lambda c, x: x if c == (1, 2) else -x, [(1, 2), (2, 1)]),
    "order of tuples": (lambda c, x: x if c < (1, 5) else -x, [(1, 2), (2, 1)]),
    "a constant in a tuple": (lambda c, x: x if 2 in c else -x, [(1, 2), (3, 1)]),
    "a number of the example in a list": (lambda c, x: x if x in c else -x, [[1, 2], [3, 1]]),
    "a constant among the values of a dict": (lambda c, x: x if 2 in c.values() else -x, [{"a": 1}, {"a": 2}]),
    "a set": (lambda c, x: x if x in c else -x, [{1, 2}, {3}]),
    "get": (lambda k, x: TABLE.get(k, 0) * x, [1, 3]),
    "a key": (lambda k, x: TABLE[k] * x, [1, 2, 3]),
    "in a dict": (lambda k, x: x if k in TABLE else -x, [1, 3]),
    "a list of integers, read by the example": (lambda c, x: c[x], [[5, 6, 7, 8], [1, 2, 3, -4]]),
    "a dict of integers, read by the example": (lambda c, x: c[x], [{1: 5, 2: 6, 3: 7}, {1: -5, 2: 6, 3: 0}]),
    "one of several functions": (lambda n, x: [jnp.sin, jnp.cos, jnp.tanh][n](x * 1.0), [0, 2, -1]),
    "match": (matched, [0, 2, -1]),
    "match on a tuple": (matched_pair, [(0, 1), (1, 2), (0, 0)]),
    "match on a class": (matched_class, [Config(1), Config(2)]),
    "a formatted string": (lambda n, x: {"k0": 1, "k1": 2}[f"k{n}"] * x, [0, 1]),
    "isinstance": (lambda n, x: x if isinstance(n, int) and not isinstance(n, bool) else -x, [0, True]),
    "type": (lambda n, x: x if type(n) is int else -x, [0, True]),
    "sorted": (lambda ns, x: sorted(ns)[0] * x, [[3, 1], [1, 2]]),
    "sorted, reversed": (lambda flag, x: sorted([1, 2, 3], reverse=flag)[0] * x, [True, False]),
    "the step of a range": (lambda n, x: sum(range(0, 10, n)) * x, [1, 3, -2]),
    "a range downwards": (lambda n, x: sum(range(n, -1, -1)) * x, [3, 0, -3]),
    "the length of a range": (lambda n, x: len(range(n)) * x, [3, -2]),
    "in a range": (lambda n, x: (2 in range(n), x in range(n)), [1, 3, -2]),
    "enumerate": (lambda n, x: sum(i * x for i, _ in enumerate([1, 2, 3], n)), [3, -2]),
    "the start of a sum": (lambda n, x: sum([x, x], n), [3, -2]),
    "min and max": (lambda n, x: min(n, x) + max(n, x, 2) + max([], default=n), [3, -2]),
    "round": (lambda n, x: round(x * 1.2345, n), [1, 0]),
    "int, bool, float": (lambda n, x: int(n) * x + bool(n) + float(n) / 2, [0, 3]),
    "and, or, not": (lambda n, x: (n and x) + (n or x) + (not n), [0, 3, -1]),
    "truth": (lambda n, x: x if n else -x, [0, 3, -1]),
    "is": (lambda n, x: (x if n is None else -x, n is True), [0, None, True]),
    "bits": (lambda n, x: (n & 3, n | x, n ^ x, n << 2, n >> 1, ~n), [5, -3, 0]),
    "shift by it": (lambda n, x: 1 << n, [5, 0]),
    "divmod": (lambda n, x: (divmod(x, n), divmod(n, x)), [2, -3]),
    "a list repeated": (lambda n, x: (sum([x] * n), sum([x, 1] * n), len([1, 2] * n)), [2, 0, -3]),
    "comprehensions": (lambda n, x: ([x * i for i in range(n)], [i for i in range(5) if i < n]), [2, 0]),
    "a comprehension over it": (lambda ns, x: [x * i for i in ns], [[2, 0, 3], [1, 1, 1]]),
    "a comprehension of a dict": (lambda d, x: {k: v * x for k, v in d.items()}["a"], [{"a": 2}, {"a": 3}]),
    "unpacking": (unpacked, [(1, 2, 3), (3, 4, 5)]),
    "a chain of comparisons": (lambda n, x: 0 < n < 3 <= x, [2, 0, 3]),
    "math": (lambda n, x: math.sqrt(n) * x + math.comb(n, 2) + math.gcd(n, 6), [4, 9]),
    "NumPy": (lambda n, x: np.prod((n, 2)) * x + np.arange(n).sum() + np.zeros(n).sum(), [4, 2]),
    "shapes": (lambda n, x: jnp.eye(n).sum() + jax.nn.one_hot(x, n), [4, 5]),
    "random keys": (lambda n, x: jax.random.normal(jax.random.fold_in(jax.random.key(n), n), (2,)) * x, [4, 9]),
    "lax.cond": (lambda n, x: jax.lax.cond(n > 2, lambda a: a * 2, lambda a: a, x), [4, 1]),
    "lax.fori_loop": (lambda n, x: jax.lax.fori_loop(0, n, lambda i, a: a * 2, x), [4, 1]),
    "lax.scan": (lambda n, x: jax.lax.scan(lambda a, i: (a + i, a), x * 1.0, jnp.arange(n))[0], [4, 1]),
    "lax.switch": (lambda n, x: jax.lax.switch(n, [lambda a: a, lambda a: a * 5], x), [0, 1]),
    "vmap": (lambda n, x: jax.vmap(lambda a: a * n)(jnp.ones(3) * x), [0, 1]),
    "a function inside": (closed_over, [0, 1, 3]),
    "getattr": (lambda c, x: getattr(c, "a") * x, [Config(1), Config(2)]),  # noqa: B009
    "a loop and an index": (lambda c, x: sum(x for _ in range(c.a)) + c.b[c.a - 1], [Config(1), Config(2)]),
    "dataclasses.replace": (replaced, [Config(1), Config(2)]),
}


@pytest.mark.parametrize("name", USES)
def test_use(name):
    function, values = USES[name]
    f = ab.batched(function, in_axes=(None, 0))
    for value in values:
        try:
            expected = f.loop(value, X)
        except (KeyError, ZeroDivisionError) as error:
            with pytest.raises(ab.ExampleError, match=type(error).__name__):
                f(value, X)
            continue
        for got, want in zip(ab.unbatch(f(value, X)), expected, strict=True):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(float_of(a), float_of(b), rtol=1e-5), got, want)


def float_of(x):
    return np.asarray(x, np.float64)


def test_integers_of_numpy_decide_structure_too():
    """Scalars of NumPy are known on the host; those of JAX decide arithmetic on the device."""
    f = ab.batched(lambda n, words: sum(words[:n]), in_axes=(None, 0))
    for n in (*np.arange(3), np.int8(1), 2):
        assert ab.unbatch(f(n, [[3, 1, 2], [5]])) == f.loop(int(n), [[3, 1, 2], [5]])
    g = ab.batched(lambda flag, x: x if flag else -x, in_axes=(None, 0))
    for flag in (np.True_, np.False_, True):
        np.testing.assert_allclose(g(flag, X), g.loop(flag, X))
    for n in (2, 0, 7):
        assert ab.unbatch(f(jnp.asarray(n), [[3, 1, 2], [5]])) == f.loop(n, [[3, 1, 2], [5]])


def test_an_executable_is_for_all_values():
    """`f.lower(...).compile()` takes another depth, as long as the size class is the same."""

    @ab.batched(in_axes=(None, 0))
    def power(n, x):
        return 1.0 if n == 0 else x * power(n - 1, x)

    compiled = power.lower(2, np.arange(3.0)).compile()
    np.testing.assert_allclose(compiled(2, np.arange(3.0)), np.arange(3.0) ** 2)
    np.testing.assert_allclose(compiled(3, np.arange(3.0)), np.arange(3.0) ** 3)


def test_all_bools_are_found_at_once(caplog):
    """Each attempt costs a lowering of the whole function."""
    caplog.set_level("INFO", logger="autobatch")
    f = ab.batched(
        lambda c, x: (x if c[0] else -x) + (1 if c[1] else 2) + (jnp.ones(3) if c[2] else 0), in_axes=(None, 0)
    )
    np.testing.assert_allclose(f([True, False, True], X), np.array(X)[:, None] + 3 * np.ones((3, 3)))
    assert sum("static in" in r.message for r in caplog.records) == 1
