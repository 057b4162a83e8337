"""Training with autobatch: one executable for values, gradients and update, whose parameters are donated.

`python -m ... train_autobatch WORKLOAD`. Cutting the batch from the data set, binding and transfer are timed.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from benchmarks.competitors import packed, worker, workloads

from . import workload
from .with_autobatch import loss, phrase


def descend(rate: float, p: dict[str, Any], batch: ab.Batch) -> tuple[dict[str, Any], Any]:
    """A step of gradient descent on the sum of the losses, and that sum."""
    losses, gradient = ab.value_and_grad(loss)(p, batch)
    return jax.tree.map(lambda x, g: x - rate * g, p, gradient), losses.sum()


class Trained:
    """The model with its parameters; `data` is the packed and planned data set."""

    def __init__(self, trees: list[Any], weights: dict[str, Any], rate: float) -> None:
        self.weights = weights
        self.data = ab.pack([phrase(t) for t in trees]).plan(loss)
        self.update = jax.jit(partial(descend, rate), donate_argnums=0)

    def reset(self) -> None:
        # copies: the first weights must outlive the donation
        self.p = jax.tree.map(jnp.array, packed.parameters(self.weights))

    def batch(self, chosen: range | np.ndarray) -> ab.Batch:
        return self.data[np.asarray(chosen)]

    def loss(self, chosen: range) -> float:
        return float(loss(self.p, self.batch(chosen)).sum())

    def step(self, chosen: range) -> float:
        self.p, value = self.update(self.p, self.batch(chosen))
        return float(value)


def main() -> None:
    trees, weights, _ = workload.read(sys.argv[1])
    trained = Trained(trees, weights, workloads.learning_rate(sys.argv[1]))
    training = worker.Training(trained.reset, trained.loss, trained.step)
    serving = worker.TrainingWorker([workload.size(t) for t in trees], training)
    serving.serve({"version": ab.__version__, "jax": jax.__version__})


if __name__ == "__main__":
    main()
