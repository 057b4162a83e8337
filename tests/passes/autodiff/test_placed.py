"""Derivatives of lists of structure that are laid out in arrays, because numbers decide what is read of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

W = jnp.float32(0.7)
LISTS = [[0.5, -1.0, 2.0], [1.5], [0.3, 0.9, -0.4, 1.1]]


def chosen(w: Any, xs: Any) -> Any:
    """Elements that are computed, of which numbers choose some."""
    ys = [jnp.sin(w * x) * x for x in xs]
    total, k = 0.0, 0
    while k < 2:
        at = int(w * 3 + total) % len(xs)
        total = total + ys[at] ** 2 * xs[at]
        k += 1
    return total


def shared(w: Any, xs: Any) -> Any:
    """Elements that are the same for all, and some that are in the list twice."""
    twice = w * xs[0]
    ys = [w * w * w, twice, twice * w]
    ys = ys + [w * x for x in xs]
    return ys[int(w * 3) % len(xs)] * 2.0 + ys[-1] + ys[int(jnp.sum(w) + 0.5)]


@pytest.mark.parametrize("backend", ["interpret", "xla"])
@pytest.mark.parametrize("function", [chosen, shared])
def test_first_derivatives(function: Any, backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0), backend=backend)
    found = ab.grad(f, argnums=0)(W, LISTS)
    wanted = jax.grad(lambda w: sum(function(w, xs) for xs in LISTS))(W)
    np.testing.assert_allclose(np.sum(found), wanted, rtol=2e-5)


def test_further_derivatives() -> None:
    f = ab.batched(shared, in_axes=(None, 0), backend="xla")

    def found(w: Any) -> Any:
        return jnp.sum(f(w, LISTS))

    def wanted(w: Any) -> Any:
        return sum(shared(w, xs) for xs in LISTS)

    twice = jax.grad(jax.grad(wanted))
    np.testing.assert_allclose(jax.grad(jax.grad(found))(W), twice(W), rtol=1e-4)
    np.testing.assert_allclose(jax.grad(jax.grad(jax.grad(found)))(W), jax.grad(twice)(W), rtol=1e-3)
    np.testing.assert_allclose(ab.jvp(f, (W, LISTS), (W, None))[1].sum(), jax.jvp(wanted, (W,), (W,))[1], rtol=1e-4)


def test_no_loop_lays_them_out() -> None:
    f = ab.batched(chosen, in_axes=(None, 0), backend="xla")
    text = f.lower(W, LISTS).as_text("fissioned")
    assert "fold placed" in text and "recurrence" not in text
