"""Minibatches of a data set have few shapes, which the first epoch meets; single examples are bound once."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.planning import plan
from tests.api.nodes import Node, params

COUNT = 512


@ab.batched(in_axes=(None, 0))
def total(p, t):
    """Scaled sum of a tree; of this module alone, since shapes depend on what a function has met before."""
    if t.left is None:
        return p["w"] * t.x
    return total(p, t.left) + total(p, t.right) + p["w"] * t.x


@cache
def examples():
    rng = np.random.default_rng(0)
    lengths = np.clip(np.round(rng.gamma(4.2, 4.6, COUNT)), 1, 52).astype(int)  # as sentences of a treebank

    def grow(leaves):
        if leaves == 1:
            return Node(float(rng.normal()))
        left = int(rng.integers(1, leaves))
        return Node(float(rng.normal()), grow(left), grow(leaves - left))

    return [grow(int(n)) for n in lengths]


@pytest.fixture(scope="module")
def data():
    made = ab.pack(examples()).plan(total)
    total(params(), made[:2])
    return made


def close(found, wanted):
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-4)


def shapes(batch):
    """All that `jax.jit` compiles anew for."""
    return jax.tree.structure(batch), tuple(x.shape for x in jax.tree.leaves(batch))


@pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
def test_later_epochs_meet_the_shapes_of_the_first(data, size):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        epochs = []
        for _ in range(5):
            order = rng.permutation(COUNT)
            epochs.append({shapes(data[order[at : at + size]]) for at in range(0, COUNT - size + 1, size)})
        assert set().union(*epochs) == epochs[0], f"seed {seed}"
        assert len(epochs[0]) <= 2


def test_minibatches_of_another_kind_have_classes_of_their_own(data):
    """The largest examples together, the smallest, and one of them many times."""
    order = np.argsort([str(t).count("Node") for t in examples()])
    for chosen in (order[-64:], order[:64], np.full(64, order[-1]), np.full(64, order[0])):
        close(total(params(), data[chosen]), total.loop(params(), [examples()[k] for k in chosen]))


def test_single_examples_are_bound_once(data):
    leaves, again = (jax.tree.leaves(data[[7]]) for _ in range(2))
    assert len(leaves) and all(a is b for a, b in zip(leaves, again, strict=True))
    found = {shapes(data[[k]]) for k in range(COUNT)}
    assert len(found) <= 4
    for k in (3, 7, 3):
        close(total(params(), data[[k]]), [total.example(params(), examples()[k])])


def test_what_is_kept_of_single_examples_does_not_change_with_them(data):
    one = data[[5]]
    changed = one.with_floats(jax.tree.map(lambda x: 2 * x, one.floats()))
    close(total(params(), data[[5]]), [total.example(params(), examples()[5])])
    assert changed.floats()["Node.x"][0] == 2 * one.floats()["Node.x"][0]


def test_a_loader_does_not_move_what_is_kept(data):
    """Tables of a loader lie on its device; an example that others have cut stays where it is."""
    one = data[[0]]
    (first, *_) = ab.Loader(data, 1, shuffle=False, device=jax.devices()[0])
    close(total(params(), first), total(params(), one))
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(one))
    assert all(a is not b for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(one), strict=True))


def test_arrays_alone_have_room_for_as_many_examples_as_there_are_or_an_eighth_more():
    f = ab.batched(lambda w, x: jnp.sum(jnp.tanh(x @ w)), in_axes=(None, 0), backend="xla")
    w, gradient = np.eye(3, dtype=np.float32), ab.grad(f)
    for n in (1, 3, 16, 17, 35):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        np.testing.assert_allclose(f(w, x), np.tanh(x).sum(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradient(w, x), x.T @ (1 - np.tanh(x) ** 2), rtol=1e-4, atol=1e-5)
    rooms = [plan.eighths(n) for n in range(1, 129)]
    assert all(n <= room <= n * 9 / 8 for n, room in enumerate(rooms, 1)) and len(set(rooms)) == 40


@pytest.mark.parametrize("derived", [False, True])
def test_batches_of_any_size_share_executables(derived):
    """An executable for each class, not for each number of examples."""

    def walk(w, xs):
        h = 0.0
        for x in xs:
            h = h * 0.5 + x * w
        return h

    rng = np.random.default_rng(0)
    f = ab.batched(walk, in_axes=(None, 0), backend="xla")
    for count in range(33, 38):
        data = [[float(x) for x in rng.normal(size=rng.integers(6, 9))] for _ in range(count)]
        if not derived:
            np.testing.assert_allclose(f(0.7, data), [walk(0.7, xs) for xs in data], rtol=1e-4, atol=1e-5)
            continue
        _, pull = ab.vjp(f, 0.7, data)
        cotangents, slopes = np.arange(len(data), dtype=np.float32), [walk(1.0, xs) for xs in data]
        np.testing.assert_allclose(pull(jnp.asarray(cotangents))[0], cotangents @ slopes, rtol=1e-3, atol=1e-2)
    assert f.cache_info().executables <= 2
