"""Rows of a masked loop or arm that are few are packed together: how many are computed, values, gradients, what explain
says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.xla import masks
from autobatch.testing import assert_same
from tests.properties import masked as m
from tests.properties.test_gradients import total

computed: list[int] = []
"""How many rows each execution of `counted` had."""


def counted(x: Any) -> Any:
    """`x`; the host counts the rows that are computed."""

    def on_host(x: Any) -> Any:
        computed.append(int(np.size(x)))
        return np.zeros(np.shape(x), np.int32)

    fixed = jax.lax.stop_gradient(x)
    return x + jax.pure_callback(on_host, jax.ShapeDtypeStruct((), np.int32), fixed, vmap_method="expand_dims")


def rows_of(run: Any) -> int:
    computed.clear()
    jax.block_until_ready(run())
    jax.effects_barrier()
    return sum(computed)


def expected(turns: Any, widths: Any) -> int:
    """Rows that are computed where so many rows go on in a turn as have a larger number of `turns`."""
    rows, at = 0, 0
    for k in range(int(max(turns))):
        going = int(np.sum(np.asarray(turns) > k))
        while at + 1 < len(widths) and going <= widths[at + 1]:
            at += 1
        rows += widths[at]
    return rows


def settle(p: Any, n: Any, x: Any) -> Any:
    k = 0 * p["a"]
    while k < n:
        x = jnp.sin(counted(x)) * p["a"] + 0.1 * x
        k = k + 1
    return x


def widths_of(explained: ab.Explanation) -> list[int]:
    """The numbers of rows that `explain` says a loop is compiled for."""
    (why,) = [s["why"] for s in explained.data["strategies"] if "packed together" in s["why"]]
    (widths,) = re.findall(r"few are left: (.*) at a time", why)
    return [int(w.replace(",", "")) for w in re.findall(r"[\d,]*\d", widths)]


ROWS = 340
TURNS = np.ceil(np.random.default_rng(0).exponential(20.0, ROWS))
XS = np.random.default_rng(1).normal(size=ROWS)


def test_the_rows_that_uneven_loops_compute() -> None:
    f = ab.batched(settle, in_axes=(None, 0, 0))
    args = (m.shared(), jnp.asarray(TURNS), jnp.asarray(XS))
    f(*args)
    widths = widths_of(f.explain(*args))
    assert widths[0] >= ROWS and len(widths) >= 4
    rows = rows_of(lambda: f(*args))
    assert rows == expected(TURNS, widths)
    assert rows < 2 * TURNS.sum() < ROWS * TURNS.max() / 2, "all rows for as many turns as the longest"


def test_gradients_of_uneven_loops() -> None:
    f = ab.batched(settle, in_axes=(None, 0, 0))
    p, n, xs = m.shared(), jnp.asarray(TURNS), jnp.asarray(XS)
    gradient = jax.jit(jax.grad(lambda p, xs: jnp.sum(f(p, n, xs)), argnums=(0, 1)))

    def plain(p: Any, xs: Any) -> Any:
        def turn(k: Any, x: Any) -> Any:
            return jnp.where(k < n, jnp.sin(x) * p["a"] + 0.1 * x, x)

        return jnp.sum(jax.lax.fori_loop(0, int(TURNS.max()), turn, xs))

    found, wanted = gradient(p, xs), jax.grad(plain, argnums=(0, 1))(p, xs)
    np.testing.assert_allclose(found[0]["a"], wanted[0]["a"], rtol=1e-9)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-9, atol=1e-12)
    rows = rows_of(lambda: gradient(p, xs))
    assert rows < 0.6 * 3 * ROWS * TURNS.max(), "forward, forward again from the states that are kept, and backward"


def costly(p: Any, x: Any) -> Any:
    if x * p["a"] > 3.0:
        x = counted(x)
        for _ in range(9):
            x = jnp.sin(x) * p["a"]
    return x


def test_an_arm_that_few_take_is_computed_for_few() -> None:
    f, p = ab.batched(costly, in_axes=(None, 0)), m.shared()

    def taken_by(count: int) -> Any:
        return jnp.where(jnp.arange(ROWS) * 7 % ROWS < count, 4.0 + jnp.asarray(XS) / 9, 1.0)

    said = re.search(r"at most (\d+) of (\d+) rows take is computed for so many", str(f.explain(p, taken_by(1))))
    assert said is not None
    few, all_rows = map(int, said.groups())
    for count, rows in [(0, 0), (1, few), (few, few), (few + 1, all_rows), (ROWS, all_rows)]:
        xs = taken_by(count)
        assert rows_of(lambda: f(p, xs)) == rows  # noqa: B023
        assert_same(ab.unbatch(f(p, xs))[:9], f.loop(p, xs[:9]))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows are packed where there are only a few of them, and however little they do."""
    for name, value in (("WORK", 0), ("ARM_COST", 0), ("ARM_ROWS", 0), ("FEWEST", 1), ("COPIES", 10_000)):
        monkeypatch.setattr(masks, name, value)
    yield


PACKED = [m.checked, m.unlike, m.of_arrays, m.collatz]


@pytest.mark.parametrize("function", PACKED, ids=lambda f: f.__name__)
def test_values(function: Any, eager: None) -> None:
    xs = jnp.asarray([9.0, 0.25, 1.0, 7.0, 2.0, 0.25, 3.0])
    f = m.batched(function)
    assert_same(ab.unbatch(f(m.shared(), xs)), f.loop(m.shared(), xs)) if function is not m.checked else None
    if function is m.checked:
        found, failures = m.batched(function, on_error="mask")(m.shared(), xs)
        assert np.flatnonzero(failures.failed).tolist() == [0, 3]
        assert_same(found[1], function(m.shared(), xs[1]))


def through(p: Any, x: Any) -> Any:
    """The derivative of the arm that is not taken is infinite in some turns."""
    y = x * p["a"]
    while y > 0.5:
        y = y - 0.3 if y < 1.3 else 0.4 * y + jnp.sqrt(y - 1.3 * p["a"] if y > 1.3 * p["a"] else 1.0) / 9
    return y


def test_gradients(eager: None) -> None:
    """Double where: numbers of rows that are not in an arm do not reach it, packed or not."""
    f, p, xs = m.batched(through), m.shared(), jnp.asarray([0.25, 1.0, 7.0, 1.3, 2.75, 0.0])
    found = jax.grad(lambda p: total(f(p, xs)))(p)["a"]
    wanted = jax.grad(lambda p: sum(total(r) for r in f.loop(p, xs)))(p)["a"]
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_a_loop_that_reaches_its_limit_while_packed(eager: None) -> None:
    """Turns are counted from the first one on, whatever the width."""

    def steps(p: Any, x: Any) -> Any:
        y = x + 0 * p["a"]
        while y != 3:
            y = y + 1
        return y

    f = m.batched(steps, options=ab.options(max_iterations=50))
    with pytest.raises(ab.ExampleError, match="max_iterations=50") as raised:
        f(m.shared(), jnp.asarray([0.0, 0.5, -47.0, -48.0, 2.0, 1.0, 0.0]))
    assert [x.index for x in raised.value.failures] == [1, 3]
