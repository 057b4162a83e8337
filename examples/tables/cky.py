"""The inside algorithm for one sentence, with a chart that is a dict: how likely is it under a probabilistic grammar?

The grammar is in Chomsky's normal form; `rule[a, b, c]` and `emit[w, a]` are logarithms of probabilities. The gradient
by a rule is how often a derivation of the sentence is expected to use it (Eisner, "Inside-Outside and Forward-Backward
Algorithms Are Just Backprop", 2016), which is checked: a sentence of n words takes n - 1 rules.
Run it: `python -m examples.tables.cky [SENTENCES]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.trees.check import check

WORDS, SYMBOLS = 40, 8
TOLERANCE = 1e-4


@ab.batched(in_axes=(None, 0))
def inside(grammar: Any, words: list[int]) -> Any:
    """The logarithm of the probability of a sentence; symbol 0 is that of whole sentences."""
    chart = {}
    for i, word in enumerate(words):
        chart[i, i + 1] = grammar["emit"][word]
    for width in range(2, len(words) + 1):
        for start in range(len(words) - width + 1):
            end = start + width
            parts = [chart[start, k][:, None] + chart[k, end] for k in range(start + 1, end)]
            both = jax.nn.logsumexp(jnp.stack(parts), axis=0)
            chart[start, end] = jax.nn.logsumexp(grammar["rule"] + both, axis=(1, 2))
    return chart[0, len(words)][0]


def grammar(seed: int = 0) -> dict[str, jax.Array]:
    """Of random weights: what a symbol derives sums to one."""
    rng = np.random.default_rng(seed)
    weights = rng.gumbel(size=(SYMBOLS, SYMBOLS * SYMBOLS + WORDS)) * 2.0
    logs = weights - np.log(np.exp(weights).sum(1, keepdims=True))
    rule = logs[:, : SYMBOLS * SYMBOLS].reshape(SYMBOLS, SYMBOLS, SYMBOLS)
    return {"rule": jnp.asarray(rule, jnp.float32), "emit": jnp.asarray(logs[:, SYMBOLS * SYMBOLS :].T, jnp.float32)}


def sentences(count: int, longest: int = 12, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, WORDS, rng.integers(2, longest + 1)).tolist() for _ in range(count)]


def main(count: int = 32) -> int:
    g, data = grammar(), sentences(count)
    worse = check("inside algorithm", inside, g, data, TOLERANCE)
    used = float(ab.grad(inside)(g, data)["rule"].sum())
    wanted = sum(len(words) - 1 for words in data)
    print(f"  rules that derivations use {used:.3f}, {wanted} in truth")
    return worse or int(abs(used - wanted) > TOLERANCE * wanted)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
