"""Derivatives by the floats inside examples: pulled back, along a direction, they are the slope of the plain loop."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import ways
from tests.properties import functions as f
from tests.properties import strategies as draws
from tests.properties.test_equivalence import CASES, SIZE

MOVING = [c for c in CASES if c.function not in (f.inner_numeric_loop, f.fib, f.float_fib)]
SOON = (f.with_loss, f.child_fold, f.top_down, f.ragged_results, f.messages, f.evaluate, f.two_trees, f.kept_nodes)
"""The others are as slow to compile, and are tested by their shared arguments (`test_gradients.py`)."""
QUICK = settings(max_examples=1, phases=(Phase.explicit, Phase.generate))  # each compiles: shrinking would take minutes


def generic(batch: list[Any]) -> list[Any]:
    """The examples with floats between which there are no ties: there is one slope."""
    steps = [dict.fromkeys(ways.floats(x), 0.013 * np.sqrt(k + 2.0)) for k, x in enumerate(batch)]
    return ways.moved(batch, steps, 1.0)


def check(function: Any, shared: tuple[Any, ...], *batches: list[Any]) -> None:
    """The pullback along a direction of all floats equals the slope of the plain loop, by central differences."""
    batches = tuple(map(generic, batches))
    examples = list(zip(*batches))
    directions = ways.random_directions((), examples)
    weights = [ways.slopes(r) for r in function.loop(*shared, *batches)]
    run = lambda _, x: function.example(*shared, *x)
    slope = ways.slope(run, (), examples, [ways.floats(w) for w in weights], directions)
    _, pull = ab.vjp(function, *shared, *batches)
    found = [ways.floats(x) for x in zip(*map(ab.unbatch, pull(weights)[len(shared) :]))]
    for own, x in zip(found, examples):
        assert own.keys() == ways.floats(x).keys(), "a derivative for each float, and for nothing else"
    along = ways.along(ways.Derivatives({}, found), directions)
    np.testing.assert_allclose(along, slope, rtol=1e-5, atol=1e-6, err_msg=function.__name__)


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=() if c.function in SOON else pytest.mark.long) for c in MOVING],
)
@QUICK
@given(data=st.data())
def test_slopes(case, data):
    shared = () if case.shared is None else (case.shared(),)
    check(case.function, shared, *(data.draw(draws.batches(d, SIZE)) for d in case.drawn))


@pytest.mark.parametrize("function", [f.with_loss, f.down_then_up])
@QUICK
@given(batch=draws.batches(draws.dags(), SIZE))
def test_slopes_of_shared_nodes(function, batch):
    check(function, (f.params(),), batch)


@pytest.mark.parametrize("function", [f.with_loss, f.messages])
def test_forward_mode_agrees_with_reverse(function):
    """<ct, J d> = <J^T ct, d>, for all inputs at once."""
    drawn = {f.with_loss: [draws.perfect(2), draws.Node(0.5)], f.messages: [graph() for _ in range(2)]}
    p, batch = f.params(), ab.pack(drawn[function])
    out, pull = ab.vjp(function, p, batch)
    rng = np.random.default_rng(1)
    dp = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), p)
    dbatch = pull(out)[1].with_floats({n: rng.normal(size=x.shape) for n, x in batch.floats().items()})
    _, dot = ab.jvp(function, (p, batch), (dp, dbatch))
    found_p, found = pull(out)
    pairs = zip(jax.tree.leaves(out), jax.tree.leaves(dot), strict=True)
    forward = sum(np.sum(a * b) for a, b in pairs if ways.is_float(a))
    backward = sum(np.sum(a * b) for a, b in zip(jax.tree.leaves(dp), jax.tree.leaves(found_p), strict=True))
    backward += sum(np.sum(found.floats()[n] * x) for n, x in dbatch.floats().items())
    np.testing.assert_allclose(forward, backward, rtol=1e-9)


def graph() -> Any:
    return [draws.Vertex(0.5, [1]), draws.Vertex(-0.25, [0, 2]), draws.Vertex(1.5, [])]
