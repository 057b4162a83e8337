"""Objects of the examples where objects stand that the function makes: machine code has both in one memory, results and
derivatives included, in loops and in recursions."""

from __future__ import annotations

import copy
from dataclasses import is_dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import autobatch as ab
from autobatch.testing import assert_same
from tests.memory import branching, built, drawn_built

pytestmark = pytest.mark.usefixtures("checked_memory")
P = jnp.asarray([0.7, -0.4], jnp.float32)


def all_same(found, wanted):
    assert_same(ab.unbatch(found), wanted, tolerance=1e-4)


def check(main, data, backends=("llvm", "auto")):
    wanted = [main(P, t) for t in data]
    for backend in backends:
        f = ab.batched(main, in_axes=(None, 0), backend=backend)
        all_same(f(P, data), wanted)
        if not any(is_dataclass(w) or w is None for w in wanted):
            slopes = jax.grad(lambda p: sum(jnp.float32(0) + main(p, t) for t in data))(P)
            np.testing.assert_allclose(ab.grad(f)(P, data), slopes, rtol=1e-3, atol=1e-4)


@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.filter_too_much],
)
@given(program=drawn_built.programs())
def test_random_programs(program):
    (kind,) = program.constructs
    data = {"expression": built.EXPRESSIONS, "branching": branching.TREES}.get(kind, built.TREES)
    try:
        wanted = [program.function(P, t) for t in data]
    except (AttributeError, RecursionError):
        wanted = None
    assume(wanted is not None)
    check(program.function, data)


@pytest.mark.parametrize(("function", "data"), built.NUMBERS + branching.NUMBERS)
def test_numbers(function, data):
    check(function, data)
    f = ab.batched(function, in_axes=(None, 0))
    assert f.explain(P, data).data["backend"]["taken"] == "llvm"


@pytest.mark.parametrize(("function", "data"), built.OBJECTS + branching.OBJECTS)
def test_results(function, data):
    f = ab.batched(function)
    all_same(f(data), [function(t) for t in data])
    assert f.explain(data).data["backend"]["taken"] == "llvm"


def test_where_jax_traces_the_call():
    """XLA has no form for it: it calls the machine code."""
    f = ab.batched(built.insert, in_axes=(None, 0))
    batch, wanted = f.pack(built.TREES), [built.insert(P, t) for t in built.TREES]
    np.testing.assert_allclose(jax.jit(lambda p: f(p, batch))(P), wanted, rtol=1e-5)
    slopes = jax.grad(lambda p: sum(built.insert(p, t) for t in built.TREES))(P)
    np.testing.assert_allclose(jax.grad(lambda p: f(p, batch).sum())(P), slopes, rtol=1e-4)


def test_objects_that_hold_others_of_another_class():
    def f(p, t):
        held = built.Held("new", built.N(p[0]), 1.0) if t.x > 0 else built.Held("old", t, 0.5)
        other = built.Held("third", held.root, held.w) if held.w > 0.7 else held
        return other.root.x * other.w + (0.25 if other.name == "old" else 0.0)

    check(f, built.TREES)


def test_more_objects_than_there_is_room_for():
    chain = None
    for k in range(90):
        chain = built.N(float(k % 5) - 2.0, chain, None)
    check(built.insert, [chain, *built.TREES], ["llvm"])


def test_a_list_that_may_be_of_the_examples_is_changed():
    def f(p, t):
        a = t if t.x > 0 else branching.T(p[0], [])
        a.kids.append(branching.T(p[1], []))
        return a.x + len(a.kids)

    check_changes(f, branching.TREES)


def test_an_object_that_may_be_of_the_examples_is_changed():
    def f(p, t):
        a = t if t.x > 0 else built.N(p[0])
        a.x = 1.0
        return a.x + t.x

    check_changes(f, built.TREES)


def check_changes(f, trees):
    """The result, and what the caller's trees are then."""
    ours, plain = copy.deepcopy(trees), copy.deepcopy(trees)
    found = ab.unbatch(ab.batched(f, in_axes=(None, 0), backend="llvm")(P, ours))
    assert_same(found, [f(P, t) for t in plain], tolerance=1e-6)
    assert_same(ours, plain, tolerance=1e-6)
