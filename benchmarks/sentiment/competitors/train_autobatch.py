"""Training with autobatch: one executable for values, gradients and update, whose parameters are donated.

`python -m ... train_autobatch WORKLOAD`. Cutting the batch from the data set, binding and transfer are timed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autobatch as ab
from benchmarks.competitors import memory, packed, worker, workloads
from benchmarks.compilations import Compilations

from . import workload
from .with_autobatch import loss, phrase

PRODUCTS = 32
"""How many products of 64 rows are measured at once, so that starting them costs nothing."""


SMALLEST = 64
"""From this batch size on the forward pass and the gradient are measured alone too: each compiles executables."""


@partial(jax.jit, donate_argnums=0)
def descend(p: dict[str, Any], batch: ab.Batch, rate: float) -> tuple[dict[str, Any], Any]:
    """A step of gradient descent on the sum of the losses, and that sum."""
    losses, gradient = ab.value_and_grad(loss, sparse=True)(p, batch)
    updates = jax.tree.map(lambda g: -rate * g, gradient, is_leaf=lambda g: isinstance(g, ab.SparseRows))
    return ab.apply_updates(p, updates), losses.sum()


class Trained:
    """The model with its parameters; `data` is the packed and planned data set."""

    def __init__(self, trees: list[Any], weights: dict[str, Any], rate: float) -> None:
        self.trees, self.weights, self.rate = trees, weights, rate
        self.data = ab.pack([phrase(t) for t in trees]).plan(loss)
        self.derivative = ab.value_and_grad(loss, sparse=True)
        self.compilations = Compilations()
        self.compiled: dict[int, list[int]] = {}

    def reset(self) -> None:
        # copies: the first weights must outlive the donation
        self.p = jax.tree.map(jnp.array, packed.parameters(self.weights))
        loss.lower(self.p, self.data[:1])  # from here on batches travel with a plan for such parameters

    def batch(self, chosen: Any) -> ab.Batch:
        return self.data[np.asarray(chosen)]

    def loss(self, chosen: range) -> float:
        """By a step of no length: small batches need many executables, which are these already."""
        return self.step(chosen, 0.0)

    def forward(self, chosen: range) -> float:
        return float(loss(self.p, self.batch(chosen)).sum())

    def gradient(self, chosen: range) -> float:
        values, found = self.derivative(self.p, self.batch(chosen))
        jax.block_until_ready(found)
        return float(values.sum())

    def step(self, chosen: Any, rate: float | None = None) -> float:
        with self.compilations:
            self.p, value = descend(self.p, self.batch(chosen), self.rate if rate is None else rate)
            return float(value)

    def epochs(self, size: int) -> None:
        """Two epochs, each in an order of its own. What compiles in the first is one entry of `compiled[size]`, the
        count when it has ended the other: whatever an update compiles from then on should not have been necessary."""
        rng, before = np.random.default_rng(0), self.compilations.count
        for _ in range(2):
            order = rng.permutation(len(self.trees))
            for at in range(0, len(order) - size + 1, size):
                self.step(order[at : at + size])
            self.compiled.setdefault(size, [self.compilations.count - before, self.compilations.count])

    def details(self, size: int) -> dict[str, Any]:
        first, count = self.compiled[size]
        sizes = {"embedding": self.weights["emb"].shape[1], "hidden": self.weights["out"].shape[1]}
        batches = [self.trees[at : at + size] for at in range(0, len(self.trees) - size + 1, size)]
        forward = sum(workload.arithmetic(trees, **sizes) for trees in batches)
        return {
            "flop_of_an_example": 3 * forward / (size * len(batches)),
            "executables": {"first epoch": first, "later": self.compilations.count - count},
            "memory": memory.of(descend.lower(self.p, self.batch(range(size)), self.rate).compile()),
        }


class Worker(worker.TrainingWorker):
    """Each batch size begins with epochs in random order."""

    def __init__(self, trained: Trained) -> None:
        training = worker.Training(trained.reset, trained.loss, trained.step)
        super().__init__([workload.size(t) for t in trained.trees], training)
        self.trained, self.details = trained, trained.details
        self.beside = {
            "forward": partial(self.rate_alone, trained.forward),
            "gradient": partial(self.rate_alone, trained.gradient),
            "products": self.products,
        }

    def warm(self, size: int) -> dict[str, Any]:
        self.trained.reset()
        self.trained.epochs(size)
        answer = super().warm(size)
        if size >= SMALLEST:
            self.total(self.trained.forward, size)
            self.total(self.trained.gradient, size)
        return answer

    def rate_alone(self, run: Callable[[range], float], size: int, seconds: float) -> float | None:
        return self.rate_of(run, size, seconds) if size >= SMALLEST else None

    def products(self, size: int, seconds: float) -> float:
        """GFLOP in a second of XLA's matrix product with 64 rows, as wide as that of an inner node.

        One after another in a loop, as in a level loop; what is left of them is their sum.
        """
        hidden = self.trained.weights["out"].shape[1]
        rng = np.random.default_rng(0)
        rows, matrix = rng.normal(size=(PRODUCTS, 64, 2 * hidden)), rng.normal(size=(2 * hidden, 5 * hidden))
        held = jnp.asarray(rows, jnp.float32), jnp.asarray(matrix, jnp.float32)
        summed_products(*held).block_until_ready()
        begin, count = time.perf_counter(), 0
        while (spent := time.perf_counter() - begin) < seconds or not count:
            summed_products(*held).block_until_ready()
            count += 1
        return count * 2 * rows.size * matrix.shape[1] / spent / 1e9


@jax.jit
def summed_products(rows: Any, matrix: Any) -> Any:
    def add(total: Any, x: Any) -> tuple[Any, None]:
        return total + x @ matrix, None

    return lax.scan(add, jnp.zeros((rows.shape[1], matrix.shape[1])), rows)[0]


def main() -> None:
    trees, weights, _ = workload.read(sys.argv[1])
    start = time.perf_counter()
    trained = Trained(trees, weights, workloads.learning_rate(sys.argv[1]))
    packing = sum(workload.size(t) for t in trees) / (time.perf_counter() - start)
    info = {"version": ab.__version__, "jax": jax.__version__, "packing_and_planning_parts_per_second": packing}
    Worker(trained).serve(info)


if __name__ == "__main__":
    main()
