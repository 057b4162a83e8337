"""`math.prod` and products of stacked rows: values, first and second derivatives, zeros among the factors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.frontend.batches import Programs, agree


@dataclass
class Node:
    x: float
    xs: list[float] = field(default_factory=list)
    kids: list[Node] = field(default_factory=list)


NODES = [
    Node(2.0, [0.5, 0.0, -1.5]),
    Node(0.0),
    Node(1.5, [0.0], [Node(2.0), Node(0.0, [3.0])]),
    Node(-1.0, [2.0, 0.0, 0.5, 0.0], [Node(0.5, [], [Node(3.0), Node(0.25)])]),
    Node(1.0, [2.0, 3.0]),
]
P = jnp.float32(1.5)

programs = Programs()


@programs.over(NODES, P)
def of_a_list(p, t):
    return math.prod(x * p for x in t.xs) * 1.0


@programs.over(NODES, P)
def with_a_start(p, t):
    return math.prod([x - p * p for x in t.xs], start=p * 2)


@programs.over(NODES, P)
def of_results(p, t):
    return math.prod(of_results(p, k) for k in t.kids) * p * t.x + math.prod(t.xs) * p


@programs.over(NODES, P)
def of_rows(p, t):
    rows = jnp.stack([jnp.array([x, p + x, p * x]) for x in [1.0, *t.xs]])
    return rows.prod(axis=0).sum() + jnp.prod(rows, axis=1).sum()


@programs.over([[[3, 1], [2.5]], [[], [0.0, 2.0]], [[4, 5, 6], []]])
def of_integers(t):
    return math.prod(t[0]), math.prod(x > 1 for x in t[0]), 1 if math.prod(t[1]) > 1 else 2


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def test_first_derivatives():
    def all_products(p, t):
        return with_a_start(p, t) + of_results(p, t) + of_rows(p, t)

    def of_loop(p):
        return sum(all_products(p, t) for t in NODES)

    found = [ab.grad(ab.batched(all_products, in_axes=(None, 0), backend=b))(P, NODES) for b in ("xla", "interpret")]
    np.testing.assert_allclose(found, jax.jit(jax.grad(of_loop))(P), rtol=1e-4)


def test_second_derivatives():
    batched = ab.batched(with_a_start, in_axes=(None, 0))
    found = jax.grad(jax.grad(lambda p: batched(p, NODES).sum()))(P)
    expected = jax.jit(jax.grad(jax.grad(lambda p: sum(with_a_start(p, t) for t in NODES))))(P)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_derivatives_by_the_factors():
    product = ab.batched(lambda t: math.prod(t.xs) * 1.0)
    found = [t.xs for t in ab.unbatch(ab.grad(product)(NODES))]
    expected = [[math.prod(t.xs[:k] + t.xs[k + 1 :]) for k in range(len(t.xs))] for t in NODES]
    assert found == expected
