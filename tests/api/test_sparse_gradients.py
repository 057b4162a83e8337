"""Gradients of tables that are read by rows: `ab.SparseRows`, equal to the dense ones; and training with them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close

WORDS, TAGS, WIDTH = 997, 991, 3


@dataclass
class Tree:
    word: int
    x: float
    kids: list[Tree]


@pytest.fixture(autouse=True)
def narrow():
    """Loops of one width compile fast."""
    with ab.options(widths=(8,)):
        yield


def state(p, t: Tree):
    """Rows read before a recurrence and inside it, there by computed numbers; several at once; row 0 for all."""
    h = p["emb"]["word"][t.word] @ p["W"] + p["emb"]["word"][0] * t.x
    for kid in t.kids:
        h = h + jnp.sin(state(p, kid))
    found = jnp.take(p["emb"]["tag"], jnp.array([jnp.argmax(h) + 2, -1 - jnp.argmin(h)]), axis=0)
    return jnp.tanh(h + found[0] * found[1] + p["both"][t.word % 5])


@ab.batched(in_axes=(None, 0))
def loss(p, t: Tree):
    return jnp.sum(state(p, t) ** 2) + jnp.sum(p["both"]) * t.x, {"size": len(t.kids)}


def parameters(seed=0):
    rng = np.random.default_rng(seed)

    def array(*shape):
        return jnp.asarray(rng.normal(size=shape) / 2, jnp.float32)

    tables = {"word": array(WORDS, WIDTH), "tag": array(TAGS, WIDTH)}
    return {"emb": tables, "W": array(WIDTH, WIDTH), "both": array(5, WIDTH), "unread": array(4)}


LEAF = Tree(4, 1.0, [])
TREES = [Tree(7, 0.5, [LEAF, Tree(996, -1.0, [LEAF, Tree(-3, 2.0, [])])]), LEAF, Tree(4, 0.25, [Tree(7, 1.5, [LEAF])])]


def dense(gradient):
    return jax.tree.map(lambda g: g.to_dense() if is_sparse(g) else g, gradient, is_leaf=is_sparse)


def is_sparse(x):
    return isinstance(x, ab.SparseRows)


def same(found, expected, rtol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6), dense(found), expected)


def test_they_equal_the_dense_ones_and_those_of_the_loop():
    p = parameters()
    values, found = ab.value_and_grad(loss, has_aux=True, sparse=True)(p, TREES)
    close(values[0], loss(p, TREES)[0])
    assert values[1]["size"].tolist() == [2, 0, 1]
    kinds = {"emb": {"word": True, "tag": True}, "W": False, "both": False, "unread": False}
    assert jax.tree.map(is_sparse, found, is_leaf=is_sparse) == kinds
    assert found["emb"]["word"].shape == (WORDS, WIDTH) and found["emb"]["word"].dtype == jnp.float32
    same(found, ab.grad(loss, has_aux=True)(p, TREES)[0])
    same(found, jax.jit(jax.grad(lambda p: sum(value for value, _ in loss.loop(p, TREES))))(p))


@pytest.mark.xla
def test_no_array_has_the_size_of_a_table():
    p, data = parameters(), ab.pack(TREES).plan(loss)
    gradient = jax.jit(ab.grad(loss, argnums=(0, 1), has_aux=True, sparse=True))
    (found, of_data), _ = gradient(p, data)
    text = gradient.lower(p, data).compile().as_text()
    assert tables_made(text, WORDS) == tables_made(text, TAGS) == []
    same(found, ab.grad(loss, has_aux=True)(p, TREES)[0])
    assert len(ab.unbatch(of_data)[0].kids) == 2


def tables_made(text, rows):
    """The instructions of an executable that make an array with so many rows."""
    made = re.compile(rf"= f32\[{rows},{WIDTH}\]\S* (?!parameter|get-tuple-element)")
    return [line for line in text.splitlines() if made.search(line)]


@pytest.mark.xla
def test_a_dense_gradient_is_zeros_to_which_rows_are_added():
    """Once, whatever reads the table; with no copy."""

    @ab.batched(in_axes=(None, 0))
    def twice(p, word):
        return jnp.sum(p[word] * p[word // 2])

    p, words = jnp.ones((WORDS, WIDTH)), jnp.array([3, 6, 900])
    made = tables_made(jax.jit(jax.grad(lambda p: jnp.sum(twice(p, words)))).lower(p).compile().as_text(), WORDS)
    kinds = sorted(re.split(r"[ (]", line.split("]{1,0} ")[1])[0] for line in made)
    assert kinds.count("broadcast") == 1 and kinds.count("scatter") == 2
    assert set(kinds) <= {"broadcast", "scatter", "fusion"}


def test_rows_that_are_shared_stay_one_row():
    """The projection of a word is computed once for each word, and so is the cotangent of its row."""

    @ab.batched(in_axes=(None, 0))
    def projected(p, words: list):
        return sum(jnp.sum(jnp.tanh(p["emb"][w] @ p["W"])) for w in words)

    p = {"emb": jnp.ones((50, 2)), "W": jnp.ones((2, 3))}
    batch = [[3, 4, 3, 3], [4, 4, 9], [3] * 30]
    found = ab.grad(projected, sparse=True)(p, batch)["emb"]
    indices = found.indices.tolist()
    assert sorted(k for k in indices if k < 50) == [3, 4, 9] and len(indices) < 30
    assert not np.asarray(found.rows)[np.array(indices) == 50].any(), "padding is zero"
    close(found.to_dense(), ab.grad(projected)(p, batch)["emb"])


@pytest.mark.parametrize(
    "read",
    [
        lambda t, k: jnp.take(t, k, axis=0, mode="clip"),
        lambda t, k: jnp.take(t, k, axis=0, mode="fill", fill_value=0),
        lambda t, k: t.at[k].get(mode="fill", fill_value=0, wrap_negative_indices=False),
        lambda t, k: jax.lax.dynamic_slice_in_dim(t, k, 2),
        lambda t, k: jax.vmap(lambda n: t[n] * n)(jnp.array([0, 3]) + k),
        lambda t, k: jax.vmap(lambda n: jax.lax.dynamic_slice_in_dim(t, n, 2))(jnp.array([0, 3]) + k),
        lambda t, k: t[jnp.array([[k, 1], [0, k]])] * jnp.arange(4.0).reshape(2, 2, 1, 1),
        lambda t, k: t[k, :, :] + jnp.sum(t[1:3]),
    ],
)
def test_every_way_to_read_rows(read):
    """Also with numbers past the ends of the table: they clamp, or read nothing."""

    @ab.batched(in_axes=(None, 0))
    def function(table, x):
        return jnp.sum(jnp.sin(read(table, jnp.round(x).astype(jnp.int16))))

    table, x = jnp.arange(30.0).reshape(5, 2, 3), np.array([0.0, 4.0, 2.0, -7.0, -1.0, 11.0], np.float32)
    found = ab.grad(function, sparse=True)(table, x)
    assert is_sparse(found)
    expected = jax.grad(lambda t: sum(function.loop(t, x)))(table)
    same([found, ab.grad(function)(table, x)], [expected, expected])


@pytest.mark.parametrize(
    "read", [lambda t, k: t[k, :2], lambda t, k: (2 * t)[k], lambda t, k: t[1], lambda t, k: t.T[k]]
)
def test_what_is_no_read_of_rows_has_a_dense_gradient(read):
    @ab.batched(in_axes=(None, 0))
    def function(table, k):
        return jnp.sum(read(table, k) ** 2)

    table, words = jnp.arange(12.0).reshape(3, 4), np.array([2, 0, 2])
    found = ab.grad(function, sparse=True)(table, words)
    close(found, ab.grad(function)(table, words))


def test_groups_by_shape():
    """Rows of one group behind those of another."""

    @ab.batched(in_axes=(None, 0))
    def function(p, t: tuple):
        word, v = t
        return jnp.sum(p["emb"][word]) * jnp.sum(v**2)

    p = {"emb": jnp.ones((40, 2))}
    batch = [(3, np.ones(2, np.float32)), (5, np.ones(3, np.float32)), (3, np.ones(3, np.float32))]
    found = ab.grad(function, sparse=True)(p, batch)
    assert is_sparse(found["emb"])
    same(found, ab.grad(function)(p, batch))
    same(jax.jit(ab.grad(function, sparse=True))(p, ab.pack(batch).plan(function)), ab.grad(function)(p, batch))


@ab.batched(in_axes=(None, 0))
def summed(p, t: Tree):
    h = jnp.sin(p["emb"][t.word] * t.x)
    for kid in t.kids:
        h = h + summed(p, kid) * p["emb"][0]
    return h


def test_they_have_derivatives():
    """Reverse over reverse, through the rows, and of the dense gradient through its scatter."""
    p, v = ({"emb": jnp.asarray(np.random.default_rng(k).normal(size=(8, 2)))} for k in (0, 1))
    batch = [Tree(7, 0.5, [Tree(4, 1.0, []), Tree(7, -1.0, [])]), Tree(1, 2.0, [])]
    squares = ab.batched(lambda p, t: jnp.sum(summed(p, t) ** 2), in_axes=(None, 0))

    def along(gradient, p):
        return jnp.vdot(dense(gradient(p))["emb"], v["emb"])

    of_loop = jax.grad(lambda p: sum(jnp.sum(x**2) for x in summed.loop(p, batch)))
    expected = jax.jit(jax.grad(lambda p: along(of_loop, p)))(p)
    for sparse in (True, False):
        gradient = ab.grad(squares, sparse=sparse)
        same(jax.jit(jax.grad(lambda p: along(lambda p: gradient(p, batch), p)))(p), expected, rtol=1e-4)
    same(ab.hvp(squares, (p, batch), (v, None)), expected, rtol=1e-4)


def test_the_reference_back_end_and_plain_python():
    @ab.batched(in_axes=(None, 0))
    def function(p, k):
        return jnp.sum(p["emb"][k] ** 2) + jnp.sum(p["b"])

    p, words = {"emb": jnp.arange(8.0).reshape(4, 2), "b": jnp.ones(2)}, [1, 3, 1]
    expected = ab.grad(function)(p, words)
    with ab.options(backend="interpret"):
        found = ab.grad(function, sparse=True)(p, words)
    assert is_sparse(found["emb"]) and not is_sparse(found["b"])
    same(found, expected)
    with ab.disable():
        same(ab.grad(function, sparse=True)(p, np.array(words)), expected)
    with pytest.raises(ab.BatchError, match="sparse=True.*lambda.* is none"):
        ab.grad(lambda p: jnp.sum(p), sparse=True)


# ---- training


@ab.batched(in_axes=(None, 0))
def bag(p, words: list):
    return jnp.sum(jnp.tanh(sum(p["emb"][w] for w in words) @ p["W"])) ** 2


BAGS = [[1, 2, 1], [3], [7, 0, 2, 2], [5, 6], [4, 1], [2, 7]]


def trained(tx, sparse, steps):
    """The parameters after `steps` of minibatches, in one scan."""
    p = {"W": jnp.eye(2), "emb": jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)))}
    data = ab.pack(BAGS).plan(bag)
    bag(p, data[:2])

    @jax.jit
    def run(p, epoch):
        def step(carry, minibatch):
            p, held = carry
            _, gradient = ab.value_and_grad(bag, sparse=sparse)(p, minibatch)
            updates, held = tx.update(gradient, held, p)
            return (ab.apply_updates(p, updates), held), None

        return jax.lax.scan(step, (p, tx.init(p)), epoch)[0][0]

    return run(p, data.epoch(steps))


@pytest.fixture
def optax():
    return pytest.importorskip("optax")


def test_descent_with_sparse_gradients_is_descent(optax):
    order = np.array([[0, 1], [2, 3], [4, 5], [0, 2]])
    same(trained(ab.sparse(optax.sgd(0.1)), True, order), trained(optax.sgd(0.1), False, order))


def test_adam_with_sparse_gradients_is_lazy(optax):
    """Where every row has a gradient in each step it is Adam; in the first step always."""
    every = np.array([[0, 1, 2, 3, 4, 5]] * 3)
    same(trained(ab.sparse(optax.adam(0.1)), True, every), trained(optax.adam(0.1), False, every))
    twice = np.array([[1, 3], [0, 1]])
    lazy, eager = trained(ab.sparse(optax.adam(0.1)), True, twice), trained(optax.adam(0.1), False, twice)
    moved = np.abs(np.asarray(lazy["emb"] - eager["emb"])).max(1) > 1e-4
    assert moved[[5, 6]].all(), "rows of the first step alone: their momentum does not move them"
    assert not moved[[0, 4, 7]].any()
