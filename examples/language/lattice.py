"""A lattice LSTM for one sentence: an LSTM over characters, into which the words of a lexicon bring what they say.

Of Zhang and Yang ("Chinese NER Using Lattice LSTM", ACL 2018): each word of the lexicon that is found in the sentence
has a memory of its own, made from the state behind its first character, which enters the memory of its last character;
how much of each, gates decide that are normalised together. Which words are where, the sentence and the lexicon decide
alone: dicts are filled with places and pieces of the sentence.

    python -m examples.language.lattice [SENTENCES]
"""

from __future__ import annotations

import random
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

import autobatch as ab
from examples.language.cells import Params, matrix
from examples.trees.check import check, largest_difference

LETTERS = "abcdef"
TOLERANCE = 1e-4
LEXICON = {word: k for k, word in enumerate(["ab", "abc", "bc", "bcd", "cd", "de", "def", "ea", "fab", "ef", "cde"])}


def words_at(text: str) -> dict[int, list[tuple[int, str]]]:
    """For each place the words of the lexicon that end there, with the place where they begin."""
    found: dict[int, list[tuple[int, str]]] = {}
    for start in range(len(text)):
        for end in range(start + 2, min(len(text), start + 3) + 1):
            if text[start:end] in LEXICON:
                found.setdefault(end - 1, []).append((start, text[start:end]))
    return found


@ab.batched(in_axes=(None, 0))
def encoded(p: Params, text: str) -> Any:
    """The last state of a sentence."""
    found = words_at(text)
    states: dict[int, tuple[Any, Any]] = {-1: (p["start"], p["start"])}
    for k, letter in enumerate(text):
        h, c = states[k - 1]
        x = p["letters"][LETTERS.index(letter)]
        i, o, g = jnp.split(x @ p["input"] + h @ p["state"] + p["bias"], 3)
        if k in found:
            gates, memories = [sigmoid(i)], [jnp.tanh(g)]
            for start, word in found[k]:
                memory = word_memory(p, *states[start], p["words"][LEXICON[word]])
                gates.append(sigmoid(x @ p["gate_of_letter"] + memory @ p["gate_of_word"]))
                memories.append(memory)
            shares = jax.nn.softmax(jnp.stack(gates), axis=0)
            c = sum(shares[j] * m for j, m in enumerate(memories))
        else:
            c = (1.0 - sigmoid(i)) * c + sigmoid(i) * jnp.tanh(g)
        states[k] = sigmoid(o) * jnp.tanh(c), c
    return states[len(text) - 1][0]


def word_memory(p: Params, h: Any, c: Any, word: Any) -> Any:
    """The memory of a word, from the state behind its first character."""
    i, f, g = jnp.split(word @ p["word_input"] + h @ p["word_state"] + p["word_bias"], 3)
    return sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)


@ab.batched(in_axes=(None, 0))
def score(p: Params, text: str) -> Any:
    return encoded(p, text) @ p["out"]


def parameters(hidden: int = 16, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    drawn = {
        "letters": (len(LETTERS), hidden),
        "words": (len(LEXICON), hidden),
        **dict.fromkeys(("input", "state", "word_input", "word_state"), (hidden, 3 * hidden)),
        **dict.fromkeys(("gate_of_letter", "gate_of_word"), (hidden, hidden)),
    }
    biases = {"start": jnp.zeros(hidden), "bias": jnp.zeros(3 * hidden), "word_bias": jnp.zeros(3 * hidden)}
    made = {name: matrix(rng, *shape) for name, shape in drawn.items()}
    return {**made, **biases, "out": jnp.asarray(rng.normal(size=hidden), jnp.float32)}


def sentences(count: int, longest: int = 14, seed: int = 0) -> list[str]:
    """Letters that follow one another in the alphabet more often than not, so that there are words."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        text = chance.choice(LETTERS)
        for _ in range(chance.randint(1, longest - 1)):
            after = (LETTERS.index(text[-1]) + 1) % len(LETTERS)
            text += LETTERS[after] if chance.random() < 0.7 else chance.choice(LETTERS)
        made.append(text)
    return made


def main(count: int = 32) -> int:
    p, data = parameters(), sentences(count)
    words = sum(len(found) for text in data for found in words_at(text).values())
    worse = check("lattice LSTM", score, p, data, TOLERANCE)
    few = sorted(data, key=len)[len(data) // 3 :][:3]
    wanted = jax.grad(lambda p: sum(score.loop(p, few)))(p)
    off = largest_difference(ab.grad(score)(p, few), wanted)
    print(f"  {words} words in {sum(map(len, data))} letters; gradients differ by {off:.1e}")
    return worse or int(off > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
