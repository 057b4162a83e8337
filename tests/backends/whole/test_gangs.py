"""Do rows form gangs? Where arithmetic pays for what lanes read at places of their own, and for where they part."""

import heapq

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code

pytestmark = [
    pytest.mark.by_cost,
    pytest.mark.skipif(machine_code.host().target.lanes < 2, reason="a processor without vectors"),
]


def escape(x):
    """A loop on numbers in registers."""
    z, n = x, 0
    while abs(z) < 4.0 and n < 50:
        z, n = z * z + x, n + 1
    return n


def diffused(x):
    """A table whose places all rows share."""
    heat = [x * k for k in range(9)]
    for _ in range(4):
        for k in range(1, 8):
            heat[k] += 0.2 * (heat[k - 1] - 2 * heat[k] + heat[k + 1])
    return sum(heat)


def chased(table, at):
    """A table that all rows read at places of their own, in one loop: they wait for memory together."""
    turns = 0
    while at != 0 and turns < 64:
        at, turns = table[at], turns + 1
    return turns


def summed(table, words):
    """Rows of a table, each of which one example reads as it lies."""
    total = jnp.zeros(32)
    for word in words:
        total = total + table[word]
    return total.sum()


def inserted(xs):
    """Loops inside each other that end where an example's numbers say so."""
    found = [x for x in xs]
    for i in range(1, len(found)):
        x, j = found[i], i - 1
        while j >= 0 and found[j] > x:
            found[j + 1] = found[j]
            j -= 1
        found[j + 1] = x
    return found[len(found) // 2]


def shortest(adjacent):
    """A heap in which each example moves on its own."""
    best, queue = [1e9] * len(adjacent), [(0.0, 0)]
    best[0] = 0.0
    while queue:
        d, u = heapq.heappop(queue)
        if d > best[u]:
            continue
        for v, w in adjacent[u]:
            if d + w < best[v]:
                best[v] = d + w
                heapq.heappush(queue, (best[v], v))
    return sum(b for b in best if b < 1e8)


LISTS = [[3.0, 1.0, 2.0], [5.0, 4.0], [1.0]]
WORDS = [[1, 2], [0], [3, 3, 1]]
GRAPHS = [[[(1, 0.5), (2, 2.0)], [(2, 0.25)], [(0, 1.0)]], [[(0, 1.0)]]]
TABLE = jnp.arange(160.0).reshape(5, 32)
PROGRAMS = {
    "escape": (escape, 0, (np.linspace(-2, 2, 40, dtype=np.float32),), True),
    "diffused": (diffused, 0, (np.linspace(-2, 2, 40, dtype=np.float32),), True),
    "chased": (chased, (None, 0), (jnp.asarray([0, 3, 1, 2] * 8), np.arange(32, dtype=np.int32)), True),
    "summed": (summed, (None, 0), (TABLE, WORDS), False),
    "inserted": (inserted, 0, (LISTS,), False),
    "shortest": (shortest, 0, (GRAPHS,), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_by_cost(name):
    function, in_axes, given, gangs = PROGRAMS[name]
    lowered = ab.batched(function, in_axes=in_axes, backend="llvm").lower(*given)
    assert (lowered.compile().executable.width > 1) == gangs


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_both_ways(name, monkeypatch):
    function, in_axes, given, _ = PROGRAMS[name]
    found = []
    for gangs in (False, True):
        monkeypatch.setattr("autobatch.backends.llvm.code.form_gangs", lambda *_, gangs=gangs: gangs)
        found.append(np.asarray(ab.batched(function, in_axes=in_axes, backend="llvm")(*given)))
    np.testing.assert_array_equal(*found)
