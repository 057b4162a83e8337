"""Batches whose floats alone are traced: their plan is made of the examples on the host, which are known."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, trees

P = {"w": jnp.float32(2)}


@dataclass
class Wave:
    x: float
    z: complex


def product():
    """A batched function of its own, which no test has called."""

    @ab.batched(in_axes=(None, 0))
    def f(p, t):
        if t.left is None:
            return p["w"] * t.x
        return f(p, t.left) * f(p, t.right) + p["w"] * t.x

    return f


def slope(f, data):
    return ab.unbatch(ab.grad(f, argnums=1)(P, data))


def test_the_floats_of_a_batch_that_was_planned_and_never_called():
    f = product()
    data = ab.pack(trees()).plan(f)
    floats = data.floats()
    found = jax.grad(lambda x: f(P, data.with_floats(x)).sum())(floats)
    close(found["Node.x"], ab.grad(f, argnums=1)(P, data).floats()["Node.x"])
    assert f.cache_info().plans == 1
    within = jax.jit(jax.grad(lambda x: f(P, data.with_floats(x)).sum()))
    close(within(floats)["Node.x"], found["Node.x"])


def test_a_minibatch_is_cut_from_the_plan_of_the_whole():
    f = product()
    part = ab.pack(trees()).plan(f)[[2, 0]]
    found = jax.grad(lambda x: f(P, part.with_floats(x)).sum())(part.floats())
    close(found["Node.x"], ab.grad(f, argnums=1)(P, part).floats()["Node.x"])
    f(P, part)
    assert f.cache_info().plans == 1


def test_a_plain_function_with_a_number_of_another_type():
    f = product()
    data = f.pack(trees())
    f(P, data)
    by_number, by_data = ab.grad(lambda w, b: f({"w": w}, b), argnums=(0, 1))(2.0, data)
    close(by_number, jax.grad(lambda w: f({"w": w}, data).sum())(jnp.float32(2)))
    assert [t.x for t in ab.unbatch(by_data)] == pytest.approx([t.x for t in slope(f, data)])


def test_floats_that_decide_structure_are_compared():
    @ab.batched
    def f(t):
        return t.x * t.x if t.x > 2 else -t.x

    data = ab.pack([Node(1.0), Node(3.0)]).plan(f)
    floats = data.floats()
    close(jax.grad(lambda x: f(data.with_floats(x)).sum())(floats)["Node.x"], [-1, 6])
    with pytest.raises(Exception, match="stale plan: column Node.x"):
        moved = {"Node.x": floats["Node.x"] + 2}
        jax.block_until_ready(jax.grad(lambda x: f(data.with_floats(x)).sum())(moved))
        jax.effects_barrier()


def test_a_failure_of_planning_is_raised():
    @ab.batched
    def f(t):
        assert t.left is not None, "a leaf"
        return t.x * t.left.x

    data = ab.pack(trees()).plan(f)
    with pytest.raises(ab.ExampleError, match="a leaf"):
        jax.grad(lambda x: f(data.with_floats(x)).sum())(data.floats())


def test_a_batch_that_no_function_was_planned_for_is_planned_from_what_the_host_has():
    f = product()
    first, second = ab.pack(trees()), ab.pack(trees())
    f(P, second)
    found, wanted = (jax.grad(lambda x: f(P, b.with_floats(x)).sum())(b.floats()) for b in (first, second))
    close(found["Node.x"], wanted["Node.x"])


def test_complex_columns_are_among_the_floats():
    f = ab.batched(lambda wave: abs(wave.z) ** 2 * wave.x)
    data = ab.pack([Wave(1.0, 1 + 2j), Wave(2.0, 3j)]).plan(f)
    floats = data.floats()
    assert sorted(floats) == ["Wave.x", "Wave.z"]
    found = jax.grad(lambda x: f(data.with_floats(x)).sum())(floats)
    close(found["Wave.z"], [2 - 4j, -12j])  # conjugated, as jax.grad has it
    close(found["Wave.x"], [5, 9])
    moved = data.with_floats({"Wave.z": 2 * floats["Wave.z"]})
    assert list(moved) == [Wave(1.0, 2 + 4j), Wave(2.0, 6j)]
