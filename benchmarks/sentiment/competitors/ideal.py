"""The arithmetic of a batch and nothing else: no gathers, no levels, no planning. `python -m ... ideal WORKLOAD`.

One matrix product for the distinct words, one for all inner nodes as if none waited for another, one for all heads, and
the gates. What a schedule reaches of this speed is what levels and data movement leave of it.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax

from benchmarks.competitors import packed, worker

from . import workload
from .with_autobatch import gates


@jax.jit
def forward(p: dict[str, Any], x: Any, states: Any, cells: Any, heads: Any, labels: Any) -> Any:
    leaves = jax.vmap(gates)(x @ p["leaf"] + p["leaf_bias"])
    inner = jax.vmap(gates)(states @ p["both"] + p["bias"], *cells)
    losses = -jnp.take_along_axis(log_softmax(heads @ p["out"] + p["out_bias"]), labels[:, None], 1)
    return losses.sum(), leaves, inner


def main() -> None:
    trees, weights, hidden = workload.read(sys.argv[1])
    p = packed.parameters(weights)
    p["both"] = jnp.concatenate([p["left"], p["right"]])
    rng = np.random.default_rng(0)

    @cache
    def operands(chosen: range) -> tuple[Any, ...]:
        found = [n for k in chosen for n in workload.nodes(trees[k])]
        words = {n[1] for n in found if workload.is_leaf(n)}
        inner = sum(not workload.is_leaf(n) for n in found)

        def rows(count: int, width: int) -> Any:
            return jnp.asarray(rng.normal(size=(count, width)) / 4, jnp.float32)

        cells = rows(inner, hidden), rows(inner, hidden)
        labels = jnp.asarray([n[0] for n in found])
        x = rows(len(words), p["emb"].shape[1])
        return x, rows(inner, 2 * hidden), cells, rows(len(found), hidden), labels

    def run(chosen: range) -> float:
        return float(jax.block_until_ready(forward(p, *operands(chosen)))[0])

    worker.serve([workload.size(t) for t in trees], run, {"jax": jax.__version__})


if __name__ == "__main__":
    main()
