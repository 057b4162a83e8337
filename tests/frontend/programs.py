"""Per-example functions of several shapes, and the objects that they run on."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp


@dataclass
class Node:
    label: int
    word: int = -1
    left: Node | None = None
    right: Node | None = None


@dataclass
class Tree:
    word: int
    kids: list[Tree] = field(default_factory=list)


def gates(z, c):
    i, o, u = jnp.split(z, 3)
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + c
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def leaf_cell(p, x):
    return gates(x @ p["W"], 0.0)


def cell(p, left, right):
    (hl, cl), (hr, cr) = left, right
    z = jnp.concatenate([hl, hr]) @ p["U"] + p["b"]
    return gates(z, cl + cr)


def tree_lstm(p, node):
    if node.left is None:
        return leaf_cell(p, p["emb"][node.word])
    return cell(p, tree_lstm(p, node.left), tree_lstm(p, node.right))


def child_sum(p, tree):
    kids = [child_sum(p, kid) for kid in tree.kids]
    h = sum((h for h, _ in kids), jnp.zeros(4))
    c = sum((jax.nn.sigmoid(h @ p["F"]) * c for h, c in kids), jnp.zeros(4))
    return gates(p["emb"][tree.word] @ p["W"] + h @ p["V"], c)


def loss(p, node):
    def go(t):
        if t.left is None:
            h, c = leaf_cell(p, p["emb"][t.word])
            total = 0.0
        else:
            hl, cl, a = go(t.left)
            hr, cr, b = go(t.right)
            h, c = cell(p, (hl, cl), (hr, cr))
            total = a + b
        return h, c, total + jax.nn.logsumexp(h) - h[t.label]

    return go(node)[2]


def parameters(n=4, words=10):
    keys = iter(jax.random.split(jax.random.key(0), 9))

    def normal(*shape):
        return jax.random.normal(next(keys), shape)

    return {
        "emb": normal(words, n),
        "W": normal(n, 3 * n),
        "U": normal(2 * n, 3 * n),
        "V": normal(n, 3 * n),
        "F": normal(n, n),
        "b": normal(3 * n),
    }
