"""The kernel for sums of outer products: against NumPy, in XLA programs, and as gradients of matrices."""

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
from autobatch.backends.xla.rows import MANY, choose_outer
from tests.backends.test_products import CANARY, KERNELS, TOLERANCE, Frame, drawn, handler, product, trees
from tests.passes.frames.programs import parameters, tree_lstm

OUTER = [dataclasses.replace(k, operation="outer") for k in KERNELS]


def summed(call, kernel: ProductKernel, sources, g, count, room):
    """The sum by the kernel. Everything around its result and its scratch memory is checked or poison."""
    k, n = sum(x.shape[1] for x, _ in sources), g.shape[1]
    columns = -(-k // kernel.vectors.rows) * kernel.vectors.rows
    shapes = [(k, n), (columns, room), (room, kernel.panel)]
    held = [np.full(a * b + 128, CANARY, kernel.dtype) for a, b in shapes]
    out, left, right = (h[64:-64].reshape(s) for h, s in zip(held, shapes))
    left[:] = right[:] = out[:] = np.nan
    arguments = []
    for x, index in sources:
        arguments += [x, np.zeros(0, np.int32) if index is None else index]
    frame = Frame([*arguments, g, np.array(count, np.int32)], [out, left, right])
    assert call(frame.address) is None
    for h in held:
        assert (h[:64] == CANARY).all() and (h[-64:] == CANARY).all(), "written outside"
    return out


@pytest.mark.parametrize("kernel", OUTER, ids=lambda k: f"{k.dtype}x{k.lanes}")
@settings(max_examples=80)
@given(data=st.data())
def test_against_numpy(kernel, data):
    m = data.draw(st.integers(1, 120))
    count = data.draw(st.one_of(st.integers(0, m), st.sampled_from([m, m + 3, -2])))
    widths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    dense = data.draw(st.sets(st.integers(0, len(widths) - 1)))
    n = data.draw(st.integers(1, 80))
    room = kernel.chunk * data.draw(st.integers(1, 1 + m // kernel.chunk))
    rng = np.random.default_rng(m)
    sources, whole = drawn(rng, kernel.dtype, m, widths, dense)
    g = rng.normal(size=(m, n)).astype(kernel.dtype)
    live = min(max(count, 0), m)
    g[live:] = np.nan  # of rows that do not count
    found = summed(handler(kernel), kernel, sources, g, count, room)
    wanted = whole[:live].astype(np.float64).T @ g[:live].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[kernel.dtype] * (1 + m))


def operands(seed=0, m=6, k=(3, 4), n=5):
    rng = np.random.default_rng(seed)
    sources, _ = drawn(rng, "float32", m, k, dense=(1,))
    sources = [(jnp.nan_to_num(x), index if index is None else jnp.asarray(index)) for x, index in sources]
    return sources, jnp.asarray(rng.normal(size=(m, n)), jnp.float32)


def native(sources, g, count=4):
    return rows.outer(sources, g, count, product_kernels.registered("float32", "outer"))


def plain(sources, g, count=4):
    return rows.side_by_side(*zip(*sources))[:count].T @ g[:count]


TRANSFORMED = {
    "call": lambda f, x, g: f(x, g),
    "jit": lambda f, x, g: jax.jit(lambda g: f(x, g))(g),
    "vmap": lambda f, x, g: jax.vmap(lambda g: f(x, g))(jnp.stack([g, 2 * g])),
    "grad": lambda f, x, g: jax.grad(lambda g, a: (f([(a, x[0][1]), x[1]], g) ** 3).sum(), (0, 1))(g, x[0][0]),
    "jvp": lambda f, x, g: jax.jvp(lambda g: f(x, g), (g,), (g * g,)),
    "hessian": lambda f, x, g: jax.hessian(lambda g: (f(x, g) ** 3).sum())(g),
    "jit of vmap of grad": lambda f, x, g: jax.jit(jax.vmap(jax.grad(lambda g: (f(x, g) ** 2).sum())))(g[None]),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations(name):
    found, wanted = (TRANSFORMED[name](f, *operands()) for f in (native, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), found, wanted)


def test_poison_past_the_last_row_reaches_nothing():
    sources, g = operands()
    for f in (native, lambda x, g: jax.vmap(lambda g: native(x, g))(g[None])[0]):
        assert jnp.isfinite(f(sources, g.at[4:].set(jnp.nan))).all()


def test_how_many_rows_count_is_known_when_it_runs():
    traced = []

    @jax.jit
    def run(*xs):
        traced.append(xs)
        return native(*xs)

    for count in (0, 1, 6):
        np.testing.assert_allclose(run(*operands(), count), plain(*operands(), count), rtol=2e-5, atol=2e-5)
    assert len(traced) == 1


@pytest.mark.parametrize("x64", [False, pytest.param(True, marks=pytest.mark.long)])
def test_gradients_of_matrices(x64):
    """One call of the kernel for each matrix of products, as many as there are; no masked copies beside it."""
    with jax.enable_x64(x64):
        p = jax.tree.map(lambda x: x.astype(jnp.float64 if x64 else jnp.float32), parameters(12))
        data = tree_lstm.pack(trees())

        def total(p):
            return sum((x**2).sum() for x in tree_lstm(p, data))

        found = {}
        for products in ("xla", "native"):
            with ab.options(products=products):
                found[products] = jax.grad(total)(p)
                hlo = jax.jit(jax.grad(total)).lower(p).compile().as_text()
            calls = hlo.count('custom_call_target="autobatch_outer_')
            assert calls == (0 if products == "xla" else 4), "of leaves, of inner nodes, and of the heads of both"
        tolerance = {"rtol": 1e-12, "atol": 1e-12} if x64 else {"rtol": 2e-5, "atol": 2e-5}
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), found["native"], found["xla"])


def test_auto_leaves_much_work_to_several_cores(monkeypatch):
    one = product()
    size = one.contracted * one.columns
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert choose_outer("auto", one, 1 + MANY // size).kernel is not None
    assert choose_outer("auto", one, 1 + 100 * MANY // size).kernel is not None
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert "among 2 cores" in choose_outer("auto", one, 1 + MANY // size).why
    assert choose_outer("xla", one, 64).kernel is None
