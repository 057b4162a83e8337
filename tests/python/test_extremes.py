"""`max` and `min` of lists with NaN, as Python has them: NaN is the result where it comes first and nowhere else, and
the first of equal elements has the derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

NAN, INF = math.nan, math.inf
LISTS = [
    [1.0, NAN, 2.0],
    [NAN, 1.0, 2.0],
    [2.0, NAN],
    [NAN],
    [NAN, NAN, 3.0],
    [-INF, NAN, NAN],
    [INF, NAN, INF],
    [1.0, 1.0, NAN, 0.5, 1.0],
    [NAN, INF],
    [-2.0, NAN, NAN, -3.0],
]


@dataclass
class Tree:
    x: float
    children: list[Tree]


def given(xs: list[float], w):
    return max(xs) * w, min(xs) * w


def mapped(xs: list[float], w):
    return max([x * w for x in xs]), min(x * w for x in xs)


def with_default(xs: list[float], w):
    return max((x * w for x in xs if x < 1.5), default=-7.0), min((x * w for x in xs if x > 1.5), default=9.0)


def nested(xs: list[float], w):
    rows = [[x * w, w, x] for x in xs]
    return max(max(r) for r in rows), min([min(r) for r in rows])


def appended(xs: list[float], w):
    made, x = [], 0.5
    while x < 20 * w:
        made.append(x)
        x = x * 2 + 0.25
    made += xs
    return max(made) + w, min(made) * w


def emptied(xs: list[float], w):
    left = list(xs)
    while len(left) > 1 and left[-1] != 2.0:
        left.pop()
    return max(left) * w, min(left) * w


def by_key(xs: list[float], w):
    return max(xs, key=lambda x: x * w) * w, min(xs, key=lambda x: -x * w) * w


def of_three(xs: list[float], w):
    return max(xs[0], xs[-1], w) * w, min(w, xs[-1], xs[0]) * w


def carried(xs: list[float], w):
    best = low = w
    for x in xs:
        best, low = max(best, x * w), min(x * w, low)
    return best, low


def vectors(xs: list[float], w):
    """As NumPy has it: NaN stays."""
    a = jnp.stack([jnp.array([x * w, w]) for x in xs])
    return jnp.max(a), jnp.min(a)


def deepest(t: Tree, w):
    return t.x * w if not t.children else max([deepest(c, w) for c in t.children]) * 0.5 + w


def least(t: Tree, w):
    return t.x if not t.children else min(least(c, w) * w for c in t.children)


OF_LISTS = [given, mapped, with_default, nested, appended, emptied, by_key, of_three, carried, vectors]
TREES = [
    Tree(
        0.0,
        [Tree(x, []) if n % 2 else Tree(0.0, [Tree(x, []), Tree(y, [])]) for n, (x, y) in enumerate(zip(xs, xs[::-1]))],
    )
    for xs in LISTS
]


def expected(f, examples, w):
    return [[float(y) for y in jax.tree.leaves(f(x, w))] for x in examples]


@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
@pytest.mark.parametrize("f", [*OF_LISTS, deepest, least], ids=lambda f: f.__name__)
def test_nan_counts_where_it_comes_first(f, backend):
    examples = TREES if f in (deepest, least) else LISTS
    batched = ab.batched(f, in_axes=(0, None), backend=backend)
    found = np.stack([np.asarray(y) for y in jax.tree.leaves(batched(examples, 1.25))], 1)
    np.testing.assert_allclose(found, expected(f, examples, np.float32(1.25)), rtol=1e-6)


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm"])
@pytest.mark.parametrize("f", [given, mapped, nested, carried, deepest, least], ids=lambda f: f.__name__)
def test_the_derivative_is_that_of_what_was_taken(f, backend):
    examples = TREES if f in (deepest, least) else LISTS

    def total(x, w):
        return sum(jax.tree.leaves(f(x, w)))

    batched = ab.batched(total, in_axes=(0, None), backend=backend)
    found = ab.per_example_grad(batched, argnums=1)(examples, 1.25)
    plain = [jax.grad(total, argnums=1)(x, 1.25) for x in examples]
    np.testing.assert_allclose(found, plain, rtol=1e-6)
