"""Products of what branches join, before the join: where, and that nothing changes but the rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.ir.system import Gather
from autobatch.passes.equations import row_product
from tests.passes.frames.programs import Node, computations, is_product, parameters, random_tree, schedule_of

WIDTHS = {"narrower": 2, "as wide": 4}


def heads(columns, *, twice=False, also=False):
    """The states of a tree, and a product of each node's, with so many columns."""

    @ab.batched(in_axes=(None, 0))
    def states(p, t: Node):
        if t.left is None:
            h = jnp.tanh(p["emb"][t.word % 5][:4] * t.x)
            total = 0.0
        else:
            hl, a = states(p, t.left)
            hr, b = states(p, t.right)
            h = jnp.tanh(hl @ p["V"] + hr)
            total = a + b
        y = (h @ p["V"][:, :columns]).sum()
        if twice:
            y = y * (h @ p["V"][:, 1:2]).sum()
        if also:
            y = y + h.max()
        return h, total + y

    return states


def moved(schedule):
    """Joins of results of products."""
    made = {r: e for e in schedule.system.equations for r in getattr(e, "results", ())}
    joins = [e for e in schedule.system.equations if isinstance(e, Gather) and len(e.inside) == len(e.sources)]
    return [g for g in joins if all(s in made and row_product(made[s]) is not None for s in g.sources)]


def trees(count=7):
    rng = np.random.default_rng(0)
    return [random_tree(rng, int(rng.integers(1, 8))) for _ in range(count)]


def numbers():
    return {"V": jnp.asarray(np.random.default_rng(1).normal(size=(4, 4))), **parameters()}


@pytest.mark.parametrize(
    ("function", "products"),
    [
        (heads(2), 1),
        (heads(2, twice=True), 1),
        (heads(4), 0),
        (heads(3, twice=True), 0),
        (heads(2, also=True), 0),
    ],
    ids=["narrower", "two, merged", "as wide", "two, as wide", "read elsewhere too"],
)
def test_what_moves(function, products):
    """Rows that only products read, and that are wider than what those give."""
    assert len(moved(schedule_of(function, numbers(), trees()))) == products


def test_values_and_gradients():
    with jax.enable_x64(True):
        p = jax.tree.map(lambda x: x.astype(jnp.float64), numbers())
        function = heads(2, twice=True)
        for (h, y), (wanted_h, wanted_y) in zip(
            ab.unbatch(function(p, trees())), function.loop(p, trees()), strict=True
        ):
            np.testing.assert_allclose(h, wanted_h, rtol=1e-12)
            np.testing.assert_allclose(y, wanted_y, rtol=1e-12)
        found = jax.grad(lambda p: function(p, trees())[1].sum())(p)
        wanted = jax.grad(lambda p: sum(function.example(p, t)[1] for t in trees()))(p)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, wanted)


@pytest.mark.xla
def test_they_are_one_product_of_the_program():
    """The rows of both branches are multiplied together."""
    hlo = computations(heads(2).lower(numbers(), trees()).as_text("backend"))
    lines = [line for block in hlo.values() for line in block if is_product(line) and "f32[" in line]
    assert sum(",2]" in line.split("=")[1].split("(")[0] for line in lines) == 1
