"""The model as a function of one tree, with autobatch. `python with_autobatch.py WORKLOAD`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import worker
import workload
from jax.nn import log_softmax, sigmoid

import autobatch as ab


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
    trees, w, _ = workload.load(sys.argv[1])
    p = {k: jnp.asarray(v.T if v.ndim == 2 and k != "emb" else v) for k, v in w.items()}
    phrases = [phrase(t) for t in trees]
    start = time.perf_counter()
    data = ab.pack(phrases)
    packed = time.perf_counter()
    data = data.plan(loss)
    planned = time.perf_counter()
    float(loss(p, data[:64]).sum())
    first = time.perf_counter()
    nodes = sum(map(workload.size, trees))

    def run(chosen: range) -> float:
        return float(loss(p, data[np.arange(chosen.start, chosen.stop)]).sum())

    worker.serve(trees, run, {
        "name": "autobatch", "version": ab.__version__, "jax": jax.__version__,
        "packing_nodes_per_second": nodes / (packed - start), "planning_nodes_per_second": nodes / (planned - packed),
        "first_call_seconds": first - planned,
    })  # fmt: skip


if __name__ == "__main__":
    main()
