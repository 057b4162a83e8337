"""What one writes without autobatch: plain Python recursion that calls a compiled cell at each node.

The cell is compiled once for each power of two of children; missing children are zero states, which add nothing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

from examples.trees.child_sum import Params
from examples.trees.data import Node

State = tuple[jax.Array, jax.Array]


@jax.jit
def cell(p: Params, kind: np.int32, kids: list[State]) -> State:
    h_sum = sum((h for h, _ in kids), jnp.zeros_like(p["bf"]))
    x = p["emb"][kind]
    i, o, u = jnp.split(x @ p["W"] + h_sum @ p["U"] + p["b"], 3)
    c = sigmoid(i) * jnp.tanh(u)
    if kids:
        h, cells = (jnp.stack(part) for part in zip(*kids, strict=True))
        c += (sigmoid(x @ p["Wf"] + p["bf"] + h @ p["Uf"]) * cells).sum(0)
    return sigmoid(o) * jnp.tanh(c), c


def encode(p: Params, t: Node, zero: State) -> State:
    """The state of a tree's root. `zero` is the state of a missing child."""
    kids = [encode(p, child, zero) for child in t.children]
    if kids:
        kids += [zero] * ((1 << (len(kids) - 1).bit_length()) - len(kids))
    state: State = cell(p, np.int32(t.kind), kids)
    return state


def zero_state(p: Params) -> State:
    return jnp.zeros_like(p["bf"]), jnp.zeros_like(p["bf"])
