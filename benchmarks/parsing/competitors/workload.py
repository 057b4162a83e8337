"""What every competitor computes: sentences, weights and the model in words. NumPy alone, for Python 3.8 and later.

A sentence is `[words, actions]`. A stack begins with a vector of zeros. While there are words left, or more than one
phrase on the stack: without words left it reduces, with fewer than two phrases it shifts, else the better of two
scores decides, of a tanh layer over the two phrases on top and the embedding of the next word, without biases. To
shift is to push the embedding of the next word; to reduce is to replace the two phrases on top by a tanh layer over
both. What is compared forward is the sum of the last phrase, and the places of reductions: a hundredth of how many
words were read before each. In training the actions are given, a random tree's, and the loss is the sum of the cross
entropies of the actions wherever there is a choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.competitors.workloads import VOCABULARY, embeddings, load, matrix, word_frequencies

SHORTEST, LONGEST = 5, 45
SHIFT, REDUCE = 0, 1


def sentences(count: int, seed: int = 0) -> list[Any]:
    """Sentences of all lengths alike, with words as frequent as in language, and actions of coins."""
    rng = np.random.RandomState(seed)
    frequency = word_frequencies()

    def actions(words: int) -> list[int]:
        made: list[int] = []
        read = phrases = 0
        while read < words or phrases > 1:
            shifts = phrases < 2 or (read < words and rng.randint(2) == SHIFT)
            made.append(SHIFT if shifts else REDUCE)
            read, phrases = (read + 1, phrases + 1) if shifts else (read, phrases - 1)
        return made

    lengths = rng.randint(SHORTEST, LONGEST + 1, size=count).tolist()
    return [[rng.choice(VOCABULARY, size=n, p=frequency).tolist(), actions(n)] for n in lengths]


def size(sentence: Any) -> int:
    """The number of words."""
    return len(sentence[0])


def weights(hidden: int, seed: int = 1) -> dict[str, Any]:
    """Matrices as (outputs, inputs)."""
    rng = np.random.RandomState(seed)
    w = {"emb": embeddings(rng, hidden), "empty": np.zeros(hidden, np.float32), "bias": np.zeros(hidden, np.float32)}
    w.update((name, matrix(rng, hidden, hidden)) for name in ("left", "right", "below", "top", "next"))
    w["action"] = matrix(rng, 2, hidden)
    return w


def read(file: str) -> tuple[list[Any], dict[str, Any]]:
    """(sentences, weights)"""
    found, sizes = load(file)
    return found, weights(**sizes)
