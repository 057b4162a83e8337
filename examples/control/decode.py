"""Greedy decoding: a recurrent network writes a sequence token by token; each example stops at its end mark.

Run it: `python -m examples.control.decode [SEQUENCES]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

import autobatch as ab
from examples.control.check import check

END, START, LONGEST = 0, 1, 30
Params = dict[str, jax.Array]


def cell(p: Params, h: jax.Array, x: jax.Array) -> jax.Array:
    """A gated recurrent unit (Cho and others, EMNLP 2014)."""
    xr, xz, xn = jnp.split(x @ p["W"], 3)
    hr, hz, hn = jnp.split(h @ p["U"], 3)
    z = sigmoid(xz + hz)
    return (1 - z) * jnp.tanh(xn + sigmoid(xr + hr) * hn) + z * h


@ab.batched(in_axes=(None, 0))
def decode(p: Params, h: jax.Array) -> Any:
    """The tokens that state `h` says, how many they are, and the logarithm of their probability."""
    tokens = jnp.full(LONGEST, END)
    token: Any = START
    length, score = 0, jnp.float32(0.0)
    while length < LONGEST:
        h = cell(p, h, p["embedding"][token])
        scores = jax.nn.log_softmax(h @ p["out"])
        token = jnp.argmax(scores)
        score += scores[token]
        if token == END:
            break
        tokens = tokens.at[length].set(token)
        length += 1
    return tokens, length, score


def parameters(words: int = 40, hidden: int = 32, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float) -> jax.Array:
        return jnp.asarray(scale * rng.normal(0.0, rows**-0.5, (rows, columns)), jnp.float32)

    return {
        "embedding": matrix(words, hidden, 4.0),
        "W": matrix(hidden, 3 * hidden, 1.0),
        "U": matrix(hidden, 3 * hidden, 1.5),
        "out": matrix(hidden, words, 1.0),
    }


def states(count: int, hidden: int = 32, seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(count, hidden)), jnp.float32)


def main(count: int = 100) -> int:
    p, given = parameters(), states(count)
    lengths = np.asarray(decode(p, given)[1])
    ended = (lengths < LONGEST).sum()
    print(f"{count} sequences of {lengths.min()} to {lengths.max()} tokens; {ended} ended by themselves")
    return check("greedy decoding", decode, (p, given))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
