"""The model as a function of one tree, with autobatch. `python -m ... with_autobatch WORKLOAD`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.nn import log_softmax, sigmoid

import autobatch as ab
from benchmarks.competitors import packed

from . import workload


@dataclass
class Phrase:
    label: int
    word: int = -1
    left: Phrase | None = None
    right: Phrase | None = None


def gates(z: Any, *states: Any) -> Any:
    i, *forget, o, u = jnp.split(z, 3 + len(states))
    c = sigmoid(i) * jnp.tanh(u)
    for f, state in zip(forget, states, strict=True):
        c = c + sigmoid(f) * state
    return sigmoid(o) * jnp.tanh(c), c


@ab.batched(in_axes=(None, 0))
def encode(p: dict[str, Any], t: Phrase) -> Any:
    if t.left is None or t.right is None:
        h, c = gates(p["emb"][t.word] @ p["leaf"] + p["leaf_bias"])
        below = 0.0
    else:
        hl, cl, left = encode(p, t.left)
        hr, cr, right = encode(p, t.right)
        h, c = gates(hl @ p["left"] + hr @ p["right"] + p["bias"], cl, cr)
        below = left + right
    return h, c, below - log_softmax(h @ p["out"] + p["out_bias"])[t.label]


@ab.batched(in_axes=(None, 0))
def loss(p: dict[str, Any], t: Phrase) -> Any:
    return encode(p, t)[2]


def phrase(tree: Any) -> Phrase:
    made: dict[int, Phrase] = {}
    for node in workload.nodes(tree):
        parts = [] if workload.is_leaf(node) else [made[id(k)] for k in node[1:]]
        made[id(node)] = Phrase(node[0], -1, *parts) if parts else Phrase(*node)
    return made[id(tree)]


def main() -> None:
    trees, weights, _ = workload.read(sys.argv[1])
    sizes = [workload.size(t) for t in trees]
    packed.serve(loss, packed.parameters(weights), [phrase(t) for t in trees], sizes)


if __name__ == "__main__":
    main()
