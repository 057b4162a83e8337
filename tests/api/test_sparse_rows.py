"""`ab.SparseRows` against the dense table, and optimisers that take it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab
from autobatch.common.sparse_rows import SparseTransformation
from tests.api.nodes import close


@st.composite
def tables(draw):
    """SparseRows with duplicates and padding, and the dense array by NumPy; few shapes, since each compiles. Numbers of
    few bits, whose sums are exact in any order: rows that nearly cancel have no small relative error otherwise."""
    count, n, inner = draw(st.sampled_from([(4, 6, ()), (4, 6, (2, 3)), (1, 3, (2,)), (7, 0, (2,)), (3, 1, ())]))
    indices = np.array(draw(st.lists(st.integers(-2, count + 2), min_size=n, max_size=n)), np.int32)
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(-24, 25, (n, *inner)).astype(np.float32) / 8
    dense = np.zeros((count, *inner), np.float32)
    for k, row in zip(indices, values, strict=True):
        if 0 <= k < count:
            dense[k] += row
    return ab.SparseRows(indices, values, dense.shape), dense


@jax.jit
def _arithmetic(held, other):
    """Each with what NumPy makes of the dense table, below."""
    return [
        held.to_dense(),
        (held * 3).to_dense(),
        (jnp.float32(2) * held / 4).to_dense(),
        (-held).to_dense(),
        (held + held - 3 * held).to_dense(),
        sum([held, held]).to_dense(),
        other + held,
        held + other,
        other - held,
        held - other,
    ]


@given(tables())
def test_it_stands_for_the_dense_table(pair):
    held, dense = pair
    other = np.arange(dense.size, dtype=np.float32).reshape(dense.shape)
    expected = [dense, dense * 3, dense / 2, -dense, -dense, 2 * dense]
    expected += [other + dense, other + dense, other - dense, dense - other]
    for found, wanted in zip(_arithmetic(held, other), expected, strict=True):
        close(found, wanted)
    assert held.shape == dense.shape and held.dtype == dense.dtype and held.ndim == dense.ndim


def test_with_arrays_of_numpy():
    held, ones = ab.SparseRows([0, 2, 2], [1.0, 2.0, 3.0], (3,)), np.ones(3, np.float32)
    close(ones + held, [2, 1, 6])
    close(held + ones, [2, 1, 6])
    close(ones - held, [0, 1, -4])
    close(held - ones, [0, -1, 4])
    assert isinstance(ones - held, jax.Array)


@given(tables())
def test_unique_sums_rows_of_equal_indices(pair):
    held, dense = pair
    found = _unique(held)
    inside = np.unique([k for k in np.asarray(held.indices) if 0 <= k < dense.shape[0]])
    assert found.indices.tolist()[: len(inside)] == inside.tolist()
    assert set(found.indices.tolist()[len(inside) :]) <= {dense.shape[0]}
    rows = np.asarray(found.rows)
    close(rows[: len(inside)], dense[inside.astype(int)])
    assert not rows[len(inside) :].any()


_unique = jax.jit(ab.SparseRows.unique)


def test_padding_holds_anything():
    held = ab.SparseRows([1, 9, -1], jnp.array([[1.0], [jnp.nan], [jnp.inf]]), (3, 1))
    close(held.to_dense(), [[0], [1], [0]])
    close(held.unique().rows, [[1], [0], [0]])
    close(jnp.ones((3, 1)) - held, [[1], [0], [1]])


def test_a_capacity_that_is_too_small_is_no_silent_loss():
    held = ab.SparseRows([1, 2, 2], jnp.ones(3), (5,))
    close(held.unique(2).rows, [1, 2])
    with pytest.raises(ValueError, match="2 different rows"):
        held.unique(1)
    assert np.isnan(jax.jit(lambda h: h.unique(1))(held).rows).all()
    close(jax.jit(lambda h: h.unique(2))(held).to_dense(), held.to_dense())


def test_it_is_a_pytree():
    held = ab.SparseRows([1, 2], jnp.ones((2, 3)), (5, 3))
    again = jax.jit(lambda h: 2 * h)(held)
    assert isinstance(again, ab.SparseRows) and again.shape == (5, 3)
    close(again.to_dense(), 2 * held.to_dense())
    gradient = jax.grad(lambda rows: (ab.SparseRows(held.indices, rows, (5, 3)).to_dense() ** 2).sum())(held.rows)
    close(gradient, 2 * held.rows)
    each = jax.vmap(lambda s: (s * held).to_dense())(jnp.arange(3.0))
    close(each[2], 2 * held.to_dense())


def test_bad_input():
    held = ab.SparseRows([1], jnp.ones((1, 2)), (3, 2))
    with pytest.raises(ValueError, match=r"\('n', 2\)"):
        ab.SparseRows([1], jnp.ones((1, 3)), (3, 2))
    with pytest.raises(TypeError, match="indices of SparseRows are float32"):
        ab.SparseRows([1.0], jnp.ones((1, 2)), (3, 2))
    halved = jax.tree.map(lambda g: g / 2, {"emb": held})["emb"]
    with pytest.raises(TypeError, match="is_leaf"):
        halved.to_dense()
    with pytest.raises(TypeError, match="by numbers only"):
        held * jnp.ones(2)
    with pytest.raises(TypeError, match="by numbers only"):
        held * held
    with pytest.raises(ValueError, match="cannot be added"):
        held + ab.SparseRows([1], jnp.ones((1, 2)), (4, 2))
    with pytest.raises(ValueError, match="cannot be added"):
        jnp.ones((4, 2)) + held
    with pytest.raises(TypeError):
        held + "text"


# ---- updates


def test_apply_updates_touches_only_its_rows():
    params = {"emb": jnp.ones((4, 2), jnp.bfloat16), "w": np.ones(3, np.float32), "fixed": jnp.ones(2)}
    updates = {"emb": ab.SparseRows([2, 2], jnp.ones((2, 2)), (4, 2)), "w": jnp.arange(3.0), "fixed": None}
    new = ab.apply_updates(params, updates)
    close(new["emb"].astype(jnp.float32), [[1, 1], [1, 1], [3, 3], [1, 1]])
    close(new["w"], [1, 2, 3])
    assert new["emb"].dtype == jnp.bfloat16 and new["fixed"] is params["fixed"]
    text = str(jax.make_jaxpr(ab.apply_updates)({"emb": params["emb"]}, {"emb": updates["emb"]}))
    assert "scatter-add" in text and "f32[4,2]" not in text, "no dense update"


def _adam(rate=0.1, b1=0.9, b2=0.999):
    """Adam in a few lines, so that tests need no optax."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return {"count": jnp.zeros((), jnp.int32), "mu": zeros, "nu": zeros}

    def update(grads, state, params=None):
        count = state["count"] + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["mu"], grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["nu"], grads)

        def step(m, v):
            return -rate * (m / (1 - b1**count)) / (jnp.sqrt(v / (1 - b2**count)) + 1e-8)

        return jax.tree.map(step, mu, nu), {"count": count, "mu": mu, "nu": nu}

    return SparseTransformation(init, update)


def _grads(rng, rows=7):
    n = 5  # indices past the table are no rows, so steps differ in how many they touch
    held = ab.SparseRows(rng.integers(0, rows + 4, n), rng.normal(size=(n, 3)).astype(np.float32), (rows, 3))
    return {"emb": held, "w": jnp.asarray(rng.normal(size=7).astype(np.float32))}


def _dense(grads):
    return jax.tree.map(
        lambda g: g.to_dense() if isinstance(g, ab.SparseRows) else g, grads, is_leaf=lambda g: hasattr(g, "to_dense")
    )


def _params():
    return {"emb": jnp.ones((7, 3)), "w": jnp.zeros(7)}


@pytest.mark.parametrize("jitted", [False, True])
def test_moments_are_lazy(jitted):
    """Row by row: Adam over the steps in which the row has a gradient, with the count of all steps."""
    rng, tx, plain = np.random.default_rng(0), ab.sparse(_adam()), _adam()
    update = jax.jit(tx.update) if jitted else tx.update
    params, wanted = _params(), _params()
    state, expected = tx.init(params), plain.init(wanted)
    for _ in range(8 if jitted else 3):
        grads = _grads(rng)
        updates, state = update(grads, state, params)
        assert isinstance(updates["emb"], ab.SparseRows)
        params = ab.apply_updates(params, updates)
        touched = jnp.zeros(7, bool).at[grads["emb"].indices].set(True, mode="drop")[:, None]
        new, after = plain.update(_dense(grads), expected)
        for name in ("mu", "nu"):
            after[name]["emb"] = jnp.where(touched, after[name]["emb"], expected[name]["emb"])
        expected = after
        new["emb"] = jnp.where(touched, new["emb"], 0)
        wanted = jax.tree.map(jnp.add, wanted, new)
        jax.tree.map(close, params, wanted)
        jax.tree.map(close, state, expected)


def test_an_array_of_the_same_shape_is_not_taken_for_a_table():
    """`w` has as many entries as `emb` has rows; its moments are its own."""
    tx, params = ab.sparse(_adam()), _params()
    updates, state = tx.update(_grads(np.random.default_rng(1)), tx.init(params), params)
    assert state["mu"]["w"].all() and updates["w"].all()


def test_what_does_not_fit_rows_is_refused():
    whole = SparseTransformation(lambda p: jax.tree.map(jnp.ravel, p), lambda g, s, p=None: (g, s))
    params, grads = _params(), _grads(np.random.default_rng(2))
    tx = ab.sparse(whole)
    with pytest.raises(ValueError, match=r"shape \(21,\) for a table of shape \(7, 3\)"):
        tx.update(grads, tx.init(params), params)
    sums = SparseTransformation(lambda p: (), lambda g, s, p=None: (jax.tree.map(jnp.sum, g), s))
    with pytest.raises(ValueError, match="to_dense"):
        ab.sparse(sums).update(grads, (), params)
    with pytest.raises(ValueError, match="another optimiser"):
        ab.sparse(_adam()).update(grads, (), params)


# ---- with optax


@pytest.fixture
def optax():
    return pytest.importorskip("optax")


EXACT = {
    "sgd": lambda o: o.sgd(0.1),
    "schedule": lambda o: o.sgd(o.exponential_decay(0.1, 2, 0.5)),
    "clip": lambda o: o.chain(o.clip(0.3), o.scale(-0.1)),
    "global norm": lambda o: o.chain(o.clip_by_global_norm(0.5), o.sgd(0.1)),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_has_no_memory_is_as_for_the_dense_gradient(optax, name):
    rng, tx, plain = np.random.default_rng(0), ab.sparse(EXACT[name](optax)), EXACT[name](optax)
    params, wanted = _params(), _params()
    state, expected = tx.init(params), plain.init(wanted)
    step = jax.jit(tx.update)
    for _ in range(5):
        grads = _grads(rng)
        updates, state = step(grads, state, params)
        params = optax.apply_updates(params, updates)
        new, expected = plain.update(_dense(grads), expected, wanted)
        wanted = optax.apply_updates(wanted, new)
        jax.tree.map(close, params, wanted)


def test_in_a_chain_of_optax(optax):
    """Alone in a chain and around one: the same."""
    rng = np.random.default_rng(0)
    inside = ab.sparse(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1)))
    outside = optax.chain(ab.sparse(optax.clip_by_global_norm(1.0)), ab.sparse(optax.adamw(0.1)))
    params, other = _params(), _params()
    state, held = inside.init(params), outside.init(other)
    for _ in range(4):
        grads = _grads(rng)
        before = params
        updates, state = inside.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        updates, held = outside.update(grads, held, other)
        other = optax.apply_updates(other, updates)
        jax.tree.map(close, params, other)
        still = np.setdiff1d(np.arange(7), np.asarray(grads["emb"].indices))
        assert (np.asarray(params["emb"])[still] == np.asarray(before["emb"])[still]).all(), "not even decayed"


def test_adam_of_optax_where_every_row_has_a_gradient(optax):
    """Then nothing is lazy: the same as for the dense gradient."""
    rng, tx, plain = np.random.default_rng(3), ab.sparse(optax.adam(0.1)), optax.adam(0.1)
    params, wanted = _params(), _params()
    state, expected = tx.init(params), plain.init(wanted)
    for _ in range(4):
        held = ab.SparseRows(np.r_[rng.permutation(7), 3], rng.normal(size=(8, 3)).astype(np.float32), (7, 3))
        grads = {"emb": held, "w": jnp.ones(7)}
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        new, expected = plain.update(_dense(grads), expected, wanted)
        wanted = optax.apply_updates(wanted, new)
        jax.tree.map(close, params, wanted)


def test_nothing_of_the_size_of_the_table_is_made(optax):
    """State and parameters apart, which are gathered from and scattered to."""
    tx, rows = ab.sparse(optax.adam(0.1)), 1000
    params = {"emb": jnp.ones((rows, 3))}
    grads = {"emb": ab.SparseRows([1, 5], jnp.ones((2, 3)), (rows, 3))}
    jaxpr = jax.make_jaxpr(tx.update)(grads, tx.init(params), params)
    made = {str(e.primitive) for e in jaxpr.eqns for v in e.outvars if v.aval.shape == (rows, 3)}
    assert made <= {"scatter", "pjit", "jit"}, made
