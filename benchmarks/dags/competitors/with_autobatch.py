"""The model as a recursive function of one node, with autobatch. `python -m ... with_autobatch WORKLOAD`.

Nothing in it says that a node is computed once: the same object with the same function is one activation.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.nn import sigmoid

import autobatch as ab
from benchmarks.competitors import packed

from . import workload


@dataclass
class Input:
    word: int


@dataclass
class Layer:
    of: Node


@dataclass
class Gate:
    left: Node
    right: Node


Node = Input | Layer | Gate


@ab.batched(in_axes=(None, 0))
def value(p: dict[str, Any], node: Node) -> Any:
    match node:
        case Input(word=word):
            return p["emb"][word]
        case Layer(of=of):
            return jnp.tanh(value(p, of) @ p["layer"] + p["layer_bias"])
        case Gate(left=left, right=right):
            a, b = value(p, left), value(p, right)
            g = sigmoid(a @ p["left"] + b @ p["right"] + p["gate_bias"])
            return g * a + (1 - g) * b


@ab.batched(in_axes=(None, 0))
def loss(p: dict[str, Any], node: Node) -> Any:
    return value(p, node) @ p["result"]


def root(graph: Any) -> Node:
    """The last node of a graph; nodes refer to each other."""
    classes = {"input": Input, "layer": Layer, "gate": Gate}
    made: list[Any] = []
    for node in graph:
        below = [made[k] for k in workload.operands(node)]
        made.append(classes[workload.kind_of(node)](*below) if below else Input(node[1]))
    return made[-1]


def main() -> None:
    graphs, weights, _ = workload.read(sys.argv[1])
    sizes = [workload.size(g) for g in graphs]
    packed.serve(loss, packed.parameters(weights), [root(g) for g in graphs], sizes)


if __name__ == "__main__":
    main()
