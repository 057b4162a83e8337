"""`heapq` and `bisect` under computed control: the elements, their places, and which of equal ones comes first."""

from __future__ import annotations

import bisect
import heapq
from heapq import heappush as push
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence

BACKENDS = ("interpret", "xla", "llvm")
LONG = pytest.mark.long
ONE = jnp.float32(1.0)
ROUNDS = 10


def check(f: Any, batch: Any, backend: str) -> None:
    f = ab.batched(f, in_axes=(None, 0))
    check_equivalence(f, batch, (ONE,), grads=backend != "llvm", backends=(backend,), jit=False, tolerance=2e-5)


def operations(w: Any, codes: Any) -> Any:
    """Operations on a heap and a sorted list; numbers decide which. Equal keys carry different values."""
    heap, row, total, n = [(3, 1.0 * w), (3, 2.0 * w)], [0.5 * w], w, 0
    while n < codes.shape[0] and codes[n, 0] * w >= 0.0:
        code, k = codes[n, 0] * w, int(codes[n, 1])
        if code < 2.5:
            heapq.heappush(heap, (k, total))
        elif code < 4.5:
            if heap:
                rank, x = heapq.heappop(heap)
                total = total * 0.5 + x * (rank + 1)
        elif code < 5.5:
            rank, x = heapq.heappushpop(heap, (k, w))
            total = total * 0.5 + x + rank
        elif code < 6.5:
            if len(heap) > 0:
                rank, x = heapq.heapreplace(heap, (k, total))
                total = total + x
        elif code < 7.5:
            heap = [(-a, x) for a, x in heap]
            heapq.heapify(heap)
        else:
            bisect.insort(row, w * k)
            total = total + 0.1 * bisect.bisect_left(row, 1.5 * w) + 0.01 * bisect.bisect(row, 1.0 * w)
        n = n + 1
    for rank, x in heap:
        total = total * 0.5 + x * (rank + 2)
    for x in row:
        total = total * 0.5 + x
    return total + sum(x for _, x in heapq.nsmallest(2, heap)) + 2.0 * sum(heapq.nlargest(2, row))


CODES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=ROUNDS)


def padded(batch: list[list[tuple[int, int]]]) -> list[Any]:
    return [np.array([*codes, *[(-1, 0)] * (ROUNDS - len(codes))], np.int32) for codes in batch]


def pushes(w: Any, codes: Any) -> Any:
    """The most used of `operations`, which are soon compiled."""
    heap, total, n = [(3, 1.0 * w), (3, 2.0 * w)], w, 0
    while n < codes.shape[0] and codes[n, 0] * w >= 0.0:
        k = int(codes[n, 1])
        if codes[n, 0] * w < 4.5:
            heapq.heappush(heap, (k, total))
        elif heap:
            rank, x = heapq.heappop(heap)
            total = total * 0.5 + x * (rank + 1)
        n = n + 1
    for rank, x in heap:
        total = total * 0.5 + x * (rank + 2)
    return total


@settings(max_examples=6)
@given(batch=st.lists(CODES, min_size=3, max_size=3))
def test_any_pushes_and_pops(batch: list[list[tuple[int, int]]]) -> None:
    check(pushes, padded(batch), "llvm")


@LONG
@settings(max_examples=2)
@given(batch=st.lists(CODES, min_size=2, max_size=2))
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_sequence_of_operations_and_derivatives(batch: list[list[tuple[int, int]]], backend: str) -> None:
    check(operations, padded(batch), backend)


def shortest(w: Any, graph: Any) -> Any:
    """Dijkstra's algorithm: a queue of distances and nodes, a dict of distances, a set of nodes that are done."""
    neighbours, lengths = graph
    distance, queue, done = {0: 0.0 * w}, [(0.0 * w, 0)], set()
    while queue:
        d, u = heapq.heappop(queue)
        if u in done:
            continue
        done.add(u)
        for v, length in zip(neighbours[u], lengths[u], strict=True):
            if v not in distance or d + w * length < distance[v]:
                distance[v] = d + w * length
                heapq.heappush(queue, (distance[v], v))
    return sum(distance.values()) + 0.1 * len(done)


GRAPHS = [
    ([[1, 2], [2, 3], [3], []], [[1.0, 4.0], [2.0, 6.0], [3.0], []]),
    ([[1], []], [[0.5], []]),
    ([[1, 2], [2], [0]], [[3.0, 0.5], [1.0], [2.0]]),
]


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=LONG)])
def test_shortest_paths(backend: str) -> None:
    check(shortest, GRAPHS, backend)


def settled_ranks(w: Any, graph: Any) -> Any:
    """PageRank in rounds until it settles: in each, all lists of neighbours are read."""
    neighbours, _ = graph
    n, change = len(neighbours), 1.0
    rank = {v: 1.0 / n for v in range(n)}
    while change > 0.01:
        new = {v: 0.15 / n * w for v in range(n)}
        for u in range(n):
            for v in neighbours[u]:
                new[v] = new[v] + 0.85 * rank[u] / len(neighbours[u])
        change = sum(abs(new[v] - rank[v]) for v in new)
        rank = new
    return rank[0] * w + sum(rank.values())


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=LONG)])
def test_lists_of_lists_that_numbers_read(backend: str) -> None:
    check(settled_ranks, GRAPHS, backend)


def test_an_empty_heap_fails_its_example_alone() -> None:
    def emptied(w: Any, x: Any) -> Any:
        heap, y = [w], w * x
        while y < 3.0:
            y = y + 1.0 + heapq.heappop(heap)
        return y

    f = ab.batched(emptied, in_axes=(None, 0), backend="llvm")
    with pytest.raises(ab.ExampleError) as failed:
        f(ONE, np.array([0.1, 2.5, 3.5], np.float32))
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [(0, "IndexError", "index out of range")]


def by_another_name(w: Any, x: float) -> Any:
    heap, y = [w], w * x
    while y < 3.0:
        y = y + 1.0
        push(heap, y)
    return sum(heap)


def of_no_name(w: Any, x: float) -> Any:
    heaps, y = {"a": [w]}, w * x
    while y < 3.0:
        y = y + 1.0
        heapq.heappush(heaps["a"], y)
    return sum(heaps["a"])


@pytest.mark.parametrize("f", [by_another_name, of_no_name])
def test_lists_of_no_name(f: Any) -> None:
    """They have memory, as all lists that a container holds and that are changed there."""
    check(f, [0.1, 2.5], "interpret")
