"""Derivatives of recursions in reverse, by machine code, beside those that JAX has of the plain Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings

import autobatch as ab
from tests.backends.lanes import drawn_cases

pytestmark = pytest.mark.usefixtures("checked_memory")
RNG = np.random.default_rng(1)
P = jnp.asarray([0.5, 0.6, 0.7])


@dataclass
class Node:
    x: float
    kind: int = 0
    left: Node | None = None
    right: Node | None = None


@dataclass
class Many:
    x: float
    children: list[Many] = field(default_factory=list)


def tree(depth: int) -> Node:
    x, kind = float(RNG.normal()), int(RNG.integers(3))
    if depth == 0 or RNG.uniform() < 0.2:
        return Node(x, kind)
    return Node(x, kind, tree(depth - 1), tree(depth - 1) if RNG.uniform() < 0.8 else None)


def many(depth: int) -> Many:
    count = int(RNG.integers(0, 4)) if depth else 0
    return Many(float(RNG.normal()), [many(depth - 1) for _ in range(count)])


TREES = [tree(4) for _ in range(6)]
MANY = [many(3) for _ in range(5)]
LISTS = [RNG.uniform(0.2, 1.5, size=n).tolist() for n in RNG.integers(1, 9, 6)]


def kinds(p, t):
    if t is None:
        return p[0] * 0.1
    a, b = kinds(p, t.left), kinds(p, t.right)
    if t.kind == 0:
        return jnp.sin(a * p[1] + t.x)
    if t.kind == 1:
        return a * b * p[2]
    return a - b + p[0] * t.x


def only_some_calls_keep_floats(p, t):
    """The outermost calls of a tree keep nothing that the derivative needs: the first that does is further in."""
    if t is None:
        return p[0]
    if t.kind < 2:
        return jnp.sin(only_some_calls_keep_floats(p, t.left))
    return only_some_calls_keep_floats(p, t.left) * only_some_calls_keep_floats(p, t.right) + p[1]


def children(p, t):
    total = p[0] * t.x
    for c in t.children:
        total = total * p[1] + children(p, c)
    return jnp.tanh(total)


def several_results(p, t):
    def go(t, d):
        if t is None:
            return 0.0, p[2]
        a, b = go(t.left, d + 1)
        c, e = go(t.right, d * 2)
        return a + c * p[0] + t.x / d, jnp.cos(b) * e + p[1]

    a, b = go(t, 1)
    return a * b


def mutual(p, t):
    def even(t):
        return p[0] if t is None else t.x * odd(t.left) + odd(t.right)

    def odd(t):
        return p[1] if t is None else p[2] * even(t.left) - even(t.right) * t.x

    return even(t)


def head_and_tail(p, xs):
    def go(i):
        return 1.0 if i == len(xs) else jnp.sin(xs[i] * p[0]) + p[1] * go(i + 1)

    return go(0)


def last_calls(p, xs):
    def go(i, a, b):
        return a - 2 * b if i == len(xs) else go(i + 1, b * xs[i], a + p[0])

    return go(0, p[1], p[2])


def halves(p, xs):
    def go(low, high):
        if high - low == 1:
            return xs[low] * p[0]
        middle = (low + high) // 2
        return jnp.maximum(go(low, middle), p[1] * go(middle, high)) + p[2]

    return go(0, len(xs))


def decided_by_floats(p, xs):
    def go(x):
        return x * p[0] if x < 0.3 else p[1] * go(x * 0.5) + go(x - 0.4) * x

    return go(xs[0] * 2)


def computed_and_not_used(p, xs):
    """A square root of zero, or of less, that another block would read."""

    def go(i):
        if i == len(xs):
            return p[1]
        root = jnp.sqrt(xs[i] - xs[0] + p[2] * 0.0)
        behind = go(i + 1)
        if xs[i] == xs[0]:
            return behind * p[0]
        return root + behind if xs[i] > 100.0 else behind + xs[i] * p[2]

    return go(0)


def in_a_loop(p, xs):
    def go(n, x):
        return x if n == 0 else go(n - 1, jnp.sin(x) * p[0]) + p[1] * x

    total = p[2]
    for x in xs:
        total = total * 0.5 + go(3, x * total)
    return total


def in_a_branch(p, xs):
    def go(n, x):
        return x if n == 0 else go(n - 1, jnp.sin(x) * p[0]) + p[1] * x

    if xs[0] > 0.8:
        return go(2, xs[0] * p[2])
    return go(len(xs), p[2])


def vectors(p, t):
    if t is None:
        return jnp.ones(12) * p[0]
    return jnp.tanh(vectors(p, t.left) * p[1] + jnp.roll(vectors(p, t.right), 1) * t.x) + p[2]


def large(p, t):
    return (vectors(p, t) ** 2).sum()


def one_behind_another(p, t):
    def first(t):
        return p[0] if t is None else t.x * first(t.left) + jnp.sin(first(t.right))

    def second(t):
        return p[1] if t is None else p[2] * second(t.left) + first(t.right)

    return first(t) * second(t)


def with_loops(p, t):
    if t is None:
        return p[0]
    a, n = with_loops(p, t.left), 0
    for k in range(3):
        a = a * p[1] + t.x * k
    while a < 2.0 and n < 4:
        a, n = a + p[2], n + 1
    return jnp.sin(a) + with_loops(p, t.right)


PROGRAMS: dict[Callable[..., Any], Any] = {
    **dict.fromkeys((kinds, several_results, mutual, large, one_behind_another, with_loops), TREES),
    only_some_calls_keep_floats: [Node(1.0, 0, Node(1.0, 1, t)) for t in TREES],
    children: MANY,
    **dict.fromkeys((head_and_tail, last_calls, halves, decided_by_floats, computed_and_not_used), LISTS),
    **dict.fromkeys((in_a_loop, in_a_branch), LISTS),
}


def has_code(f) -> bool:
    held = [p.compiled.native for p in f._cache._all() if p.compiled.native is not None]
    return any(code is not None for native in held for code in native.gradients.values())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(program):
    data = PROGRAMS[program]
    f = ab.batched(program, in_axes=(None, 0))
    wanted = jax.grad(lambda p: sum(program(p, x) for x in data))(P)
    np.testing.assert_allclose(ab.grad(f)(P, data), wanted, rtol=2e-4, atol=1e-5)
    assert has_code(f)
    np.testing.assert_allclose(ab.grad(f)(P, data * 50), 50 * wanted, rtol=5e-4, atol=1e-4)


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(program=drawn_cases.programs())
def test_random_cases(program):
    main = program.function
    wanted = jax.grad(lambda p: sum(main(p, t) for t in TREES))(P)
    found = ab.grad(ab.batched(main, in_axes=(None, 0), backend="llvm"))(P, TREES)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(np.abs(wanted).max() + 1))


def fibonacci(w, x):
    return x * w if x < 0.3 else jnp.sin(w) * fibonacci(w, x * 0.5) + fibonacci(w, x - 0.4) * x


def quotient(p, t):
    """What is computed last in a block, and read by its derivative."""
    return p[0] if t is None else jnp.divide(quotient(p, t.left) + t.x, 2.0 + jnp.divide(quotient(p, t.right), p[1]))


def test_quotients_that_a_call_returns():
    wanted = jax.grad(lambda p: sum(quotient(p, t) for t in TREES))(P)
    f = ab.batched(quotient, in_axes=(None, 0), backend="llvm")
    np.testing.assert_allclose(ab.grad(f)(P, TREES), wanted, rtol=1e-4)
    assert has_code(f)


def test_by_numbers_of_the_examples():
    f, xs = ab.batched(fibonacci, in_axes=(None, 0), backend="llvm"), jnp.linspace(0.1, 4.0, 21)
    found = ab.grad(f, (0, 1))(0.7, xs)
    wanted = jax.grad(lambda w, xs: sum(fibonacci(w, x) for x in xs), (0, 1))(0.7, xs)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3)
    assert has_code(f)


def failing(w, x):
    def go(x, n):
        if n > 5:
            raise ValueError("deep")
        return x * w if x < 0.3 else w * go(x * 0.5, n + 1) + go(x - 0.4, n + 1)

    return go(x, 0)


def test_examples_that_fail_have_no_part():
    f, xs = ab.batched(failing, in_axes=(None, 0), backend="llvm", on_error="mask"), jnp.asarray([0.1, 0.5, 9.0, 2.0])
    (values, failures), (by_w, by_x) = ab.value_and_grad(f, (0, 1))(0.7, xs)
    assert failures.failed.tolist() == [False, False, True, False] and values[2] == by_x[2] == 0.0
    alone = ab.batched(failing, in_axes=(None, 0), backend="llvm")
    np.testing.assert_allclose(ab.grad(alone)(0.7, xs[jnp.asarray([0, 1, 3])]), by_w, rtol=1e-5)
    with pytest.raises(ab.ExampleError, match="example 2 .* ValueError: deep"):
        ab.grad(alone)(0.7, xs)


def test_a_deep_recursion():
    def deep(w, x):
        def go(n):
            return x if n == 0 else w * go(n - 1) + x

        return go(3000)

    f, xs = ab.batched(deep, in_axes=(None, 0), backend="llvm"), jnp.asarray([0.5, 2.0])
    turns = lambda w: jax.lax.fori_loop(0, 3000, lambda _, a: w * a + xs, xs).sum()
    np.testing.assert_allclose(ab.grad(f)(0.999, xs), jax.grad(turns)(0.999), rtol=1e-3)
    assert has_code(f)


def test_a_graph_that_is_walked_as_a_tree_is_for_xla():
    node = Node(1.0)
    for k in range(64):
        node = Node(float(k % 3), 0, node, node)
    f = ab.batched(kinds, in_axes=(None, 0))
    assert np.isfinite(ab.grad(f)(P, [node, Node(1.0)])).all()
