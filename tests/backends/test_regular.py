"""Programs whose examples all have equally many rows: their executables are those of `jit(vmap)`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

RNG = np.random.default_rng(0)
W = jnp.asarray(RNG.normal(size=(5, 5)), jnp.float32)


def model(w, x):
    h = jnp.tanh(x @ w)
    for _ in range(3):
        h = jnp.tanh(h @ w + x)
    return jnp.log(jnp.sum(h * h) + 0.01)


def rows(count):
    return jnp.asarray(RNG.normal(size=(count, 5)), jnp.float32)


@pytest.mark.xla
@pytest.mark.parametrize("count", [1, 16])
def test_rows_that_lie_in_their_places_are_not_gathered(count):
    f, x = ab.batched(model, in_axes=(None, 0), backend="xla"), rows(count)
    calls = (f, lambda w, x: ab.value_and_grad(f, (0, 1))(w, x))
    for call in calls:
        text = jax.jit(call).lower(W, x).as_text()
        assert "gather" not in text and "scatter" not in text


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33])
def test_values_and_gradients(count):
    f, x = ab.batched(model, in_axes=(None, 0), backend="xla"), rows(count)
    batched = jax.vmap(model, (None, 0))
    np.testing.assert_allclose(f(W, x), batched(W, x), rtol=2e-5, atol=1e-5)
    found = ab.grad(f, (0, 1))(W, x)
    wanted = jax.grad(lambda w, x: batched(w, x).sum(), (0, 1))(W, x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("count", [4, 17])
def test_rows_that_are_not_there_and_examples_that_fail_have_no_part(count):
    def root(w, x):
        if x[0] < -50.0:
            raise ValueError("too small")
        return jnp.sqrt(x[0] + x[1]) * w

    x = np.abs(np.asarray(rows(count)))
    f = ab.batched(root, in_axes=(None, 0), backend="xla", on_error="mask")
    x[1] = -100.0
    found = ab.grad(f)(2.0, x)
    assert np.isfinite(found)
    kept = np.delete(x, 1, 0)
    np.testing.assert_allclose(found, np.sqrt(kept[:, 0] + kept[:, 1]).sum(), rtol=1e-5)
    values, failures = f(2.0, x)
    assert np.asarray(failures.failed).tolist() == [k == 1 for k in range(count)]


def test_one_executable_for_a_class():
    """Multiples of 16 have executables of their own; the others of a class share one."""
    f = ab.batched(model, in_axes=(None, 0), backend="xla")
    for count, executables in ((64, 1), (65, 2), (72, 2), (70, 2), (80, 3), (64, 3)):
        x = rows(count)
        np.testing.assert_allclose(f(W, x), jax.vmap(model, (None, 0))(W, x), rtol=2e-5, atol=1e-5)
        assert f.cache_info().executables == executables


def cell(p, xs):
    h = jnp.zeros(5)
    for x in xs:
        r = jax.nn.sigmoid(x @ p["x"] + h @ p["h"])
        h = r * h + (1 - r) * jnp.tanh(x @ p["y"] + (r * h) @ p["z"])
    return jnp.sum(h * h)


@pytest.mark.xla
def test_a_loop_runs_once_for_all_matrices_that_it_reads():
    """Value, its turns again with what the derivative reads, and backward: three loops, however many matrices."""
    p = {name: jnp.asarray(RNG.normal(size=(5, 5)), jnp.float32) for name in "xhyz"}
    xs = jnp.asarray(RNG.normal(size=(4, 12, 5)), jnp.float32)
    f = ab.batched(cell, in_axes=(None, 0), backend="xla")
    text = jax.jit(lambda p, xs: ab.value_and_grad(f)(p, xs)).lower(p, xs).compile().as_text()
    assert text.count(" while(") <= 3
    found, wanted = ab.grad(f)(p, xs), jax.grad(lambda p: jax.vmap(cell, (None, 0))(p, xs).sum())(p)
    for name in p:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-3, atol=1e-4)
