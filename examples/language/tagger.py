"""A tagger for one sentence that reads frequent words from a table, and rare ones letter by letter.

The model is that of the benchmark of DyNet's paper (Neubig and others, "DyNet: The Dynamic Neural Network Toolkit",
2017, section 8): an LSTM from the left and one from the right over the words; the embedding of a rare word is the last
states of two others over its letters. The sentences are drawn: endings say which kind a word is of, so words that
training has not seen can be told by their letters.

    python -m examples.language.tagger [--steps 60]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.control.check import check
from examples.language.cells import Params, matrix, new_cell, states
from examples.language.training import train

ENDINGS = ("", "ing", "ed", "ly", "er")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOLERANCE = 1e-4


@dataclass
class Word:
    """`place` is the row of a frequent word in the table; a rare word has none."""

    place: int | None
    letters: list[int]


@dataclass
class Sentence:
    words: list[Word]
    tags: list[int]


def embedded(p: Params, word: Word) -> Any:
    if word.place is not None:
        return p["words"][word.place]
    letters = [p["letters"][k] for k in word.letters]
    right, left = states(p["letters_right"], letters), states(p["letters_left"], letters[::-1])
    return jnp.concatenate([right[-1], left[-1]])


def scores(p: Params, words: Sequence[Word]) -> list[Any]:
    """For each word the logarithms of the probabilities of its tags."""
    xs = [embedded(p, word) for word in words]
    right, left = states(p["right"], xs), states(p["left"], xs[::-1])[::-1]
    both = [jnp.concatenate([a, b]) for a, b in zip(right, left, strict=True)]
    return [jax.nn.log_softmax(jnp.tanh(h @ p["hidden"]) @ p["out"]) for h in both]


@ab.batched(in_axes=(None, 0))
def loss(p: Params, sentence: Sentence) -> Any:
    """The sum of the cross entropies of the tags of a sentence."""
    return -sum(score[tag] for score, tag in zip(scores(p, sentence.words), sentence.tags, strict=True))


@ab.batched(in_axes=(None, 0))
def tags(p: Params, sentence: Sentence) -> Any:
    """The most probable tag of each word."""
    return [jnp.argmax(score) for score in scores(p, sentence.words)]


def parameters(words: int, letter: int = 16, word: int = 32, hidden: int = 32, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    return {
        "words": jnp.asarray(0.3 * rng.normal(size=(words, word)), jnp.float32),
        "letters": jnp.asarray(0.3 * rng.normal(size=(len(LETTERS), letter)), jnp.float32),
        "letters_right": new_cell(rng, letter, word // 2),
        "letters_left": new_cell(rng, letter, word // 2),
        "right": new_cell(rng, word, hidden),
        "left": new_cell(rng, word, hidden),
        "hidden": matrix(rng, 2 * hidden, hidden),
        "out": matrix(rng, hidden, len(ENDINGS)),
    }


def vocabulary(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Words with their kinds: a stem of random letters, and the ending of the kind."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(len(ENDINGS), size=count).tolist()
    stems = ["".join(rng.choice(list(LETTERS), rng.integers(2, 7))) for _ in kinds]
    return [stem + ENDINGS[kind] for stem, kind in zip(stems, kinds, strict=True)], kinds


def sentences(count: int, table: int, words: int = 2000, seed: int = 0) -> list[Sentence]:
    """Sentences of words as frequent as in language, of which the `table` most frequent ones have a row in it."""
    spelled, kinds = vocabulary(words)
    rng = np.random.default_rng(seed)
    chance = 1.0 / (np.arange(words) + 2.7)
    every = [Word(k if k < table else None, [LETTERS.index(x) for x in text]) for k, text in enumerate(spelled)]
    drawn = [rng.choice(words, rng.integers(3, 16), p=chance / chance.sum()).tolist() for _ in range(count)]
    return [Sentence([every[k] for k in chosen], [kinds[k] for k in chosen]) for chosen in drawn]


def right_answers(p: Params, examples: list[Sentence], seen: list[Sentence]) -> tuple[float, float, float]:
    """Which part of the words has the right tag: of all, of those that are not `seen`; and of these by always saying
    their most frequent tag."""
    found = ab.unbatch(tags(p, examples))
    known = {tuple(word.letters) for sentence in seen for word in sentence.words}
    is_new = np.array([tuple(word.letters) not in known for sentence in examples for word in sentence.words])
    wanted = np.concatenate([sentence.tags for sentence in examples])
    right = np.concatenate(found) == wanted
    return float(right.mean()), float(right[is_new].mean()), float(np.bincount(wanted[is_new]).max() / is_new.sum())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.language.tagger", description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--table", type=int, default=60, help="how many words are frequent")
    parser.add_argument("--check", type=int, default=8, help="how many sentences are compared with the loop")
    given = parser.parse_args(arguments)
    p, examples = parameters(given.table), sentences(320, given.table)
    short = sorted(examples, key=lambda sentence: sum(len(word.letters) for word in sentence.words))[: given.check]
    worse = check("tagger", loss, (p, short), TOLERANCE, grads=(0,))
    p = train(loss, p, examples, given.steps)
    right, new, guessed = right_answers(p, sentences(100, given.table, seed=1), examples)
    print(f"  right after {given.steps} steps: {right:.1%} of all words, {new:.1%} of those that are new")
    print(f"  of these, always the most frequent tag: {guessed:.1%}")
    return worse or int(new <= guessed)


if __name__ == "__main__":
    sys.exit(main())
