"""A shift-reduce parser for one sentence whose own scores decide: a stack, a buffer, and two actions.

As in the stack LSTM of Dyer and others ("Transition-Based Dependency Parsing with Stack Long Short-Term Memory", 2015)
a reduction composes the two phrases on top of the stack into one; here a state of the parser is those two and the next
word, and the better of the two scores decides, as long as both actions can be taken. What was decided comes back as a
number, from which the tree is read. Trained by the actions of trees (`loss`): then structure alone decides.

    python -m examples.language.parser [--steps 60]
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
from examples.language.cells import Params, matrix
from examples.language.training import train

SHIFT, REDUCE = 0, 1
KINDS, WORDS = 3, 20
TOLERANCE = 1e-4


@dataclass
class Parsed:
    """A sentence and the actions that make its tree."""

    words: list[int]
    actions: list[int]


def composed(p: Params, left: Any, right: Any) -> Any:
    return jnp.tanh(left @ p["left"] + right @ p["right"] + p["bias"])


def scores(p: Params, below: Any, top: Any, word: Any) -> Any:
    """Of shift and reduce, by the two phrases on top of the stack and the next word."""
    hidden = jnp.tanh(below @ p["below"] + top @ p["top"] + word @ p["next"])
    return hidden @ p["action"]


@ab.batched(in_axes=(None, 0))
def parse(p: Params, words: list[int]) -> Any:
    """The phrase of the whole sentence, and of each word how many reductions follow it."""
    stack = [p["empty"]]
    reductions = jnp.zeros(p["longest"].shape[0], jnp.int32)
    position = 0
    while position < len(words) or len(stack) > 2:
        reduces = position == len(words)
        if position < len(words) and len(stack) > 2:
            found = scores(p, stack[-2], stack[-1], p["words"][words[position]])
            reduces = found[REDUCE] > found[SHIFT]
        if reduces:
            right = stack.pop()
            left = stack.pop()
            stack.append(composed(p, left, right))
            reductions = reductions.at[position - 1].add(1)
        else:
            stack.append(p["words"][words[position]])
            position += 1
    return stack[-1], reductions


@ab.batched(in_axes=(None, 0))
def loss(p: Params, example: Parsed) -> Any:
    """The cross entropy of the actions that make a tree, wherever there is a choice."""
    stack, position = [p["empty"]], 0
    total: Any = 0.0
    for action in example.actions:
        if len(stack) > 2 and position < len(example.words):
            found = scores(p, stack[-2], stack[-1], p["words"][example.words[position]])
            total = total - jax.nn.log_softmax(found)[action]
        if action == REDUCE:
            right = stack.pop()
            left = stack.pop()
            stack.append(composed(p, left, right))
        else:
            stack.append(p["words"][example.words[position]])
            position += 1
    return total


def parameters(words: int = WORDS, hidden: int = 32, longest: int = 24, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    return {
        "words": jnp.asarray(rng.normal(size=(words, hidden)), jnp.float32),
        "empty": jnp.zeros(hidden),
        "left": matrix(rng, hidden, hidden),
        "right": matrix(rng, hidden, hidden),
        "bias": jnp.zeros(hidden),
        "below": matrix(rng, hidden, hidden),
        "top": matrix(rng, hidden, hidden),
        "next": matrix(rng, hidden, hidden),
        "action": matrix(rng, hidden, 2),
        "longest": jnp.zeros(longest),
    }


def sentences(count: int, longest: int = 20, seed: int = 0) -> list[Parsed]:
    """Sentences whose trees follow from their words: those of one kind are a phrase, and phrases are taken together
    from the left."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = rng.integers(0, WORDS, rng.integers(2, longest + 1)).tolist()
        actions, phrases = [], 0
        for k, word in enumerate(words):
            actions.append(SHIFT)
            if k and word % KINDS == words[k - 1] % KINDS:
                actions.append(REDUCE)
            else:
                phrases += 1
                if phrases > 2:  # the two phrases before this one are below it
                    actions[-1:] = [REDUCE, SHIFT]
                    phrases -= 1
        made.append(Parsed(words, actions + [REDUCE] * (phrases - 1)))
    return made


def reductions(actions: Sequence[int], longest: int) -> np.ndarray:
    """How many reductions follow each word."""
    found, word = np.zeros(longest, np.int32), -1
    for action in actions:
        word += action == SHIFT
        found[word] += action == REDUCE
    return found


def right_trees(p: Params, examples: list[Parsed]) -> float:
    """Which part of the sentences gets its tree."""
    with ab.options(backend="llvm"):
        _, found = parse(p, [e.words for e in examples])
    wanted = [reductions(e.actions, p["longest"].shape[0]) for e in examples]
    return float(np.mean((np.asarray(found) == np.stack(wanted)).all(1)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.language.parser", description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--check", type=int, default=12, help="how many sentences are compared with the loop")
    given = parser.parse_args(arguments)
    p, examples = parameters(), sentences(320)
    short = [e for e in examples if 4 <= len(e.words) <= 6][: given.check]
    with ab.options(backend="llvm"):
        worse = check("parser whose scores decide", parse, (p, [e.words for e in short]), TOLERANCE)
    worse |= check("its loss", loss, (p, short[: given.check // 3]), TOLERANCE, grads=(0,))
    new = sentences(200, seed=1)
    before = right_trees(p, new)
    after = right_trees(train(loss, p, examples, given.steps), new)
    print(f"  new sentences with the right tree {before:.1%}, after {given.steps} steps {after:.1%}")
    return worse or int(after <= before)


if __name__ == "__main__":
    sys.exit(main())
