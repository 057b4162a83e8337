"""A variable that is a bool on one path and a number on another: True is 1 there, as it is in arithmetic."""

from __future__ import annotations

import jax
import pytest

import autobatch as ab
from autobatch.testing import assert_same


def in_a_branch(x):
    found = 0
    if x > 1:
        found = x > 1.5
    return found + 1


def in_a_loop(x):
    found = False
    for k in range(3):
        if x > k:
            found = k
    return found


def beside_a_float(x):
    found = x > 1
    if x > 2:
        found = 2.5
    return found * x, found == True  # noqa: E712


def in_a_list(x):
    items = [True, 2, x > 1]
    return sum(items), items[int(x) % 3]


def in_a_recursion(x):
    def count(n):
        return n > 1 if n < 2 else count(n - 2) + 1

    return count(int(x))


def or_none(x):
    best = None
    if x > 1:
        best = x > 2
    elif x > 0:
        best = 3
    return -1 if best is None else best


@pytest.mark.parametrize("backend", ["llvm", "interpret", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", [in_a_branch, in_a_loop, beside_a_float, in_a_list, in_a_recursion, or_none])
def test_programs(function, backend):
    data = [0.5, 1.2, 1.7, 2.5]
    found = ab.unbatch(ab.batched(function, backend=backend)(data))
    assert_same(jax.tree.map(float, found), jax.tree.map(float, [function(x) for x in data]))
