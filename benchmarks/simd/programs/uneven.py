"""Loops whose trip counts vary tenfold from one example to the next: what a gang waits for, unless it is refilled."""

from __future__ import annotations

from math import sin

import numpy as np

import autobatch as ab
from examples.control import mandelbrot

FEWEST, MOST = 20, 200
STEP = 0.01


@ab.batched
def swing(angle: float, count: int) -> float:
    """Where a damped pendulum is after so many steps (semi-implicit Euler)."""
    speed = 0.0
    turn = 0
    while turn < count:
        speed = speed - STEP * (sin(angle) + 0.1 * speed)
        angle = angle + STEP * speed
        turn += 1
    return angle


def counts(examples: int, seed: int = 0) -> np.ndarray:
    """Trip counts, all from the fewest to the most alike, in random order."""
    return np.random.default_rng(seed).integers(FEWEST, MOST + 1, examples).astype(np.int32)


def pendulums(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles to start from, and steps."""
    angles = np.random.default_rng(1).uniform(0.1, 3.0, examples).astype(np.float32)
    return angles, counts(examples)


def points(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the plane that stay in Mandelbrot's circle for so many turns as `counts` has, in its order."""
    re, im = mandelbrot.plane(700, 700)
    turns = np.zeros(len(re), np.int32)
    left, x, y = np.arange(len(re)), np.zeros_like(re), np.zeros_like(im)
    while len(left):
        inside = (x * x + y * y <= 4) & (turns[left] < MOST)
        left, x, y = left[inside], x[inside], y[inside]
        turns[left] += 1
        x, y = x * x - y * y + re[left], 2 * x * y + im[left]
    rng, wanted = np.random.default_rng(2), counts(examples)
    order = rng.permutation(len(turns))  # equal counts in random order
    order = order[np.argsort(turns[order], kind="stable")]
    first = np.searchsorted(turns[order], wanted, "left")
    behind = np.searchsorted(turns[order], wanted, "right")
    chosen = order[np.minimum(first + rng.integers(0, np.maximum(behind - first, 1)), len(order) - 1)]
    return re[chosen], im[chosen]
