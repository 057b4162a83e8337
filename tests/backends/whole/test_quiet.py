"""LLVM says nothing to whoever reads the standard error of a process: it can make vectors of all that it is told to."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm.text import is_checking

pytestmark = pytest.mark.skipif(is_checking(), reason="LLVM says that it does not vectorize checked loops")


def stacked(w, x):
    """Products of a row that is by itself, as a stack of arrays is too large for a gang; and a loop over them."""
    stack = [x]
    while stack[-1] @ stack[-1] > 0.1:
        stack.append(0.5 * jnp.tanh(w @ stack[-1] + stack[-1] @ w))
    total = x
    for k in range(20):
        total = jnp.tanh(total + w[k])
    return stack[-1] + total


def test_nothing_is_said(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # else it may have been compiled before
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=s).astype(np.float32) / 10 for s in ((60, 60), (6, 60)))
    f = ab.batched(stacked, in_axes=(None, 0), backend="llvm")
    np.testing.assert_allclose(f(w, x), f.loop(w, x), rtol=1e-4, atol=1e-5)
    assert capfd.readouterr().err == ""


def triangle(w, x):
    """Lists in memory, whose derivatives are added up at places that numbers choose; some of these are the same."""
    rows = [[w]]
    while x < 3.0:
        x, last = x * 1.5 + 0.3, rows[-1]
        rows.append([w, *(last[k] + last[k + 1] * x for k in range(len(last) - 1)), 1.0])
    return sum(rows[-1]) + rows[-1][len(rows) // 2] * len(rows)


def test_nothing_is_said_of_sums_at_computed_places(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    f = ab.batched(triangle, in_axes=(None, 0), backend="llvm")
    assert np.isfinite(ab.grad(f)(jnp.float32(0.7), np.array([0.2, 0.9], np.float32)))
    assert capfd.readouterr().err == ""


def forward(w, words):
    """A sum that is zero again where an index is out of range: a loop that carries more than what it adds up."""
    rows = [[0.0] * 3 for _ in words]
    for j in range(3):
        rows[0][j] = math.exp(w[j][words[0]])
    for t in range(1, len(words)):
        for j in range(3):
            rows[t][j] = sum(rows[t - 1][i] * math.exp(w[i][j]) for i in range(3)) * math.exp(w[j][words[t]])
    return math.log(sum(rows[-1]))


def test_nothing_is_said_of_loops_that_carry_more_than_sums(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    numbers = [[0.1, -0.3, 0.2], [0.4, 0.0, -0.1], [0.2, 0.3, 0.5]]
    f = ab.batched(forward, in_axes=(None, 0), backend="llvm")
    given = numbers, [[0, 1, 2, 1], [2], [1, 0]]
    np.testing.assert_allclose(f(*given), f.loop(*given), rtol=1e-5)
    assert capfd.readouterr().err == ""
