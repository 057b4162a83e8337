"""What the models here have in common: the steps of an LSTM, and weights of a sound scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

Params = dict[str, Any]


def lstm(cell: Params, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """A step of an LSTM, of what `entered` has made of its input: the state and the memory after it (Hochreiter and
    Schmidhuber 1997, with forget gates)."""
    i, f, g, o = jnp.split(x + h @ cell["state"], 4)
    c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    return sigmoid(o) * jnp.tanh(c), c


def entered(cell: Params, xs: Sequence[Any]) -> list[Any]:
    """The part of the gates that inputs decide. It does not wait for states, and is computed once for equal inputs."""
    return [x @ cell["input"] + cell["bias"] for x in xs]


def states(cell: Params, xs: Sequence[Any]) -> list[Any]:
    """The state after each element, from zeros."""
    h = c = jnp.zeros(cell["state"].shape[0])
    found = []
    for x in entered(cell, xs):
        h, c = lstm(cell, x, h, c)
        found.append(h)
    return found


def matrix(rng: np.random.Generator, inputs: int, outputs: int) -> jax.Array:
    """float32[inputs, outputs], of a scale that neither grows nor shrinks what goes through it."""
    return jnp.asarray(rng.uniform(-1, 1, (inputs, outputs)) * np.sqrt(3 / inputs), jnp.float32)


def new_cell(rng: np.random.Generator, inputs: int, hidden: int) -> Params:
    """The weights of an LSTM, whose gates are i, f, g, o; it does not forget at first."""
    bias = jnp.zeros(4 * hidden).at[hidden : 2 * hidden].set(1.0)
    return {"input": matrix(rng, inputs, 4 * hidden), "state": matrix(rng, hidden, 4 * hidden), "bias": bias}
