"""Recursions whose results are in a list: machine code has memory for it in each call, also where the entry is the
recursion, and computes no call twice."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings

import autobatch as ab
from tests.backends.lanes import drawn_children
from tests.backends.lanes.test_reverse_blocks import MANY, Many, P

pytestmark = pytest.mark.usefixtures("checked_memory")
WIDE = Many(0.5, [Many(k / 7 % 1, [Many(0.1)] * (k % 3)) for k in range(70)])
TREES = [*MANY, Many(0.7), Many(-0.4, [Many(1.0)])]


def taken(f, *args):
    return f.explain(*args).data["backend"]["taken"]


@settings(max_examples=16, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(program=drawn_children.programs())
def test_random_recursions(program):
    main = program.function
    wanted = [float(main(P, t)) for t in TREES]
    slopes = jax.grad(lambda p: sum(main(p, t) for t in TREES))(P)
    for backend in ("llvm", "auto"):
        f = ab.batched(main, in_axes=(None, 0), backend=backend)
        np.testing.assert_allclose(f(P, TREES), wanted, rtol=1e-4, atol=1e-5)
        found = ab.grad(f)(P, TREES)
        np.testing.assert_allclose(found, slopes, rtol=1e-3, atol=1e-3 * float(np.abs(slopes).max() + 1))


def soft(p, t):
    ks = [soft(p, c) for c in t.children]
    top = max(ks, default=0.0)
    return t.x * p[0] + sum(jnp.exp(k - top) for k in ks) * 0.5 + len(ks) * 0.1


def states(p, t):
    kids = [states(p, c) for c in t.children]
    h = sum((a for a, _ in kids), 0.0)
    return p[0] * t.x + 0.3 * h, sum(b * 0.1 + a for a, b in kids) + 1.0


def ordered(p, t):
    ks = sorted([ordered(p, c) for c in t.children])
    return t.x + ks[0] * 0.5 + ks[-1] * p[1] if ks else t.x * p[0]


def collected(p, t):
    """All values of a tree, in a list that the calls return."""
    found = [t.x * p[0]]
    for c in t.children:
        found += collected(p, c)
    return found


@pytest.mark.parametrize("function", [soft, states, ordered])
def test_lists_of_results_longer_than_their_capacity(function):
    f = ab.batched(function, in_axes=(None, 0))
    data = [*TREES, WIDE]
    wanted = [function(P, t) for t in data]
    found = ab.unbatch(f(P, data))
    for a, b in zip(jax.tree.leaves(list(found)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    assert taken(f, P, data) == "llvm"


def test_each_call_is_computed_once():
    """A chain of 60 would take 2^60 calls, if a list that is read twice were computed for each."""
    chain = Many(1.0)
    for k in range(60):
        chain = Many(float(k % 3), [chain])
    for function in (soft, states):
        f = ab.batched(function, in_axes=(None, 0), backend="llvm")
        found = jax.tree.leaves(ab.unbatch(f(P, [chain]))[0])
        np.testing.assert_allclose(found, jax.tree.leaves(function(P, chain)), rtol=1e-4)
