"""Modules of Flax and Equinox in per-example code: arguments, free variables that are updated in place, optimisers."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close, trees

FOREST = trees()


@pytest.fixture
def nnx():
    return pytest.importorskip("flax.nnx")


def recurrent(nnx):
    """A class of modules whose method is the user's, with a layer of the library inside."""

    class Cell(nnx.Module):
        def __init__(self):
            self.dense = nnx.Linear(4, 2, rngs=nnx.Rngs(0))

        def __call__(self, a, b, x):
            return jnp.tanh(self.dense(jnp.concatenate([a, b])) + x)

    return Cell()


@ab.batched(in_axes=(None, 0))
def encode(cell, t):
    if t.left is None:
        return jnp.ones(2) * t.x / 4
    return cell(encode(cell, t.left), encode(cell, t.right), t.x)


@ab.batched(in_axes=(None, 0))
def energy(cell, t):
    return jnp.sum(encode(cell, t) ** 2)


def same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        close(a, b)


def test_a_module_of_flax_is_a_shared_argument(nnx):
    """Its gradient, by nnx.grad and by ab.grad, is that of the loop; its optimiser updates it in place."""
    optax = pytest.importorskip("optax")
    cell = recurrent(nnx)
    expected = nnx.grad(lambda c: sum(energy.loop(c, FOREST)))(cell)
    gradient = nnx.grad(lambda c: energy(c, FOREST).sum())(cell)
    same(gradient, expected)
    same(ab.grad(energy)(cell, FOREST), expected)
    before = energy(cell, FOREST).sum()
    nnx.Optimizer(cell, optax.sgd(0.01), wrt=nnx.Param).update(cell, gradient)
    close(energy(cell, FOREST), energy.loop(cell, FOREST))
    assert energy(cell, FOREST).sum() < before


def test_the_parameters_of_flax_apart_from_the_module(nnx):
    graph, state = nnx.split(recurrent(nnx))
    expected = jax.grad(lambda s: sum(energy.loop(nnx.merge(graph, s), FOREST)))(state)
    same(jax.jit(jax.grad(lambda s, b: energy(nnx.merge(graph, s), b).sum()))(state, energy.pack(FOREST)), expected)
    inside = ab.batched(lambda s, t: encode(nnx.merge(graph, s), t), in_axes=(None, 0))
    with pytest.raises(ab.UnsupportedError, match="make it outside"):
        inside(state, FOREST)


def test_modules_of_flax_with_parameters_apart():
    """The older kind of modules: `module.apply(parameters, ...)`."""
    nn, optax = pytest.importorskip("flax.linen"), pytest.importorskip("optax")
    cell = nn.GRUCell(features=3)
    words = [[0.5, 1.0], [], [2.0, -1.0, 0.25]]
    p = cell.init(jax.random.key(0), jnp.zeros(3), jnp.zeros(1))

    @ab.batched(in_axes=(None, 0))
    def final(p, xs):
        h = jnp.ones(3) / 2
        for x in xs:
            h, _ = cell.apply(p, h, jnp.stack([x]))
        return jnp.sum(h**2)

    gradient = jax.grad(lambda p: final(p, words).sum())(p)
    same(gradient, jax.grad(lambda p: sum(final.loop(p, words)))(p))
    same(ab.grad(final)(p, words), gradient)
    optimiser = optax.adam(1e-2)
    updates, _ = optimiser.update(gradient, optimiser.init(p), p)
    assert final(optax.apply_updates(p, updates), words).sum() < final(p, words).sum()


def test_a_module_of_flax_in_a_closure_is_read_again(nnx):
    """Such modules are changed in place, by nnx.Optimizer and nnx.update: no program may keep what they were."""
    cell, layer = recurrent(nnx), nnx.Linear(1, 1, rngs=nnx.Rngs(1))

    @ab.batched
    def f(t):
        if t.left is None:
            return layer(jnp.stack([t.x])).repeat(2)
        return cell(f(t.left), f(t.right), t.x)

    close(f(FOREST), f.loop(FOREST))
    for module in (cell, layer):
        nnx.update(module, jax.tree.map(lambda x: 2 * x + 1, nnx.state(module)))
        close(f(FOREST), f.loop(FOREST))
    assert f.cache_info().specialisations == 1


def test_a_layer_of_equinox_in_a_closure():
    """Called as it is: gradients flow to it, and another layer in its place is seen."""
    eqx = pytest.importorskip("equinox")
    xs = np.arange(6, dtype=np.float32).reshape(2, 3)

    def total(layer):
        return ab.batched(lambda x: jnp.sum(layer(x) ** 2))(xs).sum()

    layer = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    same(eqx.filter_grad(total)(layer), eqx.filter_grad(lambda m: sum(jnp.sum(m(x) ** 2) for x in xs))(layer))
    holder = SimpleNamespace(layer=layer)
    f = ab.batched(lambda x: holder.layer(x))
    close(f(xs), f.loop(xs))
    holder.layer = eqx.nn.Linear(3, 2, key=jax.random.key(1))
    close(f(xs), f.loop(xs))


def test_sparse_matrices_of_jax():
    sparse = pytest.importorskip("jax.experimental.sparse")
    xs = np.arange(6, dtype=np.float32).reshape(2, 3)
    held = {"m": sparse.BCOO.fromdense(jnp.eye(3) * 2)}
    f = ab.batched(lambda x: held["m"] @ x)
    close(f(xs), 2 * xs)
    held["m"] = sparse.BCOO.fromdense(jnp.eye(3) * 5)
    close(f(xs), 5 * xs)
    close(ab.batched(lambda m, x: m @ x, in_axes=(None, 0))(held["m"], xs), 5 * xs)
