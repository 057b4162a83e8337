"""Sums of rows by owner, and memory that nothing is written to: the kernels, and what programs make of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.xla import product_kernels, rows
from autobatch.backends.xla.product_kernels import ProductKernel
from tests.backends.test_products import CANARY, KERNELS, TOLERANCE, Frame, handler, trees
from tests.passes.frames.programs import parameters, tree_lstm

SUMS = [dataclasses.replace(k, operation="sum") for k in KERNELS]


def summed(call, kernel: ProductKernel, x, source, owner, rows):
    """The sums by the kernel. Everything around its result is checked, and there is poison in it before."""
    held = np.full(rows * x.shape[1] + 128, CANARY, kernel.dtype)
    out = held[64:-64].reshape(rows, x.shape[1])
    out[:] = np.nan
    assert call(Frame([x, source, owner], [out]).address) is None
    assert (held[:64] == CANARY).all() and (held[-64:] == CANARY).all(), "written outside"
    return out


@pytest.mark.parametrize("kernel", SUMS, ids=lambda k: f"{k.dtype}x{k.lanes}")
@settings(max_examples=80)
@given(data=st.data())
def test_against_numpy(kernel, data):
    entries, height, rows = (data.draw(st.integers(low, 60)) for low in (0, 1, 1))
    n = data.draw(st.integers(1, 80))
    rng = np.random.default_rng(entries)
    x = rng.normal(size=(height, n)).astype(kernel.dtype)
    owner = rng.integers(-2, rows + 3, size=entries).astype(np.int32)
    dead = (owner < 0) | (owner >= rows)
    source = np.where(dead, 2**30, rng.integers(0, height, size=entries)).astype(np.int32)
    wanted = np.zeros((rows, n))
    np.add.at(wanted, owner[~dead], x[source[~dead]].astype(np.float64))
    found = summed(handler(kernel), kernel, x, source, owner, rows)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[kernel.dtype] * (1 + entries))


def native(x, source=(2, 0, 0, 9, 1), owner=(1, 1, 0, 4, 3)):
    made = product_kernels.registered("float32", "sum")
    return rows.sum_rows(x, jnp.asarray(source), jnp.asarray(owner), 4, made)


def plain(x):
    return jnp.stack([x[0], x[2] + x[0], jnp.zeros_like(x[0]), x[1]])


TRANSFORMED = {
    "jit": lambda f, x: jax.jit(f)(x),
    "vmap": lambda f, x: jax.vmap(f)(jnp.stack([x, 2 * x])),
    "grad": lambda f, x: jax.grad(lambda x: (f(x) ** 3).sum())(x),
    "jvp": lambda f, x: jax.jvp(f, (x,), (x * x,)),
    "hessian": lambda f, x: jax.hessian(lambda x: (f(x) ** 3).sum())(x),
    "jit of vmap of grad": lambda f, x: jax.jit(jax.vmap(jax.grad(lambda x: (f(x) ** 2).sum())))(x[None]),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations(name):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)
    found, wanted = (TRANSFORMED[name](f, x) for f in (native, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), found, wanted)


def compiled(products):
    p = jax.tree.map(lambda x: x.astype(jnp.float32), parameters(48))
    data = tree_lstm.pack([*trees(), *trees()])
    with ab.options(products=products, loops="xla"):
        run = jax.jit(jax.grad(lambda p: sum((x**2).sum() for x in tree_lstm(p, data)))).lower(p).compile()
        return run(p), run.as_text()


def test_gradients_by_the_kernels_are_those_by_xla():
    """Words that are equal share a row, so cotangents of leaves are sums; biases are sums beside products of rows."""
    (found, native), (wanted, xla) = (compiled(products) for products in ("auto", "xla"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), found, wanted)
    for name, hlo in ((n, h) for n in ("sum", "empty") for h in (native, xla)):
        assert (hlo.count(f'custom_call_target="autobatch_{name}_') > 0) == (hlo is native), name


@pytest.mark.xla
def test_memory_that_is_to_be_written_is_not_filled_and_not_copied():
    _, hlo = compiled("native")
    calls = [line.split("=")[0].strip() for line in hlo.splitlines() if 'target="autobatch_empty_' in line]
    assert calls
    for name in calls:
        assert f"copy({name})" not in hlo
