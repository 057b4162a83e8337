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


def parameters(weights: dict[str, Any]) -> dict[str, Any]:
    """Those of both children in one."""
    p = packed.parameters(weights)
    p["both"] = jnp.concatenate([p.pop("left"), p.pop("right")])
    return p


def counts(trees: list[Any]) -> tuple[int, int, int]:
    """How many distinct words, inner nodes and nodes there are."""
    found = [n for tree in trees for n in workload.nodes(tree)]
    words = {n[1] for n in found if workload.is_leaf(n)}
    return len(words), sum(not workload.is_leaf(n) for n in found), len(found)


def operands(trees: list[Any], embedding: int, hidden: int) -> tuple[Any, ...]:
    """As many rows as the trees have, rounded to the nearest multiple, so that not every batch compiles."""
    rng = np.random.default_rng(0)
    step = 16 if len(trees) < 16 else 32
    words, inner, nodes = (max(1, round(count / step)) * step for count in counts(trees))

    def rows(count: int, width: int) -> Any:
        return jnp.asarray(rng.normal(size=(count, width)) / 4, jnp.float32)

    cells = rows(inner, hidden), rows(inner, hidden)
    labels = jnp.asarray(rng.integers(workload.CLASSES, size=nodes))
    return rows(words, embedding), rows(inner, 2 * hidden), cells, rows(nodes, hidden), labels


def main() -> None:
    trees, weights, hidden = workload.read(sys.argv[1])
    p = parameters(weights)

    @cache
    def held(chosen: range) -> tuple[Any, ...]:
        return operands([trees[k] for k in chosen], p["emb"].shape[1], hidden)

    def run(chosen: range) -> float:
        return float(jax.block_until_ready(forward(p, *held(chosen)))[0])

    worker.serve([workload.size(t) for t in trees], run, {"jax": jax.__version__})


if __name__ == "__main__":
    main()
