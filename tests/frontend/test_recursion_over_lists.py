"""Recursion over lists of children where what follows needs an element: the type of the elements is found in a later
round of the lowering, and what fails without it is no error of the program."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.frontend.batches import Programs, agree, fails, refused


@dataclass
class Node:
    x: float
    kids: list[Node] = field(default_factory=list)


NODES = [
    Node(1.0),
    Node(2.0, [Node(3.0), Node(0.5), Node(0.25)]),
    Node(3.0, [Node(1.0, [Node(2.0), Node(0.75)]), Node(0.5)]),
]
P = {"b": jnp.array([0.3, -0.2]), "W": jnp.array([[0.1, 0.4], [-0.3, 0.2]])}

programs = Programs()


@programs.over(NODES, P)
def not_before(p, t):
    if not t.kids:
        return p["b"] * t.x
    below = jnp.stack([not_before(p, k) for k in t.kids])
    return jax.nn.softmax(below @ p["b"]) @ below @ p["W"]


@programs.over(NODES, P)
def with_else(p, t):
    if t.kids:
        below = jnp.stack([with_else(p, k) for k in t.kids])
        h = below.max(axis=0) @ p["W"]
    else:
        h = p["b"] * t.x
    return h


@programs.over(NODES, P)
def types_that_meet_behind_the_branch(p, t):
    if t.kids:
        h = jnp.mean(jnp.array([types_that_meet_behind_the_branch(p, k) for k in t.kids]), axis=0)
    else:
        h = p["b"] * t.x
    return h * 2.0


@programs.over(NODES, P)
def in_a_match(p, t):
    match t.kids:
        case []:
            return p["b"] * t.x
        case _:
            return (jnp.stack([in_a_match(p, k) for k in t.kids]) * t.x).sum(0) @ p["W"]


@programs.over(NODES, P)
def in_a_function_of_its_own(p, t):
    def combine(states):
        stacked = jnp.stack(states)
        return jax.nn.softmax(stacked @ p["b"]) @ stacked

    return combine([in_a_function_of_its_own(p, k) for k in t.kids]) if t.kids else p["b"] * t.x


@programs.over(NODES, P)
def in_a_function_that_maps(p, t):
    def below(t):
        return [go(k) for k in t.kids]

    def go(t):
        return jnp.array(below(t)).mean(axis=0) * 0.5 if t.kids else p["b"] * t.x

    return go(t)


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


@pytest.mark.parametrize("function", [not_before, types_that_meet_behind_the_branch], ids=lambda f: f.__name__)
def test_gradients(function):
    expected = jax.grad(lambda p: sum(function(p, t).sum() for t in NODES))(P)
    found = ab.grad(ab.batched(lambda p, t: function(p, t).sum(), in_axes=(None, 0)))(P, NODES)
    for name in P:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_an_assertion_fails_examples_without_children():
    def f(t):
        assert t.kids, "no children"
        return jnp.stack([f(k) if k.kids else jnp.ones(2) * k.x for k in t.kids]).sum(0)

    fails(f, NODES)


def test_what_is_an_error_with_elements_too_is_refused():
    def wrong(t):
        if not t.kids:
            return jnp.ones(2) * t.x
        return jnp.stack([wrong(k) for k in t.kids]).reshape(-1)

    refused(wrong, NODES, saying="reshape")

    def without_end(t):
        return jnp.stack([without_end(k) for k in t.kids])

    refused(without_end, NODES, saying="Need at least one array")
