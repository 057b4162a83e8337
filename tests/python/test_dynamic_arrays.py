"""Arrays of NumPy whose shape is data, filled and changed in place: values, derivatives and failures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.errors import ExampleError, UnsupportedError
from autobatch.testing import assert_same
from tests.python import drawn_dynamic_arrays, dynamic_arrays

A = [[0.0, 2.0, 1.0], [3.0, 1.0, 1.0, 2.0], [2.0, 1.0, 3.0, 0.0, 1.0], [2.0, 2.0, 0.0]]
B = [[1.0, 0.0, 3.0], [2.0, 1.0, 2.0], [1.0, 3.0, 0.0, 2.0], [1.0, 2.0, 3.0, 0.0]]
X = [0.5, 1.25, 2.0, -0.5]
P = np.array([0.7, -0.4])


def check(function, *data, backend="llvm", shared=()):
    f = ab.batched(function, in_axes=(*(None for _ in shared), *(0 for _ in data)), backend=backend)
    given = [jnp.asarray(x, jnp.float32) for x in shared]
    wanted = [function(*shared, *x) for x in zip(*data, strict=True)]
    assert_same(ab.unbatch(f(*given, *data)), wanted, tolerance=1e-4)
    return f


@settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(program=drawn_dynamic_arrays.programs())
def test_random_programs(program):
    check(program.function, A, B, X, shared=(P,))


@pytest.mark.long
@settings(max_examples=6, deadline=None, phases=(Phase.generate,), suppress_health_check=[HealthCheck.too_slow])
@given(program=drawn_dynamic_arrays.programs())
def test_random_programs_by_xla(program):
    check(program.function, A, B, X, shared=(P,), backend="xla")


@pytest.mark.parametrize("function", dynamic_arrays.OF_ONE)
def test_of_one_list(function):
    check(function, A)


@pytest.mark.parametrize("function", dynamic_arrays.OF_TWO)
def test_of_two_lists(function):
    check(function, [a[:3] for a in A] if function is dynamic_arrays.cells else A, B)


@pytest.mark.parametrize("backend", ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", dynamic_arrays.AUGMENTED)
def test_augmented(function, backend):
    check(function, A, backend=backend)


@pytest.mark.xla
@pytest.mark.parametrize("backend", ["xla", "interpret", "auto"])
@pytest.mark.parametrize(
    "function",
    [dynamic_arrays.running_totals, dynamic_arrays.appended, dynamic_arrays.masked, dynamic_arrays.rows_swapped],
)
def test_back_ends(function, backend):
    check(function, A, backend=backend)


def alignment_cost(p, a, b):
    t = np.full((len(a) + 1, len(b) + 1), 50.0)
    t[0, 0] = 0.0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            t[i, j] = p[0] * (a[i - 1] - b[j - 1]) ** 2 + min(t[i - 1, j], t[i, j - 1] + p[1], t[i - 1, j - 1])
    return t[-1, -1]


def weighted(p, a, b):
    t = np.zeros((len(a), 2))
    for i in range(len(a)):
        t[i, 0] = p[0] * a[i]
        if a[i] > 1:
            t[i, 1] = p[1] * p[0]
        if i > 0:
            t[i] += t[i - 1] * 0.5
    u = np.array(b) * p[1]
    u[u > 1.5] = p[0]
    return (t * t).sum() + t[:, 1].max() + u.sum()


@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", [alignment_cost, weighted])
def test_derivatives(function, backend):
    p = np.array([0.9, 0.6])
    f = check(function, A, B, backend=backend, shared=(p,))

    def total(p):
        return sum(function(p, *x) for x in zip(A, B, strict=True))

    steps = [np.eye(2)[k] * 1e-5 for k in range(2)]
    wanted = [(total(p + step) - total(p - step)) / 2e-5 for step in steps]
    found = jax.grad(lambda p: jnp.sum(f(p, A, B)))(jnp.asarray(p, jnp.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_derivative_by_the_examples():
    f = ab.batched(alignment_cost, in_axes=(None, 0, 0), backend="llvm")
    found = ab.unbatch(ab.grad(f, 1)(jnp.asarray([0.9, 0.6]), A, B))
    for got, a, b in zip(found, A, B, strict=True):
        moved = [[x + 1e-5 * (k == n) for n, x in enumerate(a)] for k in range(len(a))]
        back = [[x - 1e-5 * (k == n) for n, x in enumerate(a)] for k in range(len(a))]
        wanted = [
            (alignment_cost([0.9, 0.6], x, b) - alignment_cost([0.9, 0.6], y, b)) / 2e-5
            for x, y in zip(moved, back, strict=True)
        ]
        np.testing.assert_allclose(got, wanted, atol=2e-2)


def outside(a):
    t = np.zeros(len(a))
    t[int(a[0]) + 2] = 1.0
    return t.sum()


def below_zero(a):
    return np.zeros(int(a[0]) - 3).sum() + len(a)


@pytest.mark.parametrize(
    ("function", "data", "words"),
    [
        (outside, [[0.0, 1.0, 1.0], [5.0, 1.0]], "index 7 is out of bounds for axis 0 with size 2"),
        (below_zero, [[4.0], [1.0]], "negative dimensions are not allowed"),
    ],
)
def test_failures(function, data, words):
    with pytest.raises(ExampleError, match=words):
        ab.batched(function, backend="llvm")(data)


def rows_of_fixed_length(a):
    t = np.zeros((len(a), 3), dtype=int)
    t[0] = [1, 2, 3]
    t[1:, 0] = 7
    return t


def test_results_are_arrays():
    made = ab.unbatch(ab.batched(rows_of_fixed_length)(A))
    assert [x.shape for x in made] == [(len(a), 3) for a in A]
    assert all(x.dtype == np.int32 for x in made)
    squares = ab.unbatch(ab.batched(dynamic_arrays.table_of_products)(A, B))
    assert [x.shape for x in squares] == [(len(a), len(b)) for a, b in zip(A, B, strict=True)]


def argument_changed(a):
    a[0] = 1.0
    return a.sum()


def floats_into_integers(a):
    t = np.zeros(len(a), dtype=int)
    t[0] = a[0]
    return t


def a_part_without_a_view(a):
    t = np.zeros((len(a), 3))
    v = t[:, 0]
    v += a[0]
    return t


def test_a_column_of_rows_of_a_fixed_length():
    """Where the lengths are known it has a view; elsewhere it is refused."""
    data = [np.asarray(a, np.float32) for a in A]
    assert_same(ab.unbatch(ab.batched(a_part_without_a_view)(data)), list(map(a_part_without_a_view, data)))
    with pytest.raises(UnsupportedError, match="a part of an array whose length is data is changed"):
        ab.batched(a_part_without_a_view)(A)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (argument_changed, "something else may hold them"),
        (floats_into_integers, "floats are cut to integers"),
    ],
)
def test_refused(function, words):
    data = [np.asarray(a, np.float32) for a in A]
    with pytest.raises(UnsupportedError, match=words):
        ab.batched(function)(data)
