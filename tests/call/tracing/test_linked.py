"""Numbers of the examples that move, or that are known under `jax.jit` alone, where structure is traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from tests.call.tracing.programs import Floats, chart, generated, library, memo
from tests.call.tracing.test_programs import BATCH, agree, machine, machines, shared, total


def looped(f: Any, p: Any, batch: list[Any]) -> Any:
    """The gradients of the plain function, by each example."""
    return [jax.grad(f, argnums=1)(p, x) for x in batch]


@pytest.mark.parametrize("program", (chart, memo, library), ids=lambda f: f.__name__)
def test_gradients_by_the_examples(program: Any) -> None:
    def one(p: Any, xs: Floats) -> Any:
        return total(program(p, xs)) + 0 * p["w"]

    f, p = ab.batched(one, in_axes=(None, 0)), shared()
    wanted = looped(one, p, BATCH)
    both, found = ab.grad(f, argnums=(0, 1))(p, ab.pack(BATCH).plan(f))
    agree(ab.unbatch(found), wanted)
    of_shared = jax.grad(lambda p: sum(one(p, xs) for xs in BATCH))(p)
    for name in p:
        np.testing.assert_allclose(both[name], of_shared[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", (chart, generated), ids=lambda f: f.__name__)
def test_batches_that_jit_knows_alone(program: Any) -> None:
    def one(p: Any, xs: Floats) -> Any:
        return total(program(p, xs)) + 0 * p["w"]

    f, p = ab.batched(one, in_axes=(None, 0)), shared()
    data = ab.pack([*BATCH, *BATCH[::-1]]).plan(f)
    step = jax.jit(lambda p, b: jax.value_and_grad(lambda p: f(p, b).sum())(p))
    for indices in ([0, 1, 2, 3], [7, 5, 3, 1], [2, 2, 0, 1]):
        chosen = [(BATCH + BATCH[::-1])[k] for k in indices]
        value, found = step(p, data[np.array(indices)])
        wanted, of_shared = jax.value_and_grad(lambda p, c=chosen: sum(one(p, xs) for xs in c))(p)
        np.testing.assert_allclose(value, wanted, rtol=1e-5)
        for name in p:
            np.testing.assert_allclose(found[name], of_shared[name], rtol=1e-4, atol=1e-5)


def test_floats_that_move() -> None:
    f, p = ab.batched(chart, in_axes=(None, 0)), shared()
    batch = ab.pack(BATCH).plan(f)

    def loss(floats: Any) -> Any:
        return f(p, batch.with_floats(floats)).sum()

    wanted = np.concatenate(looped(chart, p, BATCH))
    for way in (jax.grad(loss), jax.jit(jax.grad(loss))):
        (found,) = way(batch.floats()).values()
        np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=1e-4, atol=1e-5)
    doubled = batch.with_floats({n: 2 * x for n, x in batch.floats().items()})
    agree(ab.unbatch(f(p, doubled)), [chart(p, [2 * x for x in xs]) for xs in BATCH])


def powers(p: Any, x: Any, n: Any) -> Any:
    held = {k: x[k] * p["w"] for k in range(len(x))}
    for k in range(n):
        held[k % len(x)] = jnp.tanh(held[(k + 1) % len(x)] + x[0])
    return sum(held.values())


def test_arrays_that_jax_traces() -> None:
    f, p = ab.batched(powers, in_axes=(None, 0, 0)), shared()
    x, n = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.array([0, 2, 3, 5])
    wanted = [powers(p, x[k], int(n[k])) for k in range(4)]
    np.testing.assert_allclose(f(p, x, n), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda x: f(p, x, n))(x), wanted, rtol=1e-5)
    gradients = [jax.grad(powers, argnums=1)(p, x[k], int(n[k])) for k in range(4)]
    np.testing.assert_allclose(ab.grad(f, argnums=1)(p, x, n), gradients, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: f(p, x, n).sum())(jnp.asarray(x)), gradients, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda n: f(p, x, n))(n), wanted, rtol=1e-5)  # XLA calls machine code


@dataclass
class Node:
    value: float
    weights: Any
    below: list[Node]


def folded(p: Any, node: Node, scale: Any) -> Any:
    """A tree, whose values meet in a dict."""
    by_depth: dict[int, Any] = {}

    def walk(node: Node, depth: int) -> None:
        by_depth[depth] = by_depth.get(depth, 0.0) + jnp.sum(node.weights) * node.value * scale
        for child in node.below:
            walk(child, depth + 1)

    walk(node, 0)
    return sum(p["w"] ** k * x for k, x in by_depth.items())


def tree(rng: Any, depth: int) -> Node:
    weights = rng.normal(size=(2,)).astype(np.float32)
    below = [tree(rng, depth - 1) for _ in range(int(rng.integers(0, 3)))] if depth else []
    return Node(float(rng.normal()), weights, below)


@dataclass
class Weighted:
    value: float
    weights: Any


def scaled_up(p: Any, rows: list[Weighted]) -> Any:
    """Arrays that differ in shape between examples."""
    held: dict[int, Any] = {}
    for k, row in enumerate(rows):
        held[k % 2] = held.get(k % 2, 0.0) + jnp.sum(row.weights * p["w"]) * row.value
    return sum(held.values())


def test_arrays_that_differ_in_shape() -> None:
    rng = np.random.default_rng(1)
    batch = [[Weighted(float(k), rng.normal(size=n).astype(np.float32)) for k in range(n + 1)] for n in (1, 2, 1)]
    f, p = ab.batched(scaled_up, in_axes=(None, 0)), shared()
    found = ab.unbatch(ab.grad(f, argnums=1)(p, batch))
    for rows, slopes in zip(batch, found, strict=True):
        for row, slope in zip(rows, slopes, strict=True):
            np.testing.assert_allclose(slope.weights, np.full_like(row.weights, p["w"] * row.value), rtol=1e-5)
            np.testing.assert_allclose(slope.value, np.sum(row.weights * p["w"]), rtol=1e-5)


def test_steps_of_an_epoch() -> None:
    f, p = ab.batched(chart, in_axes=(None, 0)), shared()
    data = ab.pack(BATCH).plan(f)
    wanted = [chart(p, xs) for xs in BATCH]
    assert np.allclose(jax.jit(f)(p, data[:2]), wanted[:2])  # which it is planned for while it is traced
    _, found = jax.lax.scan(lambda c, b: (c, f(p, b)), 0, data.epoch([[0, 1], [2, 3]]))
    np.testing.assert_allclose(found.reshape(-1), wanted, rtol=1e-5)


def test_failed_examples_have_no_derivative() -> None:
    f = ab.batched(lambda p, xs: {k: x for k, x in enumerate(xs)}[1] * p["w"], in_axes=(None, 0), on_error="mask")
    p = shared()
    found = ab.grad(f, argnums=1)(p, [[1.0, 2.0], [3.0], [4.0, 5.0]])
    agree(ab.unbatch(found), [[0.0, p["w"]], [0.0], [0.0, p["w"]]])


def test_what_cannot_be_packed_has_no_derivative() -> None:
    f, p = ab.batched(lambda p, xs: sum(xs.values()) * p["w"], in_axes=(None, 0)), shared()
    with pytest.raises(ab.UnsupportedError, match="packed examples"):
        ab.grad(f, argnums=1)(p, [{0: 1.0}, {1: 2.0, b"a": 2.0}])


def test_arguments_that_are_packed_together() -> None:
    rng = np.random.default_rng(0)
    trees, scales = [tree(rng, 3) for _ in range(5)], [float(x) for x in rng.normal(size=5)]
    f, p = ab.batched(folded, in_axes=(None, 0, 0)), shared()
    wanted = [folded(p, t, s) for t, s in zip(trees, scales, strict=True)]
    out, pull = ab.vjp(f, p, trees, scales)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)
    ones = [1.0, 2.0, 0.0, -1.0, 0.5]
    _, of_trees, of_scales = pull(jnp.array(ones))
    slopes = [jax.grad(folded, argnums=2)(p, t, s) * c for t, s, c in zip(trees, scales, ones, strict=True)]
    np.testing.assert_allclose(ab.unbatch(of_scales), slopes, rtol=1e-4, atol=1e-6)
    first = ab.unbatch(of_trees)[1]
    by_hand = folded(p, Node(1.0, trees[1].weights, []), scales[1])
    np.testing.assert_allclose(first.value, 2.0 * by_hand, rtol=1e-4)
    pairs = f.pack(trees, scales)
    np.testing.assert_allclose(jax.jit(f)(p, *pairs.args), wanted, rtol=1e-5)


def test_forward_mode() -> None:
    f, p = ab.batched(chart, in_axes=(None, 0)), shared()
    _, dots = ab.jvp(f, (p, BATCH), (None, BATCH))
    wanted = [jax.jvp(lambda xs: chart(p, xs), (xs,), (xs,))[1] for xs in BATCH]
    np.testing.assert_allclose(dots, wanted, rtol=1e-4, atol=1e-6)
    found = ab.hvp(f, (p, BATCH), (None, BATCH), argnums=1)
    curved = [jax.jvp(jax.grad(lambda xs: chart(p, xs)), (xs,), (xs,))[1] for xs in BATCH]
    agree(ab.unbatch(found), curved)


def test_integers_of_a_batch_that_changed_are_noticed() -> None:
    f = ab.batched(powers, in_axes=(None, 0, 0))
    pairs = f.pack([[1.0, 2.0], [3.0]], [1, 2])
    leaves, structure = jax.tree.flatten(pairs)
    changed = [x + 1 if x.dtype == np.int32 and x.shape and x.shape[0] >= 2 else x for x in leaves]
    with pytest.raises((ab.PlanError, Exception), match="stale plan|given up|changed"):
        jax.block_until_ready(jax.jit(f)(shared(), *jax.tree.unflatten(structure, changed).args))


@settings(max_examples=2)
@given(st.lists(machines, min_size=1, max_size=4))
def test_a_machine_by_its_numbers(batch: list[Any]) -> None:
    f, p = ab.batched(lambda p, x: machine(p, x)[0] + 0 * p["w"], in_axes=(None, 0)), shared()
    found = ab.unbatch(ab.grad(f, argnums=1)(p, batch))
    for (_, numbers), x in zip(found, batch, strict=True):
        code = x[0]
        wanted = jax.grad(lambda xs, c=code: machine(p, (c, xs))[0] + 0 * p["w"])(x[1])
        np.testing.assert_allclose(numbers, wanted, rtol=1e-4, atol=1e-5)
