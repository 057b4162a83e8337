"""The derivative of the greatest of equal numbers: that of the first in Python, equal parts in arrays."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.properties.strategies import Many

TIES = [[1.0, 1.0], [-0.0, 0.0], [0.0, -0.0], [1.0, 2.0, 2.0], [0.5, 0.5, 0.5], [3.0, 3.0, 1.0]]


def greatest(t: Many):
    return max([kid.x % 4.0 for kid in t.kids])


def least(t: Many):
    return min([kid.x for kid in t.kids], default=1.0)


def of_all(t: Many):
    return jnp.max(jnp.array([kid.x for kid in t.kids])) + jnp.min(jnp.array([kid.x for kid in t.kids]))


@pytest.mark.parametrize("function", [greatest, least, of_all])
def test_lists(function: Callable[[Many], float]):
    check_equivalence(ab.batched(function), [Many(0.0, [Many(x) for x in ties]) for ties in TIES])


@ab.batched(in_axes=(None, 0))
def in_a_loop(p, x: float):
    while x < 2.0:
        x += max([jnp.sin(p[i] * x) for i in range(3)]) + 1.0
    return x


@pytest.mark.parametrize("p", [[1.0, 1.0, 1.0], [0.5, 2.0, 2.0]])
def test_a_comprehension_in_machine_code(p: list[float]):
    with ab.options(backend="llvm"):
        found = ab.grad(in_a_loop)(jnp.array(p), np.array([0.5]))
    assert [bool(x) for x in found] == [max(p) == x and p.index(x) == n for n, x in enumerate(p)]
