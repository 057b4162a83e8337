"""Gradients of a batch equal those of the plain Python loop, for every function of `functions.py`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import autobatch as ab
from tests.properties import functions as f
from tests.properties import strategies as draws
from tests.properties.test_equivalence import CASES, SIZE

SHARED = [c for c in CASES if c.shared is not None and c.function is not f.inner_numeric_loop]
ON_XLA = (
    *(f.bottom_up, f.chained_thrice, f.larger_first, f.child_reduction, f.lists_decide, f.forward),
    *(f.joined, f.nested_loops, f.float_fib),
)
"""XLA compiles their adjoints in every run, those of the others in `make test-long`: the reference back end runs these.
(What is emitted of adjoints, drawn programs run too.)"""
QUICK = settings(max_examples=2, phases=(Phase.explicit, Phase.generate))  # each compiles: shrinking would take minutes


def total(result: Any) -> Any:
    """A number that depends on every float of a result, and not linearly."""
    leaves = [jnp.asarray(x) for x in jax.tree.leaves(result) if not isinstance(x, str)]
    floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    return sum((jnp.sum(x * x + 0.7 * x) for x in floats), jnp.float64(0.0))


def check(function: Any, shared: Any, *batches: list[Any]) -> None:
    """The gradient of the batched call equals that of the plain loop."""
    shared = jax.tree.map(jnp.asarray, shared)
    expected = jax.grad(lambda p: sum(total(r) for r in function.loop(p, *batches)))(shared)
    found = jax.grad(lambda p: total(function(p, *batches)))(shared)
    for (path, a), (_, b) in zip(
        jax.tree_util.tree_leaves_with_path(found), jax.tree_util.tree_leaves_with_path(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"{function.__name__}{path}")


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=() if c.function in ON_XLA else pytest.mark.long) for c in SHARED]
)
@QUICK
@given(data=st.data())
def test_shared_arguments(case, data):
    check(case.function, case.shared(), *(data.draw(draws.batches(d, SIZE)) for d in case.drawn))


@pytest.mark.parametrize("case", [c for c in SHARED if c.function not in ON_XLA], ids=lambda c: c.name)
@QUICK
@given(data=st.data())
def test_by_the_reference_back_end(case, data):
    with ab.options(backend="interpret"):
        check(case.function, case.shared(), *(data.draw(draws.batches(d, SIZE)) for d in case.drawn))


@pytest.mark.parametrize("function", [f.with_loss, f.chained, f.down_then_up, f.larger_first])
@QUICK
@given(batch=draws.batches(draws.dags(), SIZE))
def test_shared_nodes(function, batch):
    check(function, f.params(), batch)


TREES = [draws.perfect(2, 0.5), draws.Node(0.5, 1), draws.perfect(3, 0.2)]
MANY = [draws.Many(0.5, [draws.Many(0.1), draws.Many(0.3, [draws.Many(0.3)])]), draws.Many(0.2)]


def direction(p: Any) -> Any:
    return jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), p)


def along(gradient: Any, p: Any) -> Any:
    """The derivative along a fixed direction."""
    return sum(map(jnp.vdot, jax.tree.leaves(gradient), jax.tree.leaves(direction(p))))


@pytest.mark.parametrize(
    ("function", "batch"),
    [
        pytest.param(f.with_loss, TREES, marks=pytest.mark.long),
        pytest.param(f.chained_thrice, TREES, marks=pytest.mark.long),
        pytest.param(f.down_then_up, TREES, marks=pytest.mark.long),
        (f.child_reduction, MANY),
        pytest.param(f.forward, [[1, 2, 0], [3], []], marks=pytest.mark.long),
    ],
)
def test_second_order(function, batch):
    """Reverse over reverse: the halves of a derivative have derivatives."""
    p = jax.tree.map(jnp.asarray, f.params())
    plain = lambda p: sum(total(r) for r in function.loop(p, batch))  # noqa: E731
    batched = lambda p: total(function(p, batch))  # noqa: E731
    expected, found = (jax.grad(lambda p: along(jax.grad(g)(p), p))(p) for g in (plain, batched))  # noqa: B023
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.long
def test_third_order():
    p = jax.tree.map(jnp.asarray, f.params())
    batch = [draws.perfect(1, 0.5)]

    def third(g: Any) -> Any:
        second = lambda p: along(jax.grad(g)(p), p)  # noqa: E731
        return jax.grad(lambda p: along(jax.grad(second)(p), p))(p)

    expected = third(lambda p: sum(total(r) for r in f.bottom_up.loop(p, batch)))
    found = third(lambda p: total(f.bottom_up(p, batch)))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-7, atol=1e-7, err_msg=name)


def test_under_jit():
    data = ab.pack([draws.perfect(2), draws.Node(0.5), draws.perfect(3)]).plan(f.with_loss)
    loss = lambda p, b: total(f.with_loss(p, b))  # noqa: E731
    p = jax.tree.map(jnp.asarray, f.params())
    expected, found = jax.grad(loss)(p, data), jax.jit(jax.grad(loss))(p, data)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def test_a_loop_that_numbers_end_is_refused():
    with pytest.raises(ab.UnsupportedError, match="no derivative in reverse"):
        jax.grad(lambda p: total(f.inner_numeric_loop(p, [draws.Node(1.0)])))(f.params())


def test_the_products_of_weights_leave_the_loop():
    """The cotangent of a weight is one product of all rows, in no loop; the loop holds one product a width."""
    data = ab.pack([draws.perfect(3)]).plan(f.bottom_up)
    text = f.bottom_up.lower(f.params(), data).as_text(stage="adjoint")
    stage, loop = text.split("recurrence", 1)
    loop, behind = loop.split("stage:", 1)
    assert "contract dot_general" in behind and "contract" not in loop and "dot_general" in loop


def test_integers_and_arguments_that_do_not_matter():
    """An argument that does not reach the result has a gradient of zeros."""
    found = jax.grad(lambda p: total(f.bottom_up(p, [draws.perfect(2)])))({**f.params(), "unused": jnp.ones(3)})
    assert np.array_equal(found["unused"], np.zeros(3))


@ab.batched(in_axes=(None, 0))
def greatest(p, t: draws.Many):
    """Maxima and minima of arrays whose length is data, of numbers and of rows, and Python's own."""
    xs = [k.x * p["b"][0] for k in t.kids]
    rows = jnp.stack([k.x * p["b"] for k in t.kids])
    return jnp.max(jnp.stack(xs)) + 2 * jnp.stack(xs).min() + 3 * max(xs) + jnp.sum(rows.max(axis=0) ** 2)


def test_of_equal_elements_an_array_takes_all_and_python_the_first():
    """The derivative of jnp.max is even among those that are equal; that of `max` belongs to the first."""
    p = jax.tree.map(jnp.asarray, f.params())
    batch = [[0.5, 0.5, 0.25], [1.0, 1.0, 1.0, 1.0], [-1.0, 2.0]]
    found = ab.unbatch(ab.grad(greatest, argnums=1)(p, [draws.Many(0.0, [draws.Many(x) for x in xs]) for xs in batch]))
    for tree, xs in zip(found, batch, strict=True):

        def plain(xs: Any) -> Any:
            return greatest.example(p, draws.Many(0.0, [draws.Many(x) for x in xs]))

        np.testing.assert_allclose([k.x for k in tree.kids], jax.grad(plain)(list(map(jnp.float64, xs))), rtol=1e-9)
