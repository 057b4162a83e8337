"""Arrays of NumPy of a fixed shape are changed in place under all their names."""

from __future__ import annotations

import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import UnsupportedError
from autobatch.testing import assert_same
from tests.python import fixed_arrays

LISTS = [[0.5, 2.0, 1.5], [3.0, 1.0], [1.25, 0.25, 2.5, 3.5], [0.75]]
SMOOTH = [[0.55, 2.1, 1.6], [3.1, 0.85], [1.3, 0.35, 2.45]]
"""Where no test is near to another answer."""
BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", fixed_arrays.OF_ONE)
def test_values(function, backend):
    found = ab.unbatch(ab.batched(function, backend=backend)(LISTS))
    assert_same(found, list(map(function, LISTS)), tolerance=1e-5)


@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", [fixed_arrays.bodies, fixed_arrays.in_a_list, fixed_arrays.names_that_part])
def test_derivatives(function, backend):
    def total(a):
        found = function(a)
        return sum(np.sum(x) for x in found) if isinstance(found, tuple) else np.sum(found)

    found = ab.unbatch(ab.grad(ab.batched(total, backend=backend))(SMOOTH))
    for a, slopes in zip(SMOOTH, found, strict=True):
        for k, slope in enumerate(slopes):
            moved = [total([x + sign * 1e-3 * (i == k) for i, x in enumerate(a)]) for sign in (1, -1)]
            assert abs((moved[0] - moved[1]) / 2e-3 - slope) < 1e-2


def test_a_part_of_a_large_array_is_not_kept():
    def stale(a):
        held = {"t": np.zeros(300)}
        u = held["t"][:2]
        held["t"][0] = a[0]
        return u.sum()

    with pytest.raises(UnsupportedError, match=r"kept here, and would not change with it.*\n.*\n.*\n.*copy it: "):
        ab.batched(stale, backend="llvm")(LISTS)


def test_arrays_of_jax_are_none_of_these():
    def given(a, x):
        held = [x]
        held[0][0] = a[0]
        return held[0].sum()

    with pytest.raises(UnsupportedError):
        ab.batched(given, backend="llvm")(LISTS, np.ones((4, 3), np.float32))
