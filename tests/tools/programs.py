"""Functions whose margin is known: a comment at the end of a line is the word that `explain` gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax, sigmoid

import autobatch as ab


@dataclass
class Node:
    x: float
    word: int = 0
    left: Node | None = None
    right: Node | None = None


@dataclass
class Many:
    x: float
    kids: list[Many] = field(default_factory=list)


def parameters(size: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return jnp.asarray(rng.normal(0, 0.5, (rows, columns)), jnp.float32)

    return {
        "b": jnp.ones(size, jnp.float32),
        "emb": matrix(5, size),
        "Wl": matrix(size, 3 * size),
        "U": matrix(2 * size, 5 * size),
        "W": matrix(size, size),
        "Wo": matrix(size, 3),
    }


def tree(leaves: int, seed: int = 0) -> Node:
    """A random full binary tree."""
    rng = np.random.default_rng(seed)
    parts = [Node(float(rng.normal()), int(rng.integers(5))) for _ in range(leaves)]
    while len(parts) > 1:
        at = int(rng.integers(len(parts) - 1))
        parts[at : at + 2] = [Node(float(rng.normal()), int(rng.integers(5)), parts[at], parts[at + 1])]
    return parts[0]


def scaled(h):
    return 2 * h  # example


@ab.batched(in_axes=(None, 0))
def tree_lstm(p, t: Node):
    """A binary tree-LSTM with a head and a loss at every node."""
    if t.left is None:  # host
        i, o, u = jnp.split((p["emb"][t.word] * t.x) @ p["Wl"], 3)  # frame before
        c, below = sigmoid(i) * jnp.tanh(u), 0.0  # frame before
    else:
        hl, cl, a = tree_lstm(p, t.left)
        hr, cr, b = tree_lstm(p, t.right)
        i, fl, fr, o, u = jnp.split(jnp.concatenate([hl, hr]) @ p["U"], 5)  # level r0
        c, below = sigmoid(i) * jnp.tanh(u) + sigmoid(fl) * cl + sigmoid(fr) * cr, a + b
    h = sigmoid(o) * jnp.tanh(c)
    logits = h @ p["Wo"]
    loss = -log_softmax(logits)[t.word % 3]
    return h, c, below + loss


@ab.batched(in_axes=(None, 0))
def rnn(p, xs: list[float]):
    h = p["b"]  # -
    for x in xs:  # frame before
        h = jnp.tanh(h @ p["W"] + x * p["b"])
    return h @ p["Wo"]  # example


@ab.batched(in_axes=(None, 0))
def refused(p, t: Node):
    y = p["b"][0] * t.x
    for node in [t, t]:
        y = y + node.x * hash(node)
    return 2 * y


def turned(y):
    z = jnp.sin(y)  # level r0
    return y * 2.0 + z  # level r0


def cell(h, x):
    """A helper that is inlined."""
    y = jnp.tanh(h + x)  # level r0 +
    for _ in range(3):  # level r0
        y = turned(y)  # level r0
    return y  # -


def squared(v):
    return v * v  # level r0


@ab.batched(in_axes=(None, 0), static="mode")
def all_kinds(p, t: Many, mode: str = "fast"):
    def step(c, x):  # -
        d = c + x  # level r0
        return d, d  # level r0

    assert mode in ("fast", "slow")  # -
    if mode == "slow":  # -
        t = t.nothing  # not reached
        raise ValueError  # not reached
    unread = jnp.exp(p["b"])  # -
    del unread  # -
    start = p["b"] @ p["W"]  # once
    below = [all_kinds(p, kid, mode) for kid in t.kids]  # host
    total = sum(  # level r0
        below,
        start * 2,  # once
    )
    h = cell(total, t.x)  # level r0 +
    last, _ = jax.lax.scan(step, h, jnp.ones((3, 4)))  # level r0
    return last + jax.vmap(squared)(last)  # level r0


@ab.batched(in_axes=(None, 0))
def head(p, t: Node):
    h, _, loss = tree_lstm(p, t)  # example
    best = jnp.argmax(h @ p["Wo"])  # example
    return best, scaled(loss)


@ab.batched(in_axes=(None, 0))
def nested(p, xs: list[float]):
    h = p["b"]  # -
    for x in xs:  # frame before
        unread = h * 2  # -
        del unread  # -
        for _ in range(2):  # level r0
            for _ in range(3):  # level r0
                k = h + 1  # level r0
                h = turned(k) * x  # level r0
    return h  # -


def words() -> dict[int, str]:
    """The words that the comments of this file ask for, by line."""
    found = {}
    with open(__file__) as file:
        for number, line in enumerate(file, 1):
            code, comment, word = line.rstrip("\n").rpartition("  # ")
            if comment and code.strip():
                found[number] = word
    return found
