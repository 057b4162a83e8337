"""Gangs whose lanes take the next row when they are done: the same bits as gangs one after another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes import refill
from autobatch.backends.llvm.lanes.refill import LoopSplit, Refilled

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)


def everything(p, n, v):
    """Numbers of all kinds, an array and a table that all rows share, something in front of the loop and behind it."""
    scale = jnp.sum(v * p)
    x, k, even, w = 0.5 * n, 0, True, v
    while k < n and x < 1e6:
        w = w * 0.9 + p[k % 3] * x
        x = x + scale * 0.01 if even else x + 1.0
        k, even = k + 1, not even
    return x * scale, k, even, w


def failing(p, n, v):
    x = 1.0
    while x < n:
        if x > 40.0:
            raise ValueError(f"{x} is too much")
        x = x * 1.1 + jnp.sum(p) * 0
    return x


P = jnp.float32([0.1, -0.2, 0.3])


def arguments(turns):
    turns = np.float32(turns)
    rng = np.random.default_rng(len(turns))
    return P, jnp.asarray(turns), jnp.asarray(rng.normal(size=(len(turns), 3)), jnp.float32)


def results(function, turns, backend):
    f = ab.batched(function, in_axes=(None, 0, 0), backend=backend)
    return jax.tree.leaves(f(*arguments(turns)))


@pytest.fixture
def refills(monkeypatch):
    """How many loops were written so that lanes are refilled: cheap ones too."""
    made = []
    monkeypatch.setattr(refill, "CHEAP", 0)
    write = Refilled.run_all
    monkeypatch.setattr(Refilled, "run_all", lambda self: (made.append(self), write(self))[1])
    return made


@pytest.mark.parametrize("backend", ["xla", "llvm"])
@settings(max_examples=8)
@given(turns=st.lists(st.one_of(st.integers(-1, 5), st.integers(0, 200)), min_size=1, max_size=70))
def test_the_same_bits(backend, turns):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refill, "CHEAP", 0)
        found = results(everything, turns, backend)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopSplit, "of", staticmethod(lambda *region: None))
        wanted = results(everything, turns, backend)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_lanes_are_refilled(backend, refills):
    turns = np.r_[np.zeros(5), np.arange(40), 300.0]
    found = results(everything, turns, backend)
    assert refills
    wanted = ab.batched(everything, in_axes=(None, 0, 0)).loop(*arguments(turns))
    for x, y in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_allclose(x, np.stack(y), rtol=1e-4)


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_rows_that_fail(backend, refills):
    turns = np.float32([3, 90, 5, 39, 41, 7, 60] * 5)
    with pytest.raises(ab.ExampleError) as raised:
        results(failing, turns, backend)
    assert refills
    assert [f.index for f in raised.value.failures] == np.flatnonzero(turns > 41.2).tolist()


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_rows_that_never_end(backend, refills):
    def endless(p, n, v):
        x = n
        while x > 0.0:
            x = x + jnp.sum(p) * 0 - jnp.where(n > 50.0, 0.0, 1.0)
        return x

    turns = np.float32([3, 90, 5, 39, 20, 7, 60] * 5)
    with ab.options(max_iterations=64), pytest.raises(ab.ExampleError) as raised:
        results(endless, turns, backend)
    assert refills
    assert [f.index for f in raised.value.failures] == np.flatnonzero(turns > 50).tolist()


def test_exactly_as_many_turns_as_it_may_have(refills):
    def counts(p, n, v):
        k = 0.0 * p[0]
        while k < n:
            k = k + 1.0
        return k

    with ab.options(max_iterations=64):
        np.testing.assert_array_equal(results(counts, [64, 3, 63], "xla")[0], [64, 3, 63])
        with pytest.raises(ab.ExampleError, match="1 of"):
            results(counts, [64, 65, 63], "xla")
    assert refills


def test_a_cheap_turn_is_not_worth_it(monkeypatch):
    made = []
    monkeypatch.setattr(Refilled, "run_all", lambda self: made.append(self))

    def counts(p, n, v):
        k = 0.0 * p[0]
        while k < n:
            k = k + 1.0
        return k

    np.testing.assert_array_equal(results(counts, [9, 3, 63], "xla")[0], [9, 3, 63])
    assert not made
