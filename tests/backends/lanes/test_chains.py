"""Derivatives of loops that change arrays here and there: one memory for all versions, and a log."""

import importlib.util

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import code
from autobatch.backends.llvm.lanes import blocks, reverse
from autobatch.backends.llvm.lanes.tape import versions_of
from tests.backends.whole.in_place import SIZE, of_stores

pytestmark = pytest.mark.cpu

COUNT = 7


def given():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, COUNT, SIZE)).astype(np.float32)
    return a, b, rng.normal(size=COUNT).astype(np.float32), rng.integers(0, SIZE, COUNT).astype(np.int32)


def drawn(seed, folder):
    path = folder / f"stores{seed}.py"
    path.write_text(of_stores(seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.changed


def gradients(function, *arguments, argnums=(0, 1)):
    return ab.grad(ab.batched(function, backend="llvm"), argnums=argnums)(*arguments)


@pytest.fixture(autouse=True)
def one_lane(monkeypatch):
    monkeypatch.setattr(code, "WIDEST", 0)


@pytest.fixture
def chained(monkeypatch):
    """How many arrays of loops have had one memory."""
    found = []

    def noted(*args):
        versions = versions_of(*args)
        if versions is not None:
            found.append(versions)
        return versions

    monkeypatch.setattr(reverse, "versions_of", noted)
    return found


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(k, marks=pytest.mark.long) for k in range(4, 28))])
def test_the_same_as_with_copies(seed, tmp_path, chained, monkeypatch):
    function = drawn(seed, tmp_path)
    found = gradients(function, *given(), argnums=(0, 1, 2))
    assert chained
    monkeypatch.setattr(reverse, "versions_of", lambda *args: None)
    for x, y in zip(found, gradients(function, *given(), argnums=(0, 1, 2)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def table(a, b):
    """The alignment of two sequences, as a table."""
    n = a.shape[0]
    cost = [[0.0] * (n + 1) for _ in range(n + 1)]
    for i in range(n):
        for j in range(n):
            cost[i + 1][j + 1] = min(cost[i][j + 1] + 1.0, cost[i + 1][j] + 1.0, cost[i][j] + abs(a[i] - b[j]))
    return cost[n][n]


def soft(a, b):
    """The same with soft minima, in an array."""
    n = a.shape[0]
    cost = jnp.zeros((n + 1, n + 1))
    for i in range(n):
        for j in range(n):
            least = jnp.logaddexp(jnp.logaddexp(-cost[i, j + 1], -cost[i + 1, j]), -cost[i, j])
            cost = cost.at[i + 1, j + 1].set((a[i] - b[j]) ** 2 - least)
    return cost[n, n]


def sorted_by_swaps(a, b):
    xs = [a[k] * b[k] for k in range(len(a))]
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    total = 0.0
    for k in range(len(xs)):
        total += xs[k] * (k + 1.0)
    return total


def until_enough(a, b):
    """A loop that numbers end: its tape has levels."""
    xs, k = [a[i] * 1.0 for i in range(len(a))], 0
    while xs[0] + xs[3] < 5.0 and k < 200:
        i = k % len(xs)
        xs[i] = xs[i] * 1.1 + b[i] * b[i] if xs[i] > 0.0 else xs[i] + 0.3 * abs(b[i])
        k += 1
    return xs[0] * xs[3] + xs[5] * b[2]


FUNCTIONS = [table, soft, sorted_by_swaps, until_enough]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_like_xla(function, chained):
    a, b = np.random.default_rng(0).normal(size=(2, 6, 9)).astype(np.float32)
    found = gradients(function, a, b)
    assert chained
    wanted = ab.grad(ab.batched(function, backend="xla"), argnums=(0, 1))(a, b)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def whole_array_read(a, b):
    for k in range(5):
        a = a.at[k].set(jnp.sum(a))
    return jnp.sum(a)


def version_read_behind_its_change(a, b):
    for k in range(5):
        before = a
        a = a.at[k].set(b[k])
        a = a.at[k + 1].set(before[k] + a[k])
    return jnp.sum(a)


def two_that_are_exchanged(a, b):
    for k in range(5):
        a, b = b.at[k].set(a[k + 1]), a
    return jnp.sum(a * b)


@pytest.mark.parametrize("function", [whole_array_read, version_read_behind_its_change, two_that_are_exchanged])
def test_what_is_no_chain_of_versions(function, chained, monkeypatch):
    a, b = np.random.default_rng(0).normal(size=(2, 3, SIZE)).astype(np.float32)
    found = gradients(function, a, b)
    assert not chained
    wanted = ab.grad(ab.batched(function, backend="xla"), argnums=(0, 1))(a, b)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_no_memory_left(monkeypatch):
    monkeypatch.setattr(blocks, "FIRST", 1 << 50)
    a, b = np.ones((2, 3, 9), np.float32)
    with pytest.raises(MemoryError):
        gradients(table, a, b)
