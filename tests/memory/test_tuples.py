"""Tuples whose length is data come back as tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.memory.pairs import W, X, check_numbers
from tests.memory.test_records import rounded
from tests.memory.tuples import PROGRAMS, grown, of_a_list

SLOW = ("of_pairs", "in_memory", "inside_of_others")
CASES = [
    pytest.param(p, b, id=f"{p.__name__}-{b}", marks=[pytest.mark.long] * (b == "interpret" or p.__name__ in SLOW))
    for p in PROGRAMS
    for b in ("interpret", "llvm")
]


@pytest.mark.parametrize(("program", "backend"), CASES)
def test_results(program: Callable[..., Any], backend: str) -> None:
    f = ab.batched(program, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    found = ab.unbatch(f(W, X))
    assert list(map(repr, map(rounded, found))) == [repr(rounded(program(W, float(x)))) for x in X]


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), backend, True)


def test_derivatives_of_what_grows() -> None:
    f = ab.batched(lambda w, x: grown(w, x)[2], in_axes=(None, 0), backend="llvm")  # type: ignore[call-overload]
    slope = jax.grad(lambda w: f(w, X).sum())(W)
    numeric = (f(W + 1e-2, X).sum() - f(W - 1e-2, X).sum()) / 2e-2
    assert float(slope) == pytest.approx(float(numeric), rel=1e-2, abs=1e-3)


def test_through_jit_and_in_groups() -> None:
    f = ab.batched(of_a_list, in_axes=(None, 0))
    wanted = ab.unbatch(f(W, X))
    assert all(type(t) is tuple for t in wanted)
    held = jax.tree.map(lambda y: y, f(W, X))
    assert ab.unbatch(held) == wanted and f(W, X).to_list() == list(map(list, wanted))
    assert [type(t) for t in ab.unbatch(f(W, X[:0]))] == []


def lengths(w: Any, xs: Any) -> Any:
    return tuple(w * x for x in xs)


def test_structure_alone() -> None:
    f = ab.batched(lengths, in_axes=(None, 0))
    examples = [[1.0, 2.0], [], [3.0]]
    found = ab.unbatch(f(W, examples))
    assert [type(t) for t in found] == [tuple] * 3
    np.testing.assert_allclose(np.concatenate(found), np.asarray(jnp.asarray([1.0, 2.0, 3.0]) * W), rtol=1e-6)
