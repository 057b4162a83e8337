"""What every competitor computes: sentences, weights and the model in words. NumPy alone, for Python 3.8 and later.

A sentence is `[words, tags]`, a word the row of a table, or if it is rare, the list of its letters. The model is that
of the benchmark of DyNet's paper (Neubig and others, 2017, section 8.1, "BiLSTM tagger with characters") in its sizes:
letters of 20 numbers, words of 128, those of a rare word the last states of two LSTMs of 64 over its letters, from
either side, each from zeros; two LSTMs of 50 over the words; of both states of a word a layer of 32 with tanh, without
bias, and of it a softmax over nine tags. The loss is the sum of the cross entropies of all words. Gates are i, f, g, o.
Training is gradient descent on the sum of the losses of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.competitors.workloads import VOCABULARY, load, matrix, word_frequencies

TAGS, LETTER, LAYER, ALPHABET = 9, 20, 32, 60
RARE = 5
"""A word is rare that the corpus has at most so many times."""
CORPUS = 8544
"""Sentences of which words are counted: as many as the treebank has for training."""
SHORTEST, LONGEST = 5, 45
LSTMS = ("letters_right", "letters_left", "right", "left")


def sentences(count: int, seed: int = 0) -> tuple[list[Any], dict[str, int]]:
    """Sentences of all lengths alike, with words as frequent as in language, the longer the less, and random tags;
    and the sizes of their tables."""
    rng = np.random.RandomState(seed)
    frequency = word_frequencies()
    lengths = np.clip(2 + rng.poisson(0.6 * np.log2(np.arange(VOCABULARY) + 2)), 1, 20)
    spelled = [rng.randint(ALPHABET, size=n).tolist() for n in lengths]
    is_rare = frequency * CORPUS * (SHORTEST + LONGEST) / 2 <= RARE

    def sentence(length: int) -> Any:
        words = rng.choice(VOCABULARY, size=length, p=frequency)
        return [[spelled[k] if is_rare[k] else int(k) for k in words], rng.randint(TAGS, size=length).tolist()]

    drawn = [sentence(int(rng.randint(SHORTEST, LONGEST + 1))) for _ in range(count)]
    return drawn, {"vocabulary": int((~is_rare).sum()), "alphabet": ALPHABET}


def from_texts(texts: list[list[str]], count: int, seed: int = 0) -> tuple[list[Any], dict[str, int]]:
    """The first sentences of a corpus, with random tags."""
    rng = np.random.RandomState(seed)
    counts: dict[str, int] = {}
    for word in (word for text in texts for word in text):
        counts[word] = counts.get(word, 0) + 1
    rows = {word: row for row, word in enumerate(word for word, n in counts.items() if n > RARE)}
    letters = {letter: k for k, letter in enumerate(sorted({letter for word in counts for letter in word}))}
    made = [
        [[rows.get(w, [letters[k] for k in w]) for w in text], rng.randint(TAGS, size=len(text)).tolist()]
        for text in texts[:count]
    ]
    return made, {"vocabulary": len(rows), "alphabet": len(letters)}


def size(sentence: Any) -> int:
    """The number of words."""
    return len(sentence[0])


def weights(vocabulary: int, alphabet: int, embedding: int, hidden: int, seed: int = 1) -> dict[str, Any]:
    """Matrices as (outputs, inputs), tables by rows; forget biases one."""
    rng = np.random.RandomState(seed)
    w = {
        "emb_words": (rng.randn(vocabulary, embedding) * 0.3).astype(np.float32),
        "emb_letters": (rng.randn(alphabet, LETTER) * 0.3).astype(np.float32),
    }
    for name in LSTMS:
        inputs, states = (LETTER, embedding // 2) if name.startswith("letters") else (embedding, hidden)
        w[f"{name}_input"], w[f"{name}_state"] = matrix(rng, 4 * states, inputs), matrix(rng, 4 * states, states)
        w[f"{name}_bias"] = np.zeros(4 * states, np.float32)
        w[f"{name}_bias"][states : 2 * states] = 1.0
    w["hidden"], w["out"] = matrix(rng, LAYER, 2 * hidden), matrix(rng, TAGS, LAYER)
    return w


def read(file: str) -> tuple[list[Any], dict[str, Any], int]:
    """(sentences, weights, hidden size)"""
    found, sizes = load(file)
    return found, weights(**sizes), sizes["hidden"]
