"""The edit distance of one pair of words, with a memo, and costs that can be learned.

The minimum is a soft one, so the gradient by a cost is how often the alignments of the pair are expected to pay it
(Mensch and Blondel, "Differentiable Dynamic Programming for Structured Prediction and Attention", 2018). That is
checked: as alignments weigh in, each letter of both words is paid for once.
Run it: `python -m examples.tables.edits [PAIRS]`.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.trees.check import check

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHARPNESS = 4.0
TOLERANCE = 1e-4


def least(values: list[Any]) -> Any:
    return -jax.nn.logsumexp(-SHARPNESS * jnp.stack(values)) / SHARPNESS


@ab.batched(in_axes=(None, 0))
def distance(costs: Any, pair: tuple[str, str]) -> Any:
    """What it costs to turn the first word into the second one."""
    source, target = pair
    known: dict[tuple[int, int], Any] = {}

    def of(i: int, j: int) -> Any:
        if (i, j) not in known:
            if i == 0 and j == 0:
                known[i, j] = costs["start"]
            elif i == 0:
                known[i, j] = of(i, j - 1) + costs["insert"][LETTERS.index(target[j - 1])]
            elif j == 0:
                known[i, j] = of(i - 1, j) + costs["delete"][LETTERS.index(source[i - 1])]
            else:
                a, b = LETTERS.index(source[i - 1]), LETTERS.index(target[j - 1])
                known[i, j] = least(
                    [
                        of(i - 1, j) + costs["delete"][a],
                        of(i, j - 1) + costs["insert"][b],
                        of(i - 1, j - 1) + costs["change"][a, b],
                    ]
                )
        return known[i, j]

    return of(len(source), len(target))


def costs() -> dict[str, jax.Array]:
    """One for a letter that is inserted, deleted or changed; none for one that stays."""
    each = jnp.ones(len(LETTERS))
    return {"start": jnp.zeros(()), "insert": each, "delete": each, "change": 1.0 - jnp.eye(len(LETTERS))}


def pairs(count: int, longest: int = 9, seed: int = 0) -> list[tuple[str, str]]:
    """Words, and what typing them badly makes of them."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        word = [chance.choice(LETTERS) for _ in range(chance.randint(3, longest))]
        other = list(word)
        for _ in range(chance.randint(0, 3)):
            k = chance.randrange(len(other))
            other[k : k + chance.randint(0, 1)] = [chance.choice(LETTERS) for _ in range(chance.randint(0, 2))]
            other = other or ["a"]
        made.append(("".join(word), "".join(other)))
    return made


def main(count: int = 32) -> int:
    c, data = costs(), pairs(count)
    worse = check("edit distance", distance, c, data, TOLERANCE)
    paid = {name: float(np.asarray(x).sum()) for name, x in ab.grad(distance)(c, data).items()}
    letters = sum(len(a) + len(b) for a, b in data)
    found = paid["insert"] + paid["delete"] + 2 * paid["change"]
    print(f"  letters that are paid for {found:.3f}, {letters} in truth")
    return worse or int(abs(found - letters) > TOLERANCE * letters)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
