"""How autobatch competes: examples are packed and planned once, a batch is cut from them by its indices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab

from . import worker


def parameters(weights: dict[str, Any]) -> dict[str, Any]:
    """Matrices as (inputs, outputs), for row vectors; rows of embeddings stay rows."""
    return {k: jnp.asarray(v if v.ndim < 2 or k.startswith("emb") else v.T) for k, v in weights.items()}


def serve(loss: ab.Batched, p: dict[str, Any], examples: list[Any], sizes: Sequence[int]) -> None:
    """The first call plans the whole data set, and compiles."""
    start = time.perf_counter()
    data = ab.pack(examples)
    packed = time.perf_counter()
    data = data.plan(loss)
    float(loss(p, data[:64]).sum())
    first = time.perf_counter()

    def run(chosen: range) -> float:
        return float(loss(p, data[np.arange(chosen.start, chosen.stop)]).sum())

    worker.serve(sizes, run, {
        "version": ab.__version__, "jax": jax.__version__, "first_call_seconds": first - packed,
        "packing_parts_per_second": sum(sizes) / (packed - start),
    })  # fmt: skip


def train(
    loss: ab.Batched, first: Callable[[], dict[str, Any]], examples: list[Any], sizes: Sequence[int], rate: float
) -> None:
    """Gradient descent in one executable, whose parameters are donated: `first()` makes those it begins with."""
    data = ab.pack(examples).plan(loss)

    @partial(jax.jit, donate_argnums=0)
    def descend(p: dict[str, Any], batch: ab.Batch, rate: float) -> tuple[dict[str, Any], Any]:
        losses, gradient = ab.value_and_grad(loss, sparse=True)(p, batch)
        updates = jax.tree.map(lambda g: -rate * g, gradient, is_leaf=lambda g: isinstance(g, ab.SparseRows))
        return ab.apply_updates(p, updates), losses.sum()

    held = {"p": first()}
    loss.lower(held["p"], data[:1])  # from here on batches travel with a plan for such parameters

    def reset() -> None:
        held["p"] = jax.tree.map(jnp.array, first())  # copies: the first weights outlive the donation

    def step(chosen: range, rate: float = rate) -> float:
        held["p"], value = descend(held["p"], data[np.asarray(chosen)], rate)
        return float(value)

    training = worker.Training(reset, partial(step, rate=0.0), step)
    worker.TrainingWorker(sizes, training).serve({"version": ab.__version__, "jax": jax.__version__})
