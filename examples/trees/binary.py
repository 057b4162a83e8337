"""Binary tree-LSTM with a loss at every node (Tai, Socher, Manning, ACL 2015, section 3.2; Socher et al., EMNLP 2013).

`encode` is written for ONE tree. Run it on code: `python -m examples.trees.binary`; on sentiment, where a folder holds
the treebank's `dev.txt`: `python -m examples.trees.binary FOLDER`, or set SST_FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax, sigmoid

import autobatch as ab
from examples.trees.check import check
from examples.trees.data import CLASSES, KINDS, Phrase, binarised, code_trees, sentiment_trees

HIDDEN, EMBEDDING = 150, 300
Params = dict[str, jax.Array]


def leaf_cell(p: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    i, o, u = jnp.split(x @ p["Wl"] + p["bl"], 3)
    c = sigmoid(i) * jnp.tanh(u)
    return sigmoid(o) * jnp.tanh(c), c


def cell(p: Params, hl: jax.Array, cl: jax.Array, hr: jax.Array, cr: jax.Array) -> tuple[jax.Array, jax.Array]:
    i, fl, fr, o, u = jnp.split(hl @ p["Ul"] + hr @ p["Ur"] + p["b"], 5)
    c = sigmoid(i) * jnp.tanh(u) + sigmoid(fl) * cl + sigmoid(fr) * cr
    return sigmoid(o) * jnp.tanh(c), c


def cross_entropy(logits: jax.Array, label: int) -> jax.Array:
    return -log_softmax(logits)[label]


@ab.batched(in_axes=(None, 0))
def encode(p: Params, t: Phrase) -> Any:
    """The state (h, c) of a tree's root, and the loss of all its nodes together."""
    if t.left is None or t.right is None:
        h, c = leaf_cell(p, p["emb"][t.word])
        below = 0.0
    else:
        hl, cl, left_loss = encode(p, t.left)
        hr, cr, right_loss = encode(p, t.right)
        h, c = cell(p, hl, cl, hr, cr)
        below = left_loss + right_loss
    return h, c, below + cross_entropy(h @ p["Wo"] + p["bo"], t.label)


def parameters(words: int, hidden: int = HIDDEN, embedding: int = EMBEDDING, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.normal(0.0, rows**-0.5, (rows, columns)), jnp.float32)

    return {
        "emb": jnp.asarray(rng.normal(0.0, 0.3, (words, embedding)), jnp.float32),
        "Wl": matrix(embedding, 3 * hidden),
        "bl": jnp.zeros(3 * hidden),
        "Ul": matrix(hidden, 5 * hidden),
        "Ur": matrix(hidden, 5 * hidden),
        "b": jnp.zeros(5 * hidden),
        "Wo": matrix(hidden, CLASSES),
        "bo": jnp.zeros(CLASSES),
    }


def main(folder: str | None) -> int:
    if folder:
        trees, words = sentiment_trees(Path(folder) / "dev.txt")
        return check("binary tree-LSTM over sentences", encode, parameters(len(words)), trees[:64])
    trees = [binarised(tree) for tree in code_trees()[::100]]
    return check("binary tree-LSTM over functions of the standard library", encode, parameters(len(KINDS)), trees)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SST_FOLDER")))
