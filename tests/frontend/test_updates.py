"""`x.at[index].add(value)` and its kin: JAX arrays updated at indices of structure, computed ones, slices, arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.frontend.batches import Programs, agree, refused
from tests.frontend.examples import DOCS, LISTS

W = jnp.array([0.5, -1.0, 2.0, 0.25])
X = jnp.arange(6.0).reshape(3, 2) * 0.3

programs = Programs()


@programs.over(LISTS)
def histogram(xs):
    counts = jnp.zeros(10)
    for x in xs:
        counts = counts.at[x].add(1.0)
    return counts


@programs.over(DOCS, W)
def chained_updates(w, d):
    for i, f in zip(d.words, d.fs):
        w = w.at[i % 4].add(f * w[0])
    return w


@programs.over(LISTS, X)
def slices_and_tuples(x, xs):
    x = x.at[1:, 0].mul(2.0).at[:, 1].add(x[:, 0] * len(xs))
    return x.at[jnp.array([0, 2])].max(x[1]), x.at[0, len(xs) % 2].min(-1.0), x.at[(1, 0)].divide(2.0)


@programs.over(LISTS, X)
def computed_indices(x, xs):
    i = jnp.argmax(x[:, 0] * (1 if len(xs) % 2 else -1))
    return x.at[i].set(0.0), x.at[i, :].apply(jnp.exp), x.at[i, 1].get()


@programs.over(LISTS, X)
def out_of_range(x, xs):
    n = len(xs) + 1
    return x.at[n].set(9.0), x.at[n].get(mode="fill", fill_value=3.0), x.at[-1].subtract(1.0)


@programs.over(LISTS)
def last_position(xs):
    seen, i = jnp.zeros(10, int), 0
    while i < len(xs):
        seen = seen.at[xs[i]].set(i)
        i += 1
    return seen


@programs.over(DOCS, W)
def behind_a_branch(w, d):
    updated = w.at[d.words[0] % 4] if d.words else w.at[0]
    return updated.set(7.0)


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def test_gradients_flow_through_updates():
    def f(w, d):
        return sum((chained_updates(w, d).at[1].set(x) @ w for x in d.fs), 0.0)

    expected = jax.grad(lambda w: sum(f(w, d) for d in DOCS))(W)
    for backend in ("xla", "interpret"):
        found = ab.grad(ab.batched(f, in_axes=(None, 0), backend=backend))(W, DOCS)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_what_jax_does_not_update_is_refused():
    refused(lambda x, xs: x.at[x > len(xs)].set(0.0), LISTS, X, saying="boolean indices must be concrete")
    refused(lambda x, xs: x.at[0].append(1.0), LISTS, X, saying="has no method 'append'")
    refused(lambda xs: jnp.stack([x * 1.0 for x in xs]).at[0].set(1.0), LISTS, saying="has no .at")
