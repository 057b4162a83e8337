"""Rows that are nobody's never reach a result: padding, rows of later levels, buffers nobody has written yet.

Windows compute rows that are not live, and stages compute capacity. Here all of these hold NaN, infinity or huge
integers from the start, and every result has to be, bit for bit, what it is with zeros in their place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.xla.emit import Buffers
from autobatch.compiler import pipeline
from autobatch.data.spec import layout
from autobatch.ir import jax_compat
from autobatch.testing import assert_same
from tests.properties import functions as f
from tests.properties import strategies as draws
from tests.properties.strategies import Many, Node
from tests.properties.test_equivalence import values
from tests.properties.test_gradients import total

POISONS = {"nan": (np.nan, 2**30), "inf": (np.inf, -(2**30))}


def poisoned(array: np.ndarray, rows: int, floats: float, ints: int) -> np.ndarray:
    """The array with poison past its first rows."""
    made = array.copy()
    kind = made.dtype.kind
    made[rows:] = floats if kind == "f" else True if kind == "b" else ints
    return made


def spoil(monkeypatch, floats, ints):
    """Fill with poison what nobody has written; returns what was filled."""
    bind = pipeline.bind_plan
    touched = []

    def fill(shape, dtype):
        touched.append("buffer")
        if jnp.issubdtype(dtype, jnp.floating):
            return jnp.full(shape, floats, dtype)
        return jnp.full(shape, ints if jnp.issubdtype(dtype, jnp.integer) else True, dtype)

    def bound(plan, size_class, machine):
        tables, signature = bind(plan, size_class, machine)
        rows = plan.rows
        asked = plan.request
        tables = dict(tables)
        for column, space in asked.data:
            touched.append("data")
            tables[column] = poisoned(tables[column], rows(space), floats, ints)
        places, _ = layout(asked, signature)
        integers = tables["integers"] = tables["integers"].copy()
        for name, order in asked.columns:
            space = asked.orders[order].space
            count = int(integers[places["counts"][0] + space])
            if name in asked.wide:
                tables[f"{name}@{order}"] = poisoned(tables[f"{name}@{order}"], count, floats, ints)
                continue
            touched.append("column")
            start, length = places[f"{name}@{order}"]
            integers[start + count : start + length] = ints
        return tables, signature

    monkeypatch.setattr(jax_compat, "zeros", fill)
    monkeypatch.setattr(Buffers, "unwritten", lambda self, shape, dtype: fill(shape, dtype))
    monkeypatch.setattr(pipeline, "bind_plan", bound)
    return touched


@ab.batched(in_axes=(None, 0))
def largest_child(p, t: Many):
    """Every kind of fold, in the recurrence and after it."""
    below = [largest_child(p, kid) for kid in t.kids]
    most = max([b[0] for b in below], default=t.x)
    least = min([b[1] for b in below], default=-t.x)
    product = jnp.float32(1.0)
    for b in below:
        product = product * (1 + 0.1 * b[2])
    return jnp.sin(most) + t.x, jnp.cos(least) - t.x, product, sum([b[0] * b[1] for b in below], 0.0)


@ab.batched(in_axes=(None, 0))
def attended(p, t: Many):
    """A softmax over children: a maximum, exponentials and a quotient of two sums, which padding would spoil."""
    below = [attended(p, kid) for kid in t.kids]
    if not below:
        return p["b"] * t.x
    scores = jnp.stack([jnp.dot(p["b"], h) for h in below])
    weights = jax.nn.softmax(scores)
    return jnp.tanh(sum([h * w for h, w in zip(below, weights)], p["b"] * 0.0))


@jax.jit
def scattered(c):
    return jnp.zeros(3, c.dtype).at[jnp.argsort(c) // 2].add(c)


@ab.batched(in_axes=(None, 0))
def scanned(p, t: Node):
    """Loops of fixed length, branches on computed numbers, indices that are computed, sorts, scatters."""
    if t.left is None:
        return p["b"] * t.x
    a, b = scanned(p, t.left), scanned(p, t.right)
    c, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h + x), None), a, jnp.stack([b, a, b]))
    chosen = p["b"][jnp.argmax(c)] + p["b"][jnp.int32(jnp.abs(c[0]) * 10) % 3]
    spread = scattered(c)
    return jnp.where(c[0] > 0, jnp.sqrt(jnp.abs(c)), jnp.log1p(jnp.abs(c))) + chosen + jnp.sort(spread)


@ab.batched(in_axes=(None, 0))
def solved(p, t: Node):
    """Linear algebra, which takes many steps on what is not finite, and special functions."""
    if t.left is None:
        return jnp.abs(p["b"]) * (1.5 + jnp.abs(t.x))
    h = solved(p, t.left) + solved(p, t.right)
    m = jnp.outer(h, h) + jnp.eye(3, dtype=h.dtype)
    x = jnp.linalg.solve(m, h) + jnp.linalg.cholesky(m)[:, 0] / (1 + jnp.abs(h))
    return jnp.abs(x) + jax.scipy.special.gammainc(1.5 + jnp.abs(x), 1.0)


TREES = [draws.perfect(3, 0.5), draws.Node(1.25), draws.perfect(1, 2.0), draws.ladder(4)]
FAMILY = Many(0.5, [Many(0.25, [Many(k / 4) for k in range(n)]) for n in (0, 3, 1, 11)])
FAMILIES = [FAMILY, Many(1.0), Many(-0.5, [Many(0.125), FAMILY])]
WORDS = [[3, 0, 2, 2, 1, 4, 1], [1], [], [0, 4]]
CASES = {
    **{g.__name__: (g, f.params, TREES) for g in (f.bottom_up, f.with_loss, f.down_then_up, f.top_down, f.chained)},
    **{g.__name__: (g, f.params, TREES) for g in (f.inner_numeric_loop, f.chained_thrice, scanned, solved)},
    **{g.__name__: (g, f.params, FAMILIES) for g in (f.child_sum, f.child_reduction, f.child_fold, largest_child)},
    "attended": (attended, f.params, FAMILIES),
    **{g.__name__: (g, f.params, WORDS) for g in (f.forward, f.joined, f.ragged_results)},
    "evaluate": (f.evaluate, values, [draws.Add(draws.Num(1.0), draws.Neg(draws.Var(2))), draws.Num(2.0)]),
    "float_fib": (f.float_fib, f.params, [7, 0, 3]),
}


def fresh(function: Any) -> Any:
    """The same function, compiled anew, for XLA: machine code has no padding."""
    return type(function)(function.__wrapped__, replace(function.settings, backend="xla"))


@pytest.mark.parametrize(
    ("case", "poison"), [*((c, "nan") for c in CASES), *((c, "inf") for c in ("largest_child", "attended", "joined"))]
)
def test_what_is_nobodys_reaches_no_result(case, poison, monkeypatch):
    function, shared, batch = CASES[case]
    clean = fresh(function)(shared(), batch)
    touched = spoil(monkeypatch, *POISONS[poison])
    spoilt = fresh(function)(shared(), batch)
    assert touched, "there is no padding to poison"
    assert jax.tree.structure(clean) == jax.tree.structure(spoilt)
    for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(spoilt)):
        np.testing.assert_array_equal(a, b, err_msg=case)
    for k, (a, b) in enumerate(zip(ab.unbatch(spoilt), function.loop(shared(), batch), strict=True)):
        assert_same(a, b, f"{case}: example {k}")


REVERSED = ("down_then_up", "largest_child", "joined")


@pytest.mark.parametrize("case", [*REVERSED, *(pytest.param(c, marks=pytest.mark.long) for c in CASES)])
def test_what_is_nobodys_reaches_no_gradient(case, monkeypatch):
    """Neither those of shared arguments nor those of the floats of examples."""
    function, shared, batch = CASES[case]
    if function is f.inner_numeric_loop:
        pytest.skip("a loop that computed numbers end has no derivative in reverse")
    p = jax.tree.map(jnp.asarray, shared())

    def gradients(function):
        function(p, batch)
        data = ab.pack(batch).plan(function)
        return jax.grad(lambda p, x: total(function(p, data.with_floats(x))), argnums=(0, 1))(p, data.floats())

    clean = gradients(fresh(function))
    touched = spoil(monkeypatch, *POISONS["nan"])
    spoilt = gradients(fresh(function))
    assert "buffer" in touched or (touched and case not in REVERSED), "there is no padding to poison"
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(clean), jax.tree.leaves(spoilt), strict=True):
        np.testing.assert_array_equal(b, a, err_msg=f"{case}{jax.tree_util.keystr(path)}")


@pytest.mark.parametrize("widths", [(1,), (3,), (8,), (16, 5), (64,)])
def test_windows_shifted_back_recompute_what_they_find(widths):
    """Sums and products of two numbers are exact to the bit wherever a window begins, also over finished rows."""
    wide = [draws.Mul(draws.Num(0.1 + k / 3), draws.Var(k % 3)) for k in range(19)]
    while len(wide) > 1:
        pairs = [draws.Add(draws.Neg(a), b) for a, b in zip(wide[::2], wide[1::2])]
        wide = pairs + wide[len(pairs) * 2 :]
    batch = [*wide, draws.Mul(wide[0], draws.Num(0.7)), draws.Var(1)]
    function = fresh(f.evaluate)
    with ab.options(widths=widths):
        np.testing.assert_array_equal(function(values(), batch), [float(x) for x in function.loop(values(), batch)])
