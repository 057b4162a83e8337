"""What every competitor computes: sentences, weights and the model in words. NumPy alone, for Python 3.8 and later.

A sentence is `[words, tags]`. An LSTM runs over the words from the left, from zeros; its gates are i, f, g, o of the
word's embedding and the state, as PyTorch orders them. Every token has a softmax over fifty tags, and the loss is the
sum of the cross entropies of all tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.competitors.workloads import VOCABULARY, embeddings, load, matrix, word_frequencies

TAGS = 50
SHORTEST, LONGEST = 5, 60


def sentences(count: int, seed: int = 0) -> list[Any]:
    """Sentences of all lengths alike, with words as frequent as in language and random tags."""
    rng = np.random.RandomState(seed)
    frequency = word_frequencies()

    def sentence(length: int) -> Any:
        return [rng.choice(VOCABULARY, size=length, p=frequency).tolist(), rng.randint(TAGS, size=length).tolist()]

    return [sentence(int(rng.randint(SHORTEST, LONGEST + 1))) for _ in range(count)]


def size(sentence: Any) -> int:
    """The number of tokens."""
    return len(sentence[0])


def weights(embedding: int, hidden: int, seed: int = 1) -> dict[str, Any]:
    """Matrices as (outputs, inputs); gates in the order of the module's text, forget biases one."""
    rng = np.random.RandomState(seed)
    w = {"emb": embeddings(rng, embedding)}
    w["input"], w["state"] = matrix(rng, 4 * hidden, embedding), matrix(rng, 4 * hidden, hidden)
    w["bias"] = np.zeros(4 * hidden, np.float32)
    w["out"], w["out_bias"] = matrix(rng, TAGS, hidden), np.zeros(TAGS, np.float32)
    w["bias"][hidden : 2 * hidden] = 1.0
    return w


def read(file: str) -> tuple[list[Any], dict[str, Any], int]:
    """(sentences, weights, hidden size)"""
    found, sizes = load(file)
    return found, weights(**sizes), sizes["hidden"]
