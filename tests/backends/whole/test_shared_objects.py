"""Objects that all examples share, among which computed numbers choose: values, and derivatives by what they hold, on
every back end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence

rng = np.random.default_rng(1)


@dataclass
class Node:
    at: float
    k: int
    v: np.ndarray
    name: str = "node"
    marks: list[float] = field(default_factory=list)
    low: Node | None = None
    high: Node | None = None


class Table:
    def __init__(self, weight, nodes):
        self.weight, self.nodes = weight, nodes

    def score(self, i, x):
        return self.nodes[i].at * x + self.weight


def tree(depth):
    marks = rng.normal(size=rng.integers(4)).tolist()
    made = Node(float(rng.normal()), int(rng.integers(3)), rng.normal(size=3), f"node {depth}", marks)
    if depth:
        made.low, made.high = tree(depth - 1), tree(depth - 1)
    return made


def walk(t, x):
    while t.low is not None:
        t = t.low if x < t.at else t.high
    return t.at * x + t.v[t.k]


def nearest(f, x):
    best = f[0]
    for t in f:
        if abs(t.at - x) < abs(best.at - x):
            best = t
    return best.at * x + best.v.sum()


def below(t, x):
    if t.low is None:
        return t.at * x
    return below(t.low if x < t.at else t.high, x) + t.at


def summed(f, x):
    return sum(below(t, x) for t in f)


def listed(f, x):
    found = [below(t, x) for t in f]
    return max(found) * found[1]


def looped(f, x):
    total = 0.0
    for t in f:
        total += below(t, x)
    return total


def marked(f, x):
    total = 0.0
    for mark in f[int(abs(x) * 2) % 5].marks:
        total = total * x + mark
    return total


def stacked(t, x):
    todo, total = [t], 0.0
    while todo:
        node = todo.pop()
        total += node.at * x
        if node.low is not None:
            if x < node.at + 0.5:
                todo.append(node.low)
            if x > node.at - 0.5:
                todo.append(node.high)
    return total


def first(f, x):
    hit = None
    for t in f:
        if t.at > x and hit is None:
            hit = t
    return 0.0 if hit is None else hit.at * x + hit.k


def scored(table, x):
    return table.score(int(abs(x) * 2) % 5, x)


def same(f, x):
    a, b = f[int(abs(x) * 2) % 5], f[int(abs(x) * 3) % 5]
    return x if a is b else a.at * b.at * x


def smallest(f, x):
    return min(f, key=lambda t: abs(t.at - x)).at * x


def signed(x):
    return 0.5 if x != x else math.copysign(1.0, x)


def twice(f, x):
    """A function that is called twice, before and behind a choice: what it is inside has one name each time."""
    y, _ = below(f[0], x), signed(x)
    nearer = min([f[0], f[1]], key=lambda t: abs(t.at - x))
    return y * nearer.at * signed(x)


def too_far(f, x):
    return f[int(abs(x) * 4.5)].at * x


FOREST = [tree(1) for _ in range(7)]
SHARED = {walk: tree(5), below: tree(5), stacked: tree(4), scored: Table(0.5, FOREST[:5])}
FUNCTIONS = [
    walk, nearest, below, summed, listed, looped, marked, stacked, first, scored, same, smallest, twice, too_far,
]  # fmt: skip
X = [0.1, -0.3, 0.77, 1.6, -2.4, 0.9]


def long(function):
    return pytest.param(function, marks=pytest.mark.long)


@pytest.mark.parametrize("function", [long(f) if f in (below, summed, listed, looped) else f for f in FUNCTIONS])
def test_values_and_derivatives(function):
    f = ab.batched(function, in_axes=(None, 0), on_error="mask")
    with jax.enable_x64(True):
        check_equivalence(
            f, X, (SHARED.get(function, FOREST),), grads="differences", jit=False,
            backends=("interpret", "xla", "llvm"),
        )  # fmt: skip


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm"])
def test_a_string_of_one_is_read(backend):
    """Rows of arrays hold no strings: the objects are each example's own then."""

    def named(t, x):
        while t.low is not None:
            t = t.low if x < t.at else t.high
        return t.at if t.name == "node 0" else x

    f = ab.batched(named, in_axes=(None, 0), backend=backend)
    wanted = [named(SHARED[walk], x) for x in X]
    np.testing.assert_allclose(f(SHARED[walk], np.float32(X)), wanted, rtol=1e-5)


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm"])
def test_inside_transformations_of_jax(backend):
    x, shared = jnp.asarray(X), SHARED[walk]
    f = ab.batched(walk, in_axes=(None, 0), backend=backend)
    wanted = f.loop(shared, np.asarray(x))
    np.testing.assert_allclose(jax.jit(lambda x: f(shared, x))(x), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(lambda x: f(shared, x))(jnp.stack([x, x]))[1], wanted, rtol=1e-5)
    found = jax.jit(jax.grad(lambda x: f(shared, x).sum()))(x)
    np.testing.assert_allclose(found, ab.grad(f, 1)(shared, x), rtol=1e-5)


def test_forward_mode():
    f = ab.batched(walk, in_axes=(None, 0), backend="xla")
    shared, x = SHARED[walk], np.asarray(X, np.float32)
    tangent = ab.grad(f)(shared, x)  # of the structure of the argument
    _, dots = ab.jvp(f, (shared, x), (tangent, np.zeros_like(x)))
    _, pull = ab.vjp(f, shared, x)
    by_rows = [pull(np.eye(len(x), dtype=np.float32)[k])[0] for k in range(len(x))]
    numbers = jax.tree.leaves(jax.tree.map(lambda n: flat(n), [tangent], is_leaf=lambda n: isinstance(n, Node)))
    wanted = [sum(float(a) * float(b) for a, b in zip(flat(row), numbers, strict=True)) for row in by_rows]
    np.testing.assert_allclose(dots, wanted, rtol=1e-4)


def flat(node):
    if node is None:
        return []
    return [float(node.at), *map(float, node.v), *map(float, node.marks), *flat(node.low), *flat(node.high)]


def test_objects_that_grow_are_of_few_programs():
    f = ab.batched(walk, in_axes=(None, 0), backend="llvm")
    shared, x = tree(5), np.asarray(X, np.float32)
    f(shared, x)
    before = f.cache_info().specialisations
    leaf = shared
    while leaf.low is not None:
        leaf = leaf.low
    leaf.low, leaf.high = tree(0), Node(9.0, 1, np.ones(3))
    np.testing.assert_allclose(f(shared, x), f.loop(shared, x), rtol=1e-5)
    assert f.cache_info().specialisations == before + 1  # 63 nodes and 65
    leaf.high.low, leaf.high.high = tree(1), tree(1)
    np.testing.assert_allclose(f(shared, x), f.loop(shared, x), rtol=1e-5)
    assert f.cache_info().specialisations == before + 1
