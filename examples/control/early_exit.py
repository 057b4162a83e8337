"""A classifier that stops at the layer that is sure enough, example by example (Teerapittayanon and others, ICPR 2016).

Every layer has a head of its own, and all heads are trained together by `ab.value_and_grad`. Two classes of points lie
on spirals. Run it: `python -m examples.control.early_exit [POINTS]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.control.check import check

SURE = 0.95
Layers = list[dict[str, jax.Array]]


def layer(p: dict[str, jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What the layer passes on, and what its head says of the classes."""
    h = jnp.tanh(x @ p["W"] + p["b"])
    return h, jax.nn.log_softmax(h @ p["head"])


@ab.batched(in_axes=(None, 0))
def classify(layers: Layers, x: jax.Array) -> Any:
    """The class, the layers that it took, and the probability."""
    used = 0
    for p in layers:
        x, scores = layer(p, x)
        used += 1
        if jnp.max(scores) > jnp.log(SURE):
            break
    return jnp.argmax(scores), used, jnp.exp(jnp.max(scores))


@ab.batched(in_axes=(None, 0, 0))
def loss(layers: Layers, x: jax.Array, label: int) -> Any:
    """The cross entropy of the heads that are asked: those up to the first one that is sure and right."""
    total: Any = 0.0
    for p in layers:
        x, scores = layer(p, x)
        total -= scores[label]
        if scores[label] > jnp.log(SURE):
            break
    return total


def parameters(layers: int = 4, width: int = 16, seed: int = 0) -> Layers:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.normal(0.0, rows**-0.5, (rows, columns)), jnp.float32)

    sizes = [2] + [width] * (layers - 1)
    return [{"W": 2.0 * matrix(n, width), "b": jnp.zeros(width), "head": matrix(width, 2)} for n in sizes]


def spirals(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Points on two spirals, and which one each is on."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    turn = rng.uniform(0.2, 1.0, count)
    angle = 1.5 * np.pi * turn + np.pi * label
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.02, (count, 2))
    return 2.0 * points.astype(np.float32), label.astype(np.int32)


def train(layers: Layers, points: np.ndarray, labels: np.ndarray, steps: int, rate: float = 1.0) -> Layers:
    @jax.jit
    def step(layers: Layers) -> Any:
        _, gradient = ab.value_and_grad(loss)(layers, points, labels)
        return jax.tree.map(lambda p, g: p - rate * g / len(points), layers, gradient)

    for _ in range(steps):
        layers = step(layers)
    return layers


def main(count: int = 300, steps: int = 600) -> int:
    points, labels = spirals(count)
    layers = train(parameters(), points, labels, steps)
    found, used, _ = map(np.asarray, classify(layers, points))
    share = ", ".join(f"{np.mean(used == k):.0%} after {k}" for k in range(1, len(layers) + 1))
    print(f"{np.mean(found == labels):.0%} right; stopped: {share}")
    failed = check("early exit", classify, (layers, points[:100]))
    return failed | check("its loss", loss, (layers, points[:50], labels[:50]), tolerance=1e-4, grads=(0,))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
