"""Iterators in variables, which are read under data-dependent control flow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import assert_same, check_equivalence
from tests.frontend.batches import refused

XS = [[0.9, 0.41, -0.7, 1.3, 2.1], [0.5, 1.7], [1.4, 0.31, 0.8], [0.05]]
PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


def grow(ys, y):
    if len(ys) < 8 and y > 0.6:
        ys.append(y * 0.5)


@program
def changes_are_seen(w, xs):
    ys = []
    for x in xs:
        if x * w > 0.3:
            ys.append(x)
    it, same, s = iter(ys), ys, 0.0
    for y in it:
        s = 2.0 * s + y
        grow(ys, y)
        if y > 1.0:
            same[-1] = y * 0.75
            same.pop(0)
    grow(ys, 0.7)
    return s + next(it, 100.0)  # which has come to its end


@program
def defaults_come_first(w, xs):
    it, s = iter(xs), 0.0
    for x in xs:
        if x * w > 0.3:
            s = 2.0 * s + next(it, next(it, 5.0))
    return s


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_agreement(function: Callable[..., Any], backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    check_equivalence(f, XS, (jnp.float32(1.1),), grads=False, backends=(backend,), jit=False, tolerance=2e-5)


def test_iterators_of_what_is_changed() -> None:
    def of_a_dict(w, xs):
        known = {0: 1.0, 1: 2.0}
        it = iter(known)
        s = 0.0
        for x in xs:
            if x * w > 0.3:
                s += next(it, 0)
            else:
                known[2] = x
        return s

    refused(of_a_dict, XS, jnp.float32(1.1), saying="kept of what is changed behind it")


def of_pairs(w, xs):
    ys = [x for x in xs if x * w > 0.3]
    pairs = enumerate(ys)
    s = next(pairs, (0, 0.0))[1]
    for k, y in pairs:
        grow(ys, y)
        s += k * y
    return s


def of_pairs_by_a_module(w, xs):
    ys = [x for x in xs if x * w > 0.3]
    pairs = enumerate(ys)
    s = next(pairs, (0, 0.0))[1]
    for k, y in pairs:
        THIS.grow(ys, y)
        s += k * y
    return s


def twice_in_a_call(w, xs):
    it = iter(xs)
    return sum(it, next(it)) if xs[0] * w > 0.3 else 0.0


THIS = sys.modules[__name__]


@pytest.mark.parametrize("function", [of_pairs, of_pairs_by_a_module, twice_in_a_call])
def test_iterators_that_are_no_places(function) -> None:
    w = jnp.float32(1.1)
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, in_axes=(None, 0), backend="llvm")(w, XS))
    assert_same(found, [function(w, xs) for xs in XS])
