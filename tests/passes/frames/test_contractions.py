"""Products of the same rows are one product: sums of products, and products that read the same rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import sigmoid, tanh

import autobatch as ab
from autobatch.ir.system import Compute
from autobatch.passes.fission import Recurrence
from tests.passes.frames.programs import random_tree, schedule_of

SIZE = 4


def weights(*names, rows=SIZE, columns=SIZE):
    rng = np.random.default_rng(7)
    return {n: jnp.asarray(rng.normal(size=(rows, columns)) / 2, jnp.float32) for n in names}


def products(function, p, batch):
    """Products outside recurrences, and in them."""
    schedule = schedule_of(function, p, batch)
    count = {False: 0, True: 0}
    for step in schedule.steps:
        inside = isinstance(step, Recurrence)
        equations = [e for t in step.tasks for e in t.equations] if inside else step.equations
        count[inside] += sum(isinstance(e, Compute) and e.op.name == "dot_general" for e in equations)
    return count[False], count[True]


def agrees(function, p, batch):
    for got, expected in zip(ab.unbatch(function(p, batch)), function.loop(p, batch), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


def sentences():
    rng = np.random.default_rng(1)
    return [rng.normal(size=int(n)).tolist() for n in (3, 1, 6, 2)]


@ab.batched(in_axes=(None, 0))
def gru(p, xs: list[float]):
    """Every gate has matrices of its own, as people write it."""
    h = jnp.zeros(SIZE)
    for x in xs:
        e = x * p["emb"]
        r = sigmoid(e @ p["Wr"] + h @ p["Ur"])
        z = sigmoid(e @ p["Wz"] + h @ p["Uz"])
        n = tanh(e @ p["Wn"] + r * (h @ p["Un"]))
        h = (1 - z) * n + z * h
    return h


def test_gates_with_matrices_of_their_own():
    p = weights("Wr", "Ur", "Wz", "Uz", "Wn", "Un") | {"emb": jnp.arange(SIZE, dtype=jnp.float32)}
    batch = sentences()
    assert products(gru, p, batch) == (1, 1)
    agrees(gru, p, batch)


@ab.batched(in_axes=(None, 0))
def children_added(p, t):
    if t.left is None:
        return t.x * p["leaf"][0]
    return tanh(children_added(p, t.left) @ p["L"] + (children_added(p, t.right) @ p["R"] + p["leaf"][1]))


@ab.batched(in_axes=(None, 0))
def matrix_first(p, t):
    if t.left is None:
        return t.x * p["leaf"][0]
    return tanh(p["L"] @ matrix_first(p, t.left) + p["R"] @ matrix_first(p, t.right))


@ab.batched(in_axes=(None, 0))
def read_twice(p, t):
    """The product with L is read by itself too; both read other rows, so nothing can be one."""
    if t.left is None:
        return t.x * p["leaf"][0]
    left = read_twice(p, t.left) @ p["L"]
    return tanh(left + read_twice(p, t.right) @ p["R"]) * left


@pytest.mark.parametrize(
    ("function", "inside"),
    [(children_added, 1), (matrix_first, 1), (read_twice, 2)],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_sums(function, inside):
    rng = np.random.default_rng(2)
    batch = [random_tree(rng, n) for n in (1, 2, 5, 9)]
    p = weights("leaf", "L", "R")
    assert products(function, p, batch) == (0, inside)
    agrees(function, p, batch)


def test_of_different_types_and_shapes():
    """Integers with floats, matrices of different height: what has one form is merged, the rest is left alone."""

    @ab.batched(in_axes=(None, 0, 0))
    def mixed(p, x, n):
        return x @ p["A"] + n @ p["N"] + jnp.concatenate([x, x]) @ p["C"]

    p = (
        weights("A", columns=2 * SIZE)
        | weights("C", rows=2 * SIZE, columns=2 * SIZE)
        | {"N": jnp.arange(2 * SIZE * SIZE).reshape(SIZE, 2 * SIZE)}
    )
    x = np.random.default_rng(3).normal(size=(5, SIZE)).astype(np.float32)
    n = np.arange(5 * SIZE).reshape(5, SIZE)
    np.testing.assert_allclose(mixed(p, x, n), np.stack(mixed.loop(p, x, n)), rtol=1e-5)
    schedule = schedule_of(mixed, p, x, n)
    assert sum(isinstance(e, Compute) and e.op.name == "dot_general" for e in schedule.system.equations) == 2


def test_what_is_known_before_the_loop_stays_outside():
    @ab.batched(in_axes=(None, 0))
    def rnn(p, xs: list[float]):
        h = jnp.zeros(SIZE)
        for x in xs:
            h = tanh((x * p["emb"]) @ p["W"] + h @ p["U"])
        return h

    p = weights("W", "U") | {"emb": jnp.arange(SIZE, dtype=jnp.float32)}
    assert products(rnn, p, sentences()) == (1, 1)
    agrees(rnn, p, sentences())
