"""Training, as the models here do it: Adam on random minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import optax

import autobatch as ab
from examples.language.cells import Params


def train(loss: ab.Batched[..., Any], p: Params, examples: Sequence[Any], steps: int, size: int = 32) -> Params:
    """Whole epochs, of `steps` minibatches of `size` examples or a little more. `loss`: of parameters and an example.

    Each minibatch is cut out of columns; one executable takes all of them."""
    optimiser = optax.adam(1e-2)
    state = optimiser.init(p)

    @jax.jit
    def step(p: Params, state: Any, batch: ab.Batch) -> Any:
        slope = jax.grad(lambda p: loss(p, batch).sum() / size)(p)
        change, state = optimiser.update(slope, state)
        return optax.apply_updates(p, change), state

    loader = ab.Loader(loss.pack(list(examples)), size, seed=0)
    for _ in range(-(-steps // len(loader))):
        for batch in loader:
            p, state = step(p, state, batch)
    return p
