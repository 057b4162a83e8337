"""The arithmetic of a step of training and nothing else. `python -m ... train_ideal WORKLOAD`.

As `ideal`, with the derivative of its three operations and the update of what they read: no gathers, no levels, no sums
over those that share a row, no planning.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import Any

import jax

from benchmarks.competitors import worker

from . import ideal, workload


@partial(jax.jit, donate_argnums=0)
def descend(p: dict[str, Any], rate: Any, x: Any, states: Any, cells: Any, heads: Any, labels: Any) -> Any:
    """The cotangents of words, states and cells are returned too, else XLA would leave their products out."""

    def total(p: Any, x: Any, states: Any, cells: Any, heads: Any) -> Any:
        losses, leaves, inner = ideal.forward(p, x, states, cells, heads, labels)
        return losses + sum(h.sum() + c.sum() for h, c in (leaves, inner))

    value, (of_weights, dx, *others) = jax.value_and_grad(total, argnums=range(5))(p, x, states, cells, heads)
    return jax.tree.map(lambda v, g: v - rate * g, p, of_weights), value, (x - rate * dx, others)


def main() -> None:
    trees, weights, hidden = workload.read(sys.argv[1])
    p = ideal.parameters(weights)
    embedding = p.pop("emb").shape[1]
    held = {"p": p}

    @cache
    def operands(chosen: range) -> tuple[Any, ...]:
        return ideal.operands([trees[k] for k in chosen], embedding, hidden)

    def step(chosen: range) -> float:
        """The rate is zero, which XLA does not know: rows that stand for states have no loss to fall."""
        held["p"], value, _ = jax.block_until_ready(descend(held["p"], 0.0, *operands(chosen)))
        return float(value)

    worker.serve([workload.size(t) for t in trees], step, {"jax": jax.__version__})


if __name__ == "__main__":
    main()
