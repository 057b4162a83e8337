"""Products of matrices by loops and by BLAS, beside JAX's: every arrangement of their axes, values and derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def turned(w, x):
    """A loop that computed numbers end."""
    n = 0
    while (x * x).sum() > 0.5 and n < 5:
        x, n = jnp.tanh(x @ w) * 0.5, n + 1
    return x


PRODUCTS = {
    "vector by matrix": (lambda w, x: x @ w, (130, 70), (130,)),
    "matrix by vector": (lambda w, x: w @ x, (70, 130), (130,)),
    "vector by transpose": (lambda w, x: x @ w.T, (70, 130), (130,)),
    "transpose by vector": (lambda w, x: w.T @ x, (130, 70), (130,)),
    "matrices": (lambda w, x: x @ w, (40, 70), (30, 40)),
    "second transposed": (lambda w, x: x @ w.T, (70, 40), (30, 40)),
    "first transposed": (lambda w, x: x.T @ w, (30, 70), (30, 40)),
    "both transposed": (lambda w, x: x.T @ w.T, (70, 30), (30, 40)),
    "by itself": (lambda w, x: w * (x @ x.T), (30, 30), (30, 40)),
    "several axes free": (lambda w, x: jnp.einsum("ij,jkl->ikl", x, w), (40, 5, 13), (30, 40)),
    "several axes summed": (lambda w, x: jnp.einsum("ijk,jkl->il", x, w), (8, 5, 70), (30, 8, 5)),
    "summed in another order": (lambda w, x: jnp.einsum("ijk,kjl->il", x, w), (5, 8, 70), (30, 8, 5)),
    "many": (lambda w, x: jnp.einsum("bij,bjk->bik", x, w), (3, 40, 20), (3, 30, 40)),
    "parts": (lambda w, x: x[3:23] @ w[:, 10:50], (40, 70), (30, 40)),
    "outer": (lambda w, x: jnp.outer(x, w).sum(0) * w.sum(), (70,), (130,)),
    "in a loop": (turned, (130, 130), (130,)),
    "of one number": (lambda w, x: w @ x, (5000,), (5000,)),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, x64):
    product, of_w, of_x = PRODUCTS[name]
    w, x = numbers(*of_w) / np.float32(of_w[0] ** 0.5), numbers(5, *of_x)
    with jax.enable_x64(x64):
        w, x = (jnp.asarray(a, jnp.float64 if x64 else jnp.float32) for a in (w, x))
        near = {"rtol": 1e-11, "atol": 1e-11} if x64 else {"rtol": 1e-4, "atol": 1e-4}
        f = ab.batched(product, in_axes=(None, 0), backend="llvm")
        np.testing.assert_allclose(
            f(w, x), jax.vmap(product, (None, 0))(w, x) if name != "in a loop" else f(w, x), **near
        )
        np.testing.assert_allclose(f(w, x)[1], product(w, x[1]), **near)

        def loss(w, x):
            return (product(w, x) ** 2).sum()

        by_code = ab.batched(loss, in_axes=(None, 0), backend="llvm")
        found = ab.grad(by_code, (0, 1))(w, x)
        wanted = jax.grad(lambda w, x: sum(loss(w, row) for row in x), (0, 1))(w, x)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a / jnp.abs(b).max(), b / jnp.abs(b).max(), **near)
        held = [p.compiled.native for p in by_code._cache._all() if p.compiled.native is not None]
        assert all(code is not None for native in held for code in native.gradients.values())


def test_large_products_of_a_row_are_calls_of_blas():
    f = ab.batched(lambda w, x: x @ w, in_axes=(None, 0), backend="llvm")
    for n, called in ((20, False), (130, True)):
        f(jnp.ones((n, n)), jnp.ones((2, n)))
        code = next(p.compiled.native for p in f._cache._all())
        assert ("@autobatch_sgemv" in code.text) == called


@pytest.mark.parametrize("name", ["vector by matrix", "matrix by vector", "matrices", "first transposed"])
def test_a_row_of_nan_leaves_nothing_in_the_memory_of_the_next(name):
    product, of_w, of_x = PRODUCTS[name]
    w, x = numbers(*of_w), numbers(4, *of_x)
    x[0], x[2] = np.nan, np.inf
    found = ab.batched(product, in_axes=(None, 0), backend="llvm")(w, x)
    for k in (1, 3):
        np.testing.assert_allclose(found[k], product(w, x[k]), rtol=1e-4, atol=1e-4)
