"""How autobatch competes: examples are packed and planned once, a batch is cut from them by its indices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab

from . import worker


def parameters(weights: dict[str, Any]) -> dict[str, Any]:
    """Matrices as (inputs, outputs), for row vectors; rows of embeddings stay rows."""
    return {k: jnp.asarray(v.T if v.ndim == 2 and k != "emb" else v) for k, v in weights.items()}


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
