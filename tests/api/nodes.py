"""Classes and functions for the tests of the API: small trees, written the way users write them."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

import autobatch as ab


@dataclass
class Node:
    x: float
    left: Node | None = None
    right: Node | None = None


def chain(n: int) -> Node:
    """A path of n nodes."""
    node = Node(1.0)
    for k in range(2, n + 1):
        node = Node(float(k), node, Node(0.5))
    return node


def trees() -> list[Node]:
    return [Node(1.0), Node(2.0, Node(3.0), Node(4.0)), Node(5.0, Node(6.0, Node(7.0), Node(8.0)), Node(9.0))]


@ab.batched(in_axes=(None, 0))
def total(p, t):
    """Scaled sum of a tree."""
    if t.left is None:
        return p["w"] * t.x
    return total(p, t.left) + total(p, t.right) + p["w"] * t.x


@ab.batched
def depth(t):
    if t.left is None:
        return 1
    return 1 + max(depth(t.left), depth(t.right))


@ab.batched
def doubled(words: list):
    return [w * 2 for w in words]


def params(w: float = 2.0):
    return {"w": jnp.float32(w)}


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def agrees(f, *args, rtol=1e-5):
    """The batched call gives what plain Python gives for each example."""
    found, expected = ab.unbatch(f(*args)), f.loop(*args)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-6)


@ab.batched(in_axes=(None, 0, None))
def limited(p, t, depth):
    """A sum over the upper levels of a tree, weighted by how many levels are left."""
    if t is None or depth == 0:
        return 0.0
    return p * t.x * depth + limited(p, t.left, depth - 1) + limited(p, t.right, depth - 1)
