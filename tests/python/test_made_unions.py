"""Values of several types that a function makes: a number on one path, a string, a tuple or an object on another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.errors import ExampleError
from autobatch.testing import assert_same
from tests.python import drawn_made_unions, made_unions
from tests.python.made_unions import Tree

X = [2.0, -1.0, 0.5, 3.0, -2.5]
XS = [[2.0, -1.0], [0.5], [3.0, 0.0, -2.5, 1.0], [-1.0, 2.0, 2.0], []]
BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"]


def tree(depth, value):
    return Tree(value, [tree(depth - 1, value * 0.5), tree(depth - 1, -value)] if depth else [])


TREES = [tree(2, 1.0), tree(2, -1.0), tree(1, 0.3), tree(0, -0.5)]
CASES = [
    *((f, X) for f in made_unions.OF_A_NUMBER),
    *((f, XS) for f in made_unions.OF_A_LIST),
    *((f, TREES) for f in made_unions.OF_A_TREE),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "data"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_written_programs(function, data, backend):
    assert_same(ab.unbatch(ab.batched(function, backend=backend)(data)), list(map(function, data)))


@settings(max_examples=40, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_made_unions.programs())
def test_random_programs(drawn):
    program, data = drawn
    with ab.options(trace=False):
        assert_same(ab.unbatch(ab.batched(program.function, backend="llvm")(data)), list(map(program.function, data)))


def test_it_is_differentiated():
    def loss(x):
        y = x * x if x > 0 else "none"
        return y * 3.0 if isinstance(y, float) else x

    def summed(xs):
        kept = [x * x if x > 0 else ("none", x) for x in xs]
        return sum(k[1] * 2.0 if isinstance(k, tuple) else k for k in kept)

    for backend in ("llvm", "xla"):
        found = ab.grad(ab.batched(loss, backend=backend))([2.0, -1.0])
        assert_same(np.asarray(found).tolist(), [12.0, 1.0])
        found = ab.grad(ab.batched(summed, backend=backend))([[2.0, -1.0], [3.0]])
        assert_same(ab.unbatch(found), [[4.0, 2.0], [6.0]])


def test_an_example_of_another_type_fails_as_in_python():
    def added(x):
        y = x if x > 0 else "neg"
        return y + 1.0

    with pytest.raises(ExampleError, match="TypeError: a value of type str here"):
        ab.batched(added)([1.0, -1.0])
    assert_same(np.asarray(ab.batched(added)([1.0, 2.0])).tolist(), [2.0, 3.0])


def test_what_no_type_has_a_meaning_for_fails_in_each_example():
    def halved(x):
        y = "a" if x > 0 else (x, x)
        return y / 2.0 if x < 5 else x

    assert_same(np.asarray(ab.batched(halved)([6.0])).tolist(), [6.0])
    with pytest.raises(ExampleError, match="TypeError: a value of type tuple here"):
        ab.batched(halved)([-1.0, 6.0])


def test_no_derivative_of_a_result_of_several_types():
    with pytest.raises(ab.BatchError, match="values of several types"):
        ab.grad(ab.batched(made_unions.returned))([1.0, -1.0])
