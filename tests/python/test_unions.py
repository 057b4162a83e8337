"""Data of several types in one place: `Expr | float | str`, `list[int | str]`, `float | list[float | list[...]]`."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.errors import ExampleError, UnsupportedError
from autobatch.testing import assert_same
from tests.python import drawn_unions, unions
from tests.python.unions import Add, Neg

X = [0.5, 1.25, 2.0, -0.5]
P = np.array([0.7, -0.4])


def check(function, *data, backend="llvm"):
    given = [x[: len(data[0])] for x in data]
    assert_same(ab.unbatch(ab.batched(function, backend=backend)(*given)), list(map(function, *given)))


BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "data"), unions.OF_ONE)
def test_of_one(function, data, backend):
    check(function, data, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "data"), unions.OF_TWO)
def test_with_a_number(function, data, backend):
    check(function, data, X, backend=backend)


@pytest.mark.parametrize("function", [unions.doubled, unions.shown])
def test_what_is_made_anew_has_several_types_too(function):
    """A trace runs what does not compile: a result of its own type in each example."""
    with ab.options(trace=True):
        check(function, unions.TREES, backend="auto")


@settings(max_examples=60, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_unions.programs())
def test_random_programs(drawn):
    program, data = drawn
    wanted = []
    for t, x in zip(data, X, strict=True):
        try:
            wanted.append(program.function(P, t, x))
        except TypeError:  # what is drawn for one type may not be meant for what is in it
            return
    if all(t in ([], None) for t in data):  # nobody knows what such lists would hold
        return
    found = ab.batched(program.function, in_axes=(None, 0, 0), backend="llvm")(jnp.asarray(P, jnp.float32), data, X)
    assert_same(ab.unbatch(found), wanted, tolerance=1e-4)


@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.xla)])
def test_derivatives(backend):
    f = ab.batched(unions.evaluated, backend=backend)
    trees, numbers = ab.grad(f, argnums=(0, 1))(unions.TREES, X)
    assert_same(ab.unbatch(trees)[0], Add(1.0, Neg(Add(None, -1.0))))
    assert_same(ab.unbatch(trees)[1], Neg(None))
    assert_same(np.asarray(numbers), np.array([-1.0, -2.5, 1 + 2 * 2.0, 0.0], np.float32))
    nested = ab.grad(ab.batched(lambda t: unions.total(t) ** 2, backend=backend))(unions.NESTED)
    assert_same(ab.unbatch(nested), [4.0, [12.0, 12.0], [[15.0, 15.0], 15.0], [[], [12.0, [12.0, [12.0]]]]])


def test_of_what_all_examples_share():
    shared = Add(2.0, Neg(Add("x", 2.5)))
    f = ab.batched(unions.evaluated, in_axes=(None, 0), backend="llvm")
    assert_same(ab.unbatch(f(shared, X)), [unions.evaluated(shared, x) for x in X])
    found = ab.grad(f)(shared, X)
    assert_same(found, Add(4.0, Neg(Add(None, -4.0))))


def test_packed_saved_and_pickled(tmp_path):
    batch = ab.pack(unions.TREES)
    batch.save(tmp_path / "trees")
    f = ab.batched(unions.size)
    for other in (batch, ab.load(tmp_path / "trees"), pickle.loads(pickle.dumps(batch)), batch[np.array([3, 0])]):
        assert_same(ab.unbatch(f(other)), list(map(unions.size, ab.unbatch(other))))


def test_batches_that_show_fewer_types():
    f = ab.batched(unions.total)
    for data in ([[1.0], [2.0, 3.0]], [4.0], unions.NESTED, [[1.0]]):
        assert_same(ab.unbatch(f(ab.pack(data))), list(map(unions.total, data)))


def test_within_jit():
    f, batch = ab.batched(unions.evaluated), ab.pack(unions.TREES)
    f(batch, jnp.asarray(X))
    found = jax.jit(lambda b, x: f(b, x).sum())(batch, jnp.asarray(X))
    assert_same(float(found), sum(map(unions.evaluated, unions.TREES, X)))


def test_a_value_of_the_wrong_type_fails_its_example():
    def twice(t):
        return t * 2.0

    f = ab.batched(twice, backend="llvm")
    with pytest.raises(ExampleError, match=r"example 1 .*TypeError: a value of another type where float is needed"):
        f([1.0, Neg(2.0), 3.0])
    with pytest.raises(UnsupportedError, match="no Neg .*has the attribute 'upper'"):
        ab.batched(lambda t: t.upper())([1.0, Neg(2.0)])


def test_isinstance_in_programs_that_are_traced():
    def by_id(t):
        out = {}

        def walk(n):
            out[id(n)] = n.arg * 2 if isinstance(n.arg, float) else 1000.0
            return out

        walk(t)
        return sum(out.values())

    with ab.options(trace=True):
        assert_same(ab.unbatch(ab.batched(by_id)([Neg(1.0), Neg(3.0)])), [2.0, 6.0])


def test_the_type_of_an_unknown_number_is_refused():
    def by_name(t):
        held = vars(t)
        return held["arg"] * 2 if type(t.arg) is float else 1000.0

    with ab.options(trace=True), pytest.raises(UnsupportedError, match="whether this is a number of Python is asked"):
        ab.batched(by_name)([Neg(1.0), Neg(3.0)])
