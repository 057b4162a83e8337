"""What an example that fails has computed reaches no derivative: none of its neighbours, nor of shared arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

BACKENDS = ("interpret", "xla")


def straight(p: Any, x: Any) -> Any:
    y = jnp.sqrt(p * x)
    z = p * jnp.log(y) + p ** (x * 0.5)
    assert x * p > 0
    return z + y


def in_a_loop(p: Any, x: Any) -> Any:
    y = x
    while y < 5.0 * p:
        y = y + p * jnp.sqrt(y) + 0.5
        assert not jnp.isnan(y)
    return y * p


def in_a_recursion(p: Any, x: Any) -> Any:
    y = p * jnp.sqrt(x)
    if y > 1.2:
        return in_a_recursion(p, x - 1.0) + y
    assert x > 0
    return y


def of_vectors(p: Any, x: Any) -> Any:
    v = jnp.sqrt(jnp.stack([x, x + 1, x + 2]))
    h = jnp.tanh(v @ (p * jnp.arange(9.0).reshape(3, 3) / 9))
    if h.sum() > 0.5:
        h = h * jnp.log(x)
    assert x > -0.5
    return h.sum()


@dataclass
class Node:
    x: float
    children: list[Node]


def of_trees(p: Any, node: Node) -> Any:
    below = sum(of_trees(p, child) for child in node.children)
    y = jnp.sqrt(p * node.x) + p * below
    assert y > 0
    return jnp.log(y) * p + y


FUNCTIONS = (straight, in_a_loop, in_a_recursion, of_vectors, of_trees)
NUMBERS = {in_a_recursion: [4.0, -2.0, 2.5, 3.0]}


def data_of(function: Any) -> tuple[Any, Any, list[int]]:
    """A batch, those of its examples that do not fail, and where they are."""
    if function is of_trees:
        leaf = [Node(x, []) for x in (1.0, 2.0, -1.0, 3.0)]
        trees = [Node(2.0, leaf[:2]), Node(1.0, leaf[1:]), Node(0.5, [leaf[3]]), Node(-2.0, [leaf[0]])]
        return trees, [trees[0], trees[2]], [0, 2]
    xs = NUMBERS.get(function, [1.0, -2.0, 4.0, 2.0])
    kept = [k for k, x in enumerate(xs) if x > 0]
    return jnp.asarray(xs), jnp.asarray([xs[k] for k in kept]), kept


@pytest.mark.parametrize(
    ("function", "backend"), [(f, b) for f in FUNCTIONS for b in BACKENDS if (f, b) != (straight, "xla")]
)
def test_gradients_are_those_of_the_others(function: Any, backend: str) -> None:
    batch, fine, kept = data_of(function)
    masking = ab.batched(function, in_axes=(None, 0), backend=backend, on_error="mask")
    _, failures = masking(0.8, batch)
    assert np.flatnonzero(~np.asarray(failures.failed)).tolist() == kept
    oracle = jax.grad(lambda p: sum(function(p, x) for x in fine))(0.8)
    assert np.isfinite(oracle)
    if function is of_trees:
        assert_same(
            jax.grad(lambda p: jnp.sum(masking(p, batch)[0]))(0.8), oracle, "of shared arguments", tolerance=1e-4
        )
        return
    of_shared, of_examples = ab.grad(masking, argnums=(0, 1))(0.8, batch)
    assert_same(of_shared, oracle, "of shared arguments", tolerance=1e-4)
    expected = np.zeros(len(batch), np.float32)
    for k in kept:
        expected[k] = jax.grad(lambda x: function(0.8, x))(batch[k])
    assert_same(of_examples, expected, "of examples", tolerance=1e-4)


@pytest.mark.parametrize("function", [straight, in_a_loop], ids=lambda f: f.__name__)
def test_curvature_is_that_of_the_others(function: Any) -> None:
    batch, fine, _ = data_of(function)
    found = ab.hvp(ab.batched(function, in_axes=(None, 0), on_error="mask"), (0.8, batch), (1.0, None))
    expected = jax.grad(jax.grad(lambda p: sum(function(p, x) for x in fine)))(0.8)
    assert_same(found, expected, function.__name__, tolerance=1e-3)


def test_a_residual_that_happens_to_be_zero_keeps_its_second_derivative() -> None:
    """Its cotangent is zero, as those of examples that have failed are; its tangent is not."""

    @ab.batched(in_axes=(None, 0), on_error="mask")
    def squares(p: Any, x: Any) -> Any:
        y = p * x
        while y > 10.0:
            y = y * 0.5
        assert x >= 0
        return (y - 2.0) ** 2

    xs = jnp.asarray([2.0, 3.0, -1.0])
    assert_same(ab.hvp(squares, (1.0, xs), (1.0, None)), 2.0 * 4 + 2.0 * 9, "curvature")


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_inside_jit(backend: str) -> None:
    batch, fine, _ = data_of(straight)
    masking = ab.batched(straight, in_axes=(None, 0), backend=backend, on_error="mask")
    found = jax.jit(jax.grad(lambda p, xs: jnp.sum(masking(p, xs)[0])))(0.8, batch)
    assert_same(found, jax.grad(lambda p: sum(straight(p, x) for x in fine))(0.8), "inside jit", tolerance=1e-4)


@pytest.mark.parametrize("loops", ["auto", "xla"])
def test_an_example_that_has_failed_enters_no_loop(loops):
    """Doubling never ends below zero; the check stands in front of the loop, and is no part of it."""

    def doubled(x):
        assert x > 0.0, "not positive"
        for _ in range(3):
            while x < 100.0:
                x = x * 2.0
            x = x - 50.0
        return x

    with ab.options(loops=loops, max_iterations=1 << 29):
        found, failed = ab.batched(doubled, on_error="mask")(jnp.float32([1.0, -2.0, 3.0, -4.0]))
    assert failed.failed.tolist() == [False, True, False, True]
    np.testing.assert_allclose(found[jnp.array([0, 2])], [doubled(1.0), doubled(3.0)])
