"""Training batched by hand in JAX, the derivative by `jax.grad`. `python -m ... train_jax WORKLOAD`.

Level by level from below, as in `forest.py`: the states of a level's children are results of the level below, and
leaves. Shapes must not depend on the batch, else each would compile: levels have as many rows as the widest batch of
the size needs there. Neighbouring depths of like width are one `lax.scan` at one width; levels that a batch has not are
rows of padding, whose losses weigh nothing. Of the embedding only the rows that are read have a gradient. Schedules are
made when a batch runs first, before anything is timed.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import log_softmax

from benchmarks.competitors import memory, packed, worker, workloads

from . import forest, workload
from .with_autobatch import gates

A_LOOP = 32
"""What one more loop costs, in rows of a level."""
ROUNDED = 8
"""Levels have a multiple of so many rows."""

Segment = tuple[int, int, int]
"""(first, last, width): depths from the deepest that one loop computes, and how many rows each has."""


def segments(widths: list[int]) -> list[Segment]:
    """The loops that cover levels of these widths with the least padding."""
    best: list[tuple[int, list[Segment]]] = [(0, [])]
    for last in range(1, len(widths) + 1):
        found = []
        for first, (cost, before) in enumerate(best):
            width = max(widths[first:last])
            found.append((cost + (last - first) * width + A_LOOP, [*before, (first, last, width)]))
        best.append(min(found, key=lambda item: item[0]))
    return best[-1][1]


def up(count: int) -> int:
    return -(-count // ROUNDED) * ROUNDED


def common_shape(forests: list[forest.Forest]) -> tuple[int, list[Segment]]:
    """What all batches of a size fit in: how many leaves there are at most, and the segments."""
    depths = max(len(f.levels) for f in forests)
    widths = [max(last - first for f in forests for first, last in f.levels[d : d + 1]) for d in range(depths)]
    return up(max(len(f.leaves) for f in forests)), segments([up(w) for w in reversed(widths)])


def padded(values: list[int], count: int, fill: int) -> np.ndarray:
    return np.array(values + [fill] * (count - len(values)), np.int32)


def schedule(f: forest.Forest, leaves: int, shape: list[Segment]) -> Any:
    """Words and labels of the leaves; which children are which leaf; for each segment which children are which row of
    the level below, for the first of its levels and for the others, and labels.

    An index behind the last row reads zeros; padding has the label -1.
    """
    leaf, below, missing = {row: k for k, row in enumerate(f.leaves)}, dict[int, int](), ROUNDED
    of_leaves, made, depth = [], [], sum(last - first for first, last, _ in shape)
    for first, last, width in shape:
        of_below, labels = [], []
        for level in range(depth - 1 - first, depth - 1 - last, -1):
            begin, end = f.levels[level] if level < len(f.levels) else (0, 0)
            children = range(f.trees + 2 * begin, f.trees + 2 * end)
            of_leaves.append(padded([leaf.get(row, leaves) for row in children], 2 * width, leaves))
            of_below.append(padded([below.get(row, missing) for row in children], 2 * width, missing))
            labels.append(padded([f.labels[row] for row in f.inner[begin:end]], width, -1))
            below, missing = {row: k for k, row in enumerate(f.inner[begin:end])}, width
        others = np.array(of_below[1:], np.int32).reshape(-1, 2 * width)
        made.append((of_below[0], others, np.array(labels)))
    words, labels = padded(f.words, leaves, 0), padded([f.labels[row] for row in f.leaves], leaves, -1)
    return jax.tree.map(jnp.asarray, (words, labels, np.concatenate(of_leaves), made))


def rows(table: Any, indices: Any) -> Any:
    return table.at[indices].get(mode="fill", fill_value=0)


def total(p: dict[str, Any], x: Any, plan: Any) -> Any:
    """The sum of the losses; `x` are the rows of the embedding for all leaves."""
    _, leaf_labels, of_leaves, made = plan
    width = p["state"].shape[1] // 5
    h, c = jax.vmap(gates)(x @ p["leaf"] + p["leaf_bias"])
    from_leaves = rows(h, of_leaves), rows(c, of_leaves)
    states, labels, at = [h], [leaf_labels], 0
    carried = jnp.zeros((ROUNDED, width)), jnp.zeros((ROUNDED, width))

    def level(below: Any, given: Any) -> tuple[Any, Any]:
        indices, *leaves = given
        h, c = (rows(a, indices) + b for a, b in zip(below, leaves, strict=True))
        left, right = jnp.moveaxis(c.reshape(-1, 2, width), 1, 0)
        found = jax.vmap(gates)(h.reshape(-1, 2 * width) @ p["state"] + p["bias"], left, right)
        return found, found[0]

    for first, others, of_rows in made:
        size = of_rows.size * 2
        mine = [a[at : at + size].reshape(of_rows.shape[0], -1, width) for a in from_leaves]
        carried, once = level(carried, (first, *(a[0] for a in mine)))
        carried, many = lax.scan(level, carried, (others, *(a[1:] for a in mine)))
        states += [once, many.reshape(-1, width)]
        labels.append(of_rows.ravel())
        at += size
    labels = jnp.concatenate(labels)
    logs = log_softmax(jnp.concatenate(states) @ p["out"] + p["out_bias"])
    losses = -jnp.take_along_axis(logs, jnp.maximum(labels, 0)[:, None], 1)[:, 0]
    return jnp.where(labels >= 0, losses, 0).sum()


@partial(jax.jit, donate_argnums=0)
def descend(p: dict[str, Any], plan: Any, rate: float) -> tuple[dict[str, Any], Any]:
    words = plan[0]
    dense = {k: v for k, v in p.items() if k != "emb"}
    value, (gradient, dx) = jax.value_and_grad(total, argnums=(0, 1))(dense, p["emb"][words], plan)
    dense = jax.tree.map(lambda v, g: v - rate * g, dense, gradient)
    return {**dense, "emb": p["emb"].at[words].add(-rate * dx)}, value


class Trained:
    """The model with its parameters."""

    def __init__(self, trees: list[Any], weights: dict[str, Any], rate: float) -> None:
        self.trees, self.weights, self.rate = trees, weights, rate
        self.plan, self.shape = cache(self._plan), cache(self._shape)

    def reset(self) -> None:
        p = jax.tree.map(jnp.array, packed.parameters(self.weights))
        p["state"] = jnp.concatenate([p.pop("left"), p.pop("right")])
        self.p = p

    def _forest(self, chosen: range) -> forest.Forest:
        return forest.breadth_first([self.trees[k] for k in chosen])

    def _shape(self, size: int) -> tuple[int, list[Segment]]:
        starts = range(0, len(self.trees) - size + 1, size)
        return common_shape([self._forest(range(at, at + size)) for at in starts])

    def _plan(self, chosen: range) -> Any:
        return schedule(self._forest(chosen), *self.shape(len(chosen)))

    def loss(self, chosen: range) -> float:
        """By a step of no length, whose executable is there already."""
        return self.step(chosen, 0.0)

    def step(self, chosen: range, rate: float | None = None) -> float:
        self.p, value = descend(self.p, self.plan(chosen), self.rate if rate is None else rate)
        return float(value)

    def details(self, size: int) -> dict[str, Any]:
        return {"memory": memory.of(descend.lower(self.p, self.plan(range(size)), self.rate).compile())}


def main() -> None:
    trees, weights, _ = workload.read(sys.argv[1])
    trained = Trained(trees, weights, workloads.learning_rate(sys.argv[1]))
    training = worker.Training(trained.reset, trained.loss, trained.step)
    serving = worker.TrainingWorker([workload.size(t) for t in trees], training)
    serving.details = trained.details
    serving.serve({"jax": jax.__version__})


if __name__ == "__main__":
    main()
