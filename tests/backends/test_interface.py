"""Each back end fulfils the protocol of `backends/interface.py`: it accepts a function or says why not, what it
compiles runs and has derivatives, and its costs are numbers that grow with the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.interface import Cost, Declined, Load, Placement, WholeFunction, Work
from autobatch.backends.llvm.region import WIDEST
from autobatch.call.prepared import Prepared
from autobatch.compiler import choice
from autobatch.options import BACKENDS

FUNCTIONS = tuple(choice.BY_FUNCTIONS)
LOAD = Load(rows=64)
WORK = Work(operations=100, multiplications=1000, longest=16, loops=0, elements=1000, returned=4, dots=2)


X = np.linspace(-1.0, 2.0, 5, dtype=np.float32)
W = np.float32(1.5)


def wave(w: Any, x: Any) -> Any:
    """One example."""
    return jnp.sin(w * x) + x * x


def prepared(name: str, function: Callable[..., Any], *args: Any) -> Prepared:
    """A call, as far as a back end has it."""
    return ab.batched(function, in_axes=(None, 0), backend=name).lower(*args)._prepared


def source(name: str, call: Prepared) -> Any:
    """What the back end is asked to accept."""
    compiled = call.program.compiled
    if name not in FUNCTIONS:
        return compiled.rows
    whole = compiled.native.whole
    return WholeFunction(whole.module, whole.fails, whole.inputs)


def test_the_table_has_all_that_users_may_ask_for():
    assert set(choice.BACKENDS) == set(BACKENDS) - {"auto"}
    assert all(name == backend.name for name, backend in choice.BACKENDS.items())


@pytest.mark.parametrize("name", choice.BACKENDS)
class TestCosts:
    def test_are_times(self, name):
        found = choice.BACKENDS[name].cost(WORK, LOAD)
        assert isinstance(found, Cost) and found.call > 0 and found.first >= 0

    @pytest.mark.parametrize("more", ["rows", "derives"])
    def test_grow_with_the_call(self, name, more):
        cost = choice.BACKENDS[name].cost
        larger = replace(LOAD, rows=1 << 16) if more == "rows" else replace(LOAD, derives=True)
        assert cost(WORK, larger).call > cost(WORK, LOAD).call

    @pytest.mark.parametrize("part", ["elements", "multiplications", "operations"])
    def test_do_not_fall_with_the_work(self, name, part):
        cost = choice.BACKENDS[name].cost
        more = replace(WORK, **{part: 100 * getattr(WORK, part)})
        assert cost(more, LOAD).call >= cost(WORK, LOAD).call


@pytest.mark.parametrize("name", choice.BACKENDS)
class TestCode:
    def test_is_what_was_accepted(self, name):
        backend, call = choice.BACKENDS[name], prepared(name, wave, W, X)
        accepted = backend.accepts(source(name, call))
        assert not isinstance(accepted, Declined)
        code = backend.compile(accepted)
        if name == "cuda":  # it is launched where there is a GPU (tests/backends/cuda)
            assert ".entry" in code.text
            return
        if name in FUNCTIONS:
            (found, *_), failed = code.run([W, X], len(X), Placement())
            assert not failed
        else:
            ready = call.ready
            (found, *_) = code.run([W], ready.tables, ready.signature, plan=ready.plan)
        np.testing.assert_allclose(np.asarray(found)[: len(X)], wave(W, X), rtol=1e-6)

    def test_has_derivatives(self, name):
        backend, call = choice.BACKENDS[name], prepared(name, wave, W, X)
        code = backend.compile(backend.accepts(source(name, call)))
        wanted = jax.grad(lambda w: wave(w, jnp.asarray(X)).sum())(W)
        if name in FUNCTIONS:
            made = code.gradient(0, (0,))
            assert made is not None and code.refusal() is None
            if name == "cuda":
                assert ".entry" in made.text
                return
            (found, *_), _ = made.run([W, X, np.ones(len(X), np.float32)], len(X), Placement())
        else:
            ready = call.ready
            arrays, pull = code.gradient([W], ready.tables, ready.signature, plan=ready.plan)
            live = np.arange(arrays[0].shape[0]) < len(X)
            ((found, *_), _) = pull([jnp.asarray(live, jnp.float32)])
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_declined_says_why(name):
    small = prepared("xla", lambda w, x: jnp.ones(WIDEST + 1) * x, W, X)
    found = choice.BACKENDS[name].accepts(WholeFunction(small.program.compiled.example, False))
    assert isinstance(found, Declined)
    assert f"{WIDEST + 1:,} numbers" in found.error.message and f"'{name}'" in found.error.message
