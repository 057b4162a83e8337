"""Functions for one example that no compiler takes: dicts that they fill, generators, `try`, libraries."""

from __future__ import annotations

import collections
import contextlib
import functools
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Floats = list[float]


def chart(p: Any, xs: Floats) -> Any:
    """The inside algorithm: a dict by spans."""
    n, inside = len(xs), {}
    for i in range(n):
        inside[i, i + 1] = xs[i] * p["w"]
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            total = 0.0
            for k in range(i + 1, i + width):
                total = total + jnp.tanh(inside[i, k] * inside[k, i + width])
            inside[i, i + width] = total
    return inside[0, n]


def queue(p: Any, xs: Floats) -> Any:
    """Pairs from a queue, until one is left."""
    waiting = collections.deque(x * p["w"] for x in xs)
    while len(waiting) > 1:
        a, b = waiting.popleft(), waiting.popleft()
        waiting.append(jnp.tanh(a + p["b"] * b))
    return waiting[0]


def generated(p: Any, xs: Floats) -> Any:
    """A generator, and what it is consumed by."""

    def scaled() -> Iterator[Any]:
        for k, x in enumerate(xs):
            yield x * p["w"] + k

    return sum(jnp.sin(x) for x in scaled())


def memo(p: Any, xs: Floats) -> Any:
    """A recursion that remembers what it has computed, by a closure."""
    known: dict[int, Any] = {}
    calls = 0

    def at(k: int) -> Any:
        nonlocal calls
        calls += 1
        if k < 2:
            return xs[k % len(xs)] * p["w"]
        if k not in known:
            known[k] = jnp.tanh(at(k - 1) + p["b"] * at(k - 2))
        return known[k]

    return at(len(xs) + 2), calls


def tried(p: Any, xs: Floats) -> Any:
    """An exception that is caught, and a context manager."""
    with contextlib.suppress(ValueError):
        list(range(len(xs))).index(4)
    try:
        found = xs[2]
    except IndexError:
        found = p["b"]
    return found * p["w"]


@dataclass
class Cell:
    value: Any
    below: Any = None


def linked(p: Any, xs: Floats) -> Any:
    """Objects that are made in a loop and linked to each other."""
    head = None
    for x in xs:
        head = Cell(x, head)
    total = 0.0 * p["w"]
    while head is not None:
        total = total * p["b"] + head.value
        head = replace(head).below
    return total


class Pair(NamedTuple):
    left: Any
    right: Any


def library(p: Any, xs: Floats) -> Any:
    """The standard library: heaps, counters, groups."""
    heap = [(k * 7 % 5, k) for k in range(len(xs))]
    heapq.heapify(heap)
    order = [heapq.heappop(heap)[1] for _ in range(len(heap))]
    counts = collections.Counter(k % 3 for k in order)
    folded = functools.reduce(lambda a, k: a * p["b"] + xs[k], order, p["w"])
    groups = {key: sum(xs[k] for k in ks) for key, ks in itertools.groupby(order, lambda k: k % 2)}
    return Pair(folded, counts[0]), groups[order[0] % 2]


def sets(p: Any, xs: Floats) -> Any:
    """Elements that were seen, sorted."""
    seen: set[int] = set()
    for k in range(len(xs)):
        seen.add(k * k % 4)
    return [xs[k % len(xs)] * p["w"] for k in sorted(seen)]


def words(p: Any, xs: Floats) -> Any:
    """Strings that are made, and numbers in lists of lists."""
    return "-".join(str(k) for k in range(len(xs))), [[x * p["w"]] * 2 for x in xs]


def embedded(p: Any, xs: Floats) -> Any:
    """Rows of a shared table, and functions of JAX."""
    table: dict[int, Any] = {}
    h = jnp.zeros(3)
    for k, x in enumerate(xs):
        row = table.setdefault(k % 2, p["E"][k % 4])
        h = jax.nn.relu(jnp.where(row > 0, row * x, h) @ p["M"])
    return jax.nn.log_softmax(h)[len(xs) % 3]


PROGRAMS = (chart, queue, generated, memo, tried, linked, library, sets, words, embedded)
