"""Rows that are read of arrays which differ from row to row: looked up where these lie, in values and gradients."""

from __future__ import annotations

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.page.gradients import agree, of_loop

WORDS, WIDTH = 499, 3


@pytest.fixture(autouse=True)
def narrow():
    """Loops of one width compile fast."""
    with ab.options(widths=(8,)):
        yield


@dataclass
class Node:
    word: int
    kids: list[Node]


LEAF = Node(4, [])
TREES = [Node(7, [LEAF, Node(498, [LEAF, Node(-3, [])])]), LEAF, Node(4, [Node(7, [LEAF])])]


@pytest.mark.xla
def test_per_example_gradients_of_a_table():
    """One table for each example, not for each activation."""
    rng = np.random.default_rng(0)
    p = {"b": jnp.ones(WIDTH), "emb": jnp.asarray(rng.normal(size=(WORDS, WIDTH)))}
    found = ab.per_example_grad(words)(p, TREES)
    for k, t in enumerate(TREES):
        expected = jax.grad(lambda p: words.loop(p, [t])[0])(p)
        for name in p:
            np.testing.assert_allclose(found[name][k], expected[name], rtol=1e-5, atol=1e-6, err_msg=f"{k} {name}")
    data = ab.pack([*TREES, Node(1, [Node(k, []) for k in range(80)])]).plan(words)
    text = jax.jit(ab.per_example_grad(words)).lower(p, data).compile().as_text()
    shapes = {tuple(map(int, s.split(","))) for s in re.findall(rf"f32\[((?:\d+,)*{WORDS},{WIDTH})\]", text)}
    counts = {int(np.prod(s[:-2], initial=1)) for s in shapes}
    assert counts and max(counts) < 80, "tables at once: there is room for 4 examples and some, and 80 nodes and more"


@ab.batched(in_axes=(None, 0))
def words(p, t: Node):
    h = jnp.sin(p["emb"][t.word] * p["b"])
    for kid in t.kids:
        h = h + words_of(p, kid)
    return jnp.sum(h**2)


def words_of(p, t):
    h = jnp.tanh(p["emb"][t.word])
    for kid in t.kids:
        h = h * words_of(p, kid)
    return h


@dataclass
class Owner:
    v: np.ndarray
    numbers: list[int]


READS = {
    "one": lambda v, k: v[k],
    "clip": lambda v, k: jnp.take(v, k, axis=0, mode="clip"),
    "fill": lambda v, k: jnp.take(v, k, axis=0, mode="fill", fill_value=2.0),
    "slice": lambda v, k: jax.lax.dynamic_slice_in_dim(v, k, 2),
    "several": lambda v, k: v[jnp.array([[k, 0], [1, k]])],
    "mapped": lambda v, k: jax.vmap(lambda n: v[n] * n)(jnp.array([0, 3]) + k),
    "in part": lambda v, k: v[k, 1],
}


@pytest.mark.parametrize("read", READS)
def test_rows_of_arrays_in_objects(read):
    """In a loop over numbers each turn reads the array of its object; indices past the ends do what JAX's do."""

    @ab.batched(in_axes=(None, 0))
    def function(p, owner: Owner):
        v = jnp.asarray(owner.v)
        return sum(p * jnp.sum(jnp.sin(READS[read](v, jnp.int32(p * 0) + k))) for k in owner.numbers)

    rng = np.random.default_rng(0)
    batch = [Owner(rng.normal(size=(4, 2)), ks) for ks in ([0, 3, -1], [2, 2, 7, -9], [1])]
    np.testing.assert_allclose(function(0.5, batch), function.loop(0.5, batch), rtol=1e-6)
    expected, inside = of_loop(function, 0.5, batch)
    found, data = ab.grad(function, argnums=(0, 1))(0.5, batch)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    agree(data, inside, batch)
    assert (" = scatter(" in function.lower(0.5, batch).as_text("adjoint")) == (read != "in part")


def test_second_order():
    @ab.batched(in_axes=(0, 0))
    def function(table, ks: list):
        return sum(jnp.sum(jnp.sin(table[k])) ** 2 for k in ks)

    tables, ks = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 3))), [[0, 3, 0], [2]]
    v = jnp.arange(24.0).reshape(2, 4, 3)
    of_loop = jax.grad(lambda t: sum(function.loop(t, ks)))
    expected = jax.grad(lambda t: jnp.vdot(of_loop(t), v))(tables)
    found = jax.grad(lambda t: jnp.vdot(jax.grad(lambda t: jnp.sum(function(t, ks)))(t), v))(tables)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(ab.hvp(function, (tables, ks), (v, None)), expected, rtol=1e-6)
