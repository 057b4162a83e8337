"""What every competitor computes: graphs, weights and the model in words. NumPy alone, for Python 3.8 and later.

A graph is a list of nodes, operands before what reads them: `["input", word]`, whose value is the word's embedding;
`["layer", a]`, whose value is tanh(W a + b); `["gate", a, b]`, whose value is g a + (1 - g) b with the gate
g = sigmoid(L a + R b + c). Operands are positions. The result is the dot product of the last node's value with a
vector, and the loss of a batch is the sum of the results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.competitors.workloads import VOCABULARY, embeddings, load, matrix, word_frequencies

SMALLEST, LARGEST = 10, 60
KINDS = {"input": 0.2, "layer": 0.3, "gate": 0.5}
OPERANDS = {"input": 0, "layer": 1, "gate": 2}


def kind_of(node: Any) -> str:
    return str(node[0])


def operands(node: Any) -> list[int]:
    return [] if node[0] == "input" else list(node[1:])


def size(graph: Any) -> int:
    """The number of nodes; the last reaches all of them."""
    return len(graph)


def graphs(count: int, seed: int = 0) -> list[Any]:
    """Graphs of all sizes alike, with words as frequent as in language."""
    rng = np.random.RandomState(seed)
    frequency = word_frequencies()
    return [graph(rng, frequency, int(rng.randint(SMALLEST, LARGEST + 1))) for _ in range(count)]


def graph(rng: Any, frequency: Any, count: int) -> Any:
    """Nodes are drawn from the result down. Each becomes the operand of a node above that still lacks one; operands
    that are missing at the end are drawn among all nodes below, which shares their results."""
    kinds: list[str] = []
    reads: list[list[int]] = []
    lacking: list[tuple[int, int]] = []  # (node, which operand)
    for node in range(count):
        if lacking:
            above, which = lacking.pop(int(rng.randint(len(lacking))))
            reads[above][which] = node
        names, chances = list(KINDS), np.array(list(KINDS.values()))
        if node == count - 1:
            chances = np.array([1.0, 0.0, 0.0])
        elif not lacking:  # an input here would leave nobody to read the next node
            chances[0] = 0.0
        kind = str(rng.choice(names, p=chances / chances.sum()))
        kinds.append(kind)
        reads.append([-1] * OPERANDS[kind])
        lacking += [(node, which) for which in range(OPERANDS[kind])]
    for above, which in lacking:
        others = [below for below in range(above + 1, count) if below not in reads[above]] or [count - 1]
        reads[above][which] = others[int(rng.randint(len(others)))]
    words = rng.choice(VOCABULARY, size=count, p=frequency)
    drawn = [
        [kind, int(words[node])] if kind == "input" else [kind, *(count - 1 - below for below in reads[node])]
        for node, kind in enumerate(kinds)
    ]
    return drawn[::-1]


def weights(hidden: int, seed: int = 1) -> dict[str, Any]:
    """Matrices as (outputs, inputs)."""
    rng = np.random.RandomState(seed)
    w = {"emb": embeddings(rng, hidden)}
    w["layer"], w["layer_bias"] = matrix(rng, hidden, hidden), (rng.randn(hidden) * 0.1).astype(np.float32)
    w["left"], w["right"] = matrix(rng, hidden, hidden), matrix(rng, hidden, hidden)
    w["gate_bias"] = (rng.randn(hidden) * 0.1).astype(np.float32)
    w["result"] = rng.uniform(-1, 1, size=hidden).astype(np.float32)
    return w


def read(file: str) -> tuple[list[Any], dict[str, Any], int]:
    """(graphs, weights, hidden size)"""
    found, sizes = load(file)
    return found, weights(**sizes), sizes["hidden"]
