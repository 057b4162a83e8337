"""Child-sum tree-LSTM over code: a node has any number of children (Tai, Socher, Manning, ACL 2015, section 3.1).

`encode` is written for ONE tree. Run it: `python -m examples.trees.child_sum`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

import autobatch as ab
from examples.trees.check import check
from examples.trees.data import KINDS, Node, code_trees

HIDDEN = 128
Params = dict[str, jax.Array]


@ab.batched(in_axes=(None, 0))
def encode(p: Params, t: Node) -> Any:
    """The state (h, c) of a tree's root."""
    kids = [encode(p, child) for child in t.children]
    h_sum = sum((h for h, _ in kids), jnp.zeros_like(p["bf"]))
    x = p["emb"][t.kind]
    i, o, u = jnp.split(x @ p["W"] + h_sum @ p["U"] + p["b"], 3)
    f = x @ p["Wf"] + p["bf"]
    c = sigmoid(i) * jnp.tanh(u) + sum(sigmoid(f + h @ p["Uf"]) * c for h, c in kids)
    return sigmoid(o) * jnp.tanh(c), c


def parameters(hidden: int = HIDDEN, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.normal(0.0, rows**-0.5, (rows, columns)), jnp.float32)

    return {
        "emb": matrix(len(KINDS), hidden) * len(KINDS) ** 0.5 * 0.3,
        "W": matrix(hidden, 3 * hidden),
        "U": matrix(hidden, 3 * hidden),
        "b": jnp.zeros(3 * hidden),
        "Wf": matrix(hidden, hidden),
        "Uf": matrix(hidden, hidden),
        "bf": jnp.ones(hidden),
    }


if __name__ == "__main__":
    trees = code_trees()[::100]
    sys.exit(check("child-sum tree-LSTM over functions of the standard library", encode, parameters(), trees))
