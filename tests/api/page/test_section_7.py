"""The page in one piece: its forward lines, in their order."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close

N, CLASSES = 4, 3


@dataclass
class Word:
    label: int
    word: int = -1
    left: Word | None = None
    right: Word | None = None


def xent(logits, label):
    return -jax.nn.log_softmax(logits)[label]


@ab.batched(in_axes=(None, 0))
def encode(p, t):
    if t.left is None:
        h = jnp.tanh(p["emb"][t.word])
        return h, h * 2
    (hl, cl), (hr, cr) = encode(p, t.left), encode(p, t.right)
    return jnp.tanh(p["U"] @ jnp.concatenate([hl, hr])), cl + cr


@ab.batched(in_axes=(None, 0))
def loss(p, t):
    return xent(encode(p, t)[0] @ p["Wo"], t.label)


def similarity(p, a, b):
    return encode(p, a)[0] @ encode(p, b)[0]


def word(rng, size):
    if size == 1:
        return Word(int(rng.integers(CLASSES)), int(rng.integers(20)))
    left = int(rng.integers(1, size))
    return Word(int(rng.integers(CLASSES)), -1, word(rng, left), word(rng, size - left))


@pytest.fixture(scope="module")
def trees():
    rng = np.random.default_rng(0)
    return [word(rng, int(rng.integers(1, 12))) for _ in range(160)]


@pytest.fixture(scope="module")
def p():
    rng = np.random.default_rng(1)
    shapes = {"emb": (20, N), "U": (N, 2 * N), "Wo": (N, CLASSES)}
    return {k: jnp.asarray(rng.normal(size=s), jnp.float32) for k, s in shapes.items()}


def test_a_pair_of_states_comes_back_as_a_pair_of_arrays(p, trees):
    """`encode` returns `(H[B, n], C[B, n])`."""
    h, c = encode(p, trees)
    assert h.shape == c.shape == (len(trees), N)
    expected = encode.loop(p, trees[:8])
    close(h[:8], [a for a, _ in expected])
    close(c[:8], [b for _, b in expected])


def test_a_batched_function_inside_another_is_one_activation(p, trees):
    """`loss` calls `encode` for its own tree; the axes of `encode` play no part."""
    close(loss(p, trees[:8]), loss.loop(p, trees[:8]))


def test_minibatches_of_one_data_set_run_on_few_executables(p, trees):
    """`data = ab.pack(trees).plan(encode, loss)`, then a jitted step over random minibatches."""
    data = ab.pack(trees).plan(encode, loss)
    rng, traces = np.random.default_rng(2), []

    @jax.jit
    def step(p, b):
        traces.append(1)
        return loss(p, b).mean()

    for _ in range(16):
        index = rng.permutation(len(data))[:64]
        mini = data[index]
        found = step(p, mini)
    assert len(traces) <= 6, "the next 64 trees: no new executable in the same size class"
    close(found, np.mean([float(x) for x in loss.loop(p, [trees[k] for k in index])]))


def test_a_list_is_packed_now(p, trees):
    """`encode(p, trees[:2])`, and its rows as Python objects."""
    rows = ab.unbatch(encode(p, trees[:2]))
    assert len(rows) == 2 and all(isinstance(h, np.ndarray) and h.shape == (N,) for pair in rows for h in pair)


def test_a_list_of_lists_is_a_batch_of_lists():
    """`lengths([[3, 1], [2]])`: two examples, and one Ragged."""

    @ab.batched
    def lengths(words):
        return [w * 2 for w in words]

    with pytest.raises(ab.BatchError, match="like="):
        lengths([[], []])
    found = lengths([[3, 1], [2]])
    assert found.values[:3].tolist() == [6, 2, 4] and found.offsets.tolist() == [0, 2, 3]
    assert ab.unbatch(found) == [[6, 2], [4]]
    assert ab.unbatch(lengths([[], []])) == [[], []], "a call before told the type"


def test_an_annotation_tells_what_empty_lists_hold():
    """`words: list[int]`."""

    @ab.batched
    def lengths(words: list[int]):
        return [w * 2 for w in words]

    assert ab.unbatch(lengths([[], []])) == [[], []]


def test_two_batched_arguments_are_packed_together(p, trees):
    """`pairs = sim.pack(left, right); sim(p, *pairs[:8].args)`."""
    sim = ab.batched(similarity, in_axes=(None, 0, 0))
    left, right = trees[:10], trees[10:20]
    pairs = sim.pack(left, right)
    close(sim(p, *pairs[:8].args), sim.loop(p, left[:8], right[:8]))
