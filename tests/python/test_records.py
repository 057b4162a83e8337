"""Lists, tuples and dicts as records: each place or key has a type of its own, wherever they are kept."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.testing import assert_same
from tests.python import drawn_records
from tests.python.records import PROGRAMS, linked_lists, shapes, shortest, tree_of_tuples

XLA = pytest.param("xla", marks=pytest.mark.xla)
BACKENDS = ["llvm", "auto", XLA, pytest.param("interpret", marks=pytest.mark.long)]
NUMBERS = np.array([3.0, 7.0, 0.23, 0.9, 1.7], np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", PROGRAMS, ids=[f.__name__ for f in PROGRAMS])
def test_programs(function, backend):
    f = ab.batched(function, backend=backend)
    assert_same(ab.unbatch(f(NUMBERS)), [function(float(x)) for x in NUMBERS], tolerance=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [shortest, linked_lists, tree_of_tuples, shapes])
def test_derivatives(function, backend):
    found = ab.grad(ab.batched(function, backend=backend))(NUMBERS)
    step = 1e-5
    wanted = [(function(float(x) + step) - function(float(x) - step)) / (2 * step) for x in NUMBERS]
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3)


@settings(max_examples=15, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_records.programs())
def test_random_programs(drawn):
    program, data = drawn
    wanted = [program.function(*x) for x in data]
    with ab.options(trace=False):
        f = ab.batched(program.function, backend="llvm")
        assert_same(ab.unbatch(f(np.array([x for (x,) in data], np.float32))), wanted, tolerance=1e-3)


def test_types_stay_what_they_are():
    def f(x):
        rows = [[k, x * k, k > 1] for k in range(3)]
        rows[int(x) % 3][0] += 1
        return rows

    found = ab.unbatch(ab.batched(f, backend="llvm")(NUMBERS))
    assert [np.asarray(x).dtype.kind for x in found[0][1]] == ["i", "f", "b"]
    assert [x[0] for x in found[0]] == [1, 1, 2]


def test_what_is_no_record_says_why():
    def f(x):
        rows = [[x, True], [1.0, False]]
        rows[int(x) % 2].append(2.0)
        return rows

    with pytest.raises(ab.errors.Error, match="their length changes, or a place is computed, in line"):
        ab.batched(f, backend="llvm")(NUMBERS)


def test_under_jit():
    f = ab.batched(shortest, backend="xla")
    np.testing.assert_allclose(jax.jit(f)(NUMBERS), [shortest(float(x)) for x in NUMBERS], rtol=1e-5)
