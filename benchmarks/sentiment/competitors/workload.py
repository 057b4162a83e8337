"""What every competitor computes: trees, weights and the model in words. NumPy alone, for Python 3.8 and later.

A tree is `[label, word]` or `[label, left, right]`. Leaf gates are i, o, u of the word's embedding, inner gates
i, f_left, f_right, o, u of both states (Tai, Socher and Manning, ACL 2015, section 3.2); every node has a softmax over
five classes, and the loss is the sum of the cross entropies of all nodes. Training is gradient descent on the sum of
the losses of a batch, with one learning rate for all batch sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.competitors.workloads import VOCABULARY, embeddings, load, matrix, word_frequencies

CLASSES = 5


def is_leaf(tree: Any) -> bool:
    return len(tree) == 2


def size(tree: Any) -> int:
    """The number of nodes."""
    return sum(1 for _ in nodes(tree))


def nodes(tree: Any) -> Iterator[Any]:
    """All nodes, parts before wholes."""
    out, stack = [], [tree]
    while stack:
        node = stack.pop()
        out.append(node)
        if not is_leaf(node):
            stack += node[1:]
    return iter(out[::-1])


def random_trees(count: int, seed: int = 0) -> list[Any]:
    """Trees as long as sentences of the treebank, split at random places, with words as frequent as in language."""
    rng = np.random.RandomState(seed)
    frequency = word_frequencies()

    def grow(leaves: int) -> Any:
        label = int(rng.randint(CLASSES))
        if leaves == 1:
            return [label, int(rng.choice(VOCABULARY, p=frequency))]
        left = int(rng.randint(1, leaves))
        return [label, grow(left), grow(leaves - left)]

    lengths = np.clip(np.round(rng.gamma(4.2, 4.6, size=count)), 3, 52).astype(int)
    return [grow(int(n)) for n in lengths]


def weights(embedding: int, hidden: int, seed: int = 1) -> dict[str, Any]:
    """Matrices as (outputs, inputs); gates in the order of the module's text, forget biases one."""
    rng = np.random.RandomState(seed)
    w = {"emb": embeddings(rng, embedding)}
    w["leaf"], w["leaf_bias"] = matrix(rng, 3 * hidden, embedding), np.zeros(3 * hidden, np.float32)
    w["left"], w["right"] = matrix(rng, 5 * hidden, hidden), matrix(rng, 5 * hidden, hidden)
    w["bias"] = np.zeros(5 * hidden, np.float32)
    w["out"], w["out_bias"] = matrix(rng, CLASSES, hidden), np.zeros(CLASSES, np.float32)
    w["bias"][hidden : 3 * hidden] = 1.0
    return w


def arithmetic(trees: list[Any], embedding: int, hidden: int) -> int:
    """Floating point operations of the matrix products of a forward pass, equal words once.

    Training has three times as many: those of the products' derivatives by both factors come on top.
    """
    found = [n for tree in trees for n in nodes(tree)]
    words = len({n[1] for n in found if is_leaf(n)})
    inner = sum(not is_leaf(n) for n in found)
    return 2 * hidden * (words * embedding * 3 + inner * 2 * hidden * 5 + len(found) * CLASSES)


def read(file: str) -> tuple[list[Any], dict[str, Any], int]:
    """(trees, weights, hidden size)"""
    trees, sizes = load(file)
    return trees, weights(**sizes), sizes["hidden"]
