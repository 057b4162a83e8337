"""Reads and writes of memory at places that each lane of a gang computes, against JAX."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import autobatch as ab
from tests.backends.lanes.harness import check, vector_width

WIDTH = vector_width()

COUNT = 37
RNG = np.random.default_rng(0)
TABLE = jnp.asarray(RNG.normal(size=300), jnp.float32)
GRID = jnp.asarray(RNG.integers(0, 1000, (20, 30)), jnp.int32)
OWN = jnp.asarray(RNG.normal(size=(COUNT, 40)), jnp.float32)


def places(low, high, *shape, dtype=np.int32):
    return jnp.asarray(RNG.integers(low, high, (COUNT, *shape)), dtype)


# name: (function of one row, what all rows share, what each row has)
CASES = {
    "numbers": (lambda t, i: (t[i], t[i] + t[i + 1]), [TABLE], [places(-350, 350)]),
    "numbers at a byte": (lambda t, i: t[i], [TABLE], [places(0, 255, dtype=np.uint8)]),
    "numbers at unsigned places": (lambda t, i: t[i], [TABLE], [places(0, 2**32, dtype=np.uint32)]),
    "a place on one axis": (lambda t, i: (t[i, 3], t[3, i], jnp.sum(t[i])), [GRID], [places(-9, 33)]),
    "places on both": (lambda t, i, j: t[i, j], [GRID], [places(0, 20), places(0, 30)]),
    "a slice": (lambda t, i: lax.dynamic_slice(t, (i,), (5,)), [TABLE], [places(-5, 310)]),
    "many places": (lambda t, i: (t[i], jnp.take(t, i, mode="fill")), [TABLE], [places(-310, 310, 3)]),
    "flags": (lambda t, i: t[i], [TABLE > 0], [places(0, 300)]),
    "keys": (lambda t, i: random.bits(t[i]), [random.split(random.key(0), 50)], [places(0, 50)]),
    "an array of each row": (lambda x, i: (x[i], x[i] * x[i - 1]), [], [OWN, places(-45, 45)]),
    "a write": (lambda x, i: x.at[i].set(7.0)[:20], [], [OWN, places(-45, 45)]),
    "a sum into a place": (lambda x, i: (x.at[i].add(x[i]) * 2.0)[10:], [], [OWN, places(-45, 45)]),
    "few numbers": (lambda x, i: (x[i], x[i + 1]), [], [OWN[:, :13], places(-15, 15)]),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_jax(name):
    fun, shared, rows = CASES[name]
    check(fun, [*shared, *rows], [False] * len(shared) + [True] * len(rows), WIDTH, ulps=32.0)


def walk_down(table, start):
    node = start
    while table[node] > 0:
        node = table[node]
    return node


def test_a_walk_through_a_shared_table_is_a_gang():
    """A table of any size is no array of the row, so rows of a loop that reads it run in lanes."""
    table = jnp.asarray(np.maximum(np.arange(500) - RNG.integers(1, 9, 500), 0), jnp.int32)
    starts = jnp.arange(0, 500, 7)
    walk_ = ab.batched(walk_down, in_axes=(None, 0), backend="xla")
    assert f"gangs of {WIDTH} rows" in str(walk_.explain(table, starts))
    np.testing.assert_array_equal(walk_(table, starts), walk_.loop(table, starts))
