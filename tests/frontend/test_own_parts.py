"""Slices and copies of lists that are changed afterwards: they are lists of their own, under every name they have."""

from __future__ import annotations

import heapq

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import refused

BATCH = [([0.5, -0.2, 1.5], [0.2, 0.9]), ([1.0], [1.4, -0.5]), ([0.3, 0.8], [-0.4, 0.6])]
W = jnp.float32(0.8)


def extended(w, xs, x):
    rest, whole = xs[1:], xs[:]
    rest.extend(xs)
    if x[0] * w > 0:
        rest.append(x[1] * w)
        whole[0] = whole[0] * w
    heap = xs[:]
    heapq.heapify(heap)
    heapq.heappush(heap, w)
    return sum(rest) + sum(a * k for k, a in enumerate(whole)) + sum(xs) * w + heapq.heappop(heap)


def two_names(w, xs, x):
    rest = xs[1:] if x[0] > 0 else xs.copy()
    other = part = xs[::-1]
    again = rest
    for a in xs:
        if a * w > 0.1:
            again.append(a * w)
        part += [a]
        if len(other) > 4:
            other.pop()
    return sum(rest) + len(again) + sum(a * k for k, a in enumerate(other))


def copied(w, xs, x):
    a = [v * w for v in xs]
    c = xs.copy()
    c[0] = c[0] * w
    if x[0] > 0:
        b = a.copy()
        b.append(1.0)
    else:
        b = a
    return sum(a) + 2 * sum(b) + 3 * sum(c) + sum(xs)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", [extended, two_names, copied])
def test_agrees(program, backend):
    f = ab.batched(program, in_axes=(None, 0, 0))
    grads = program is extended or (program is two_names and backend == "llvm")
    check_equivalence(f, BATCH, (W,), grads=grads, backends=(backend,), jit=False)


def part_of_a_range(xs):
    r = range(len(xs))[1:]
    r.append(1)
    return len(r)


def test_a_part_of_a_range_is_no_list():
    refused(part_of_a_range, [[1, 2], [3]], saying="only a list built in this function")
