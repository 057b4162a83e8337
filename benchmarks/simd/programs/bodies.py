"""One step of bodies that attract each other: an example is a body, all others are shared."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

import autobatch as ab

STEP, SOFT = 0.01, 1e-3


@ab.batched(in_axes=(None, 0, 0, 0, 0, 0, 0))
def step(all_: Any, x: float, y: float, z: float, vx: float, vy: float, vz: float) -> Any:
    """Where a body is after `STEP`, and how fast."""
    ax = ay = az = 0.0
    for j in range(len(all_["m"])):
        dx, dy, dz = all_["x"][j] - x, all_["y"][j] - y, all_["z"][j] - z
        near = dx * dx + dy * dy + dz * dz + SOFT
        pull = all_["m"][j] / (near * sqrt(near))
        ax, ay, az = ax + pull * dx, ay + pull * dy, az + pull * dz
    vx, vy, vz = vx + STEP * ax, vy + STEP * ay, vz + STEP * az
    return x + STEP * vx, y + STEP * vy, z + STEP * vz, vx, vy, vz


def cloud(count: int, seed: int = 0) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Bodies by columns, and the same as examples with their speeds."""
    rng = np.random.default_rng(seed)
    places = [rng.normal(size=count).astype(np.float32) for _ in range(3)]
    speeds = [rng.normal(0.0, 0.1, count).astype(np.float32) for _ in range(3)]
    masses = rng.uniform(0.5, 2.0, count).astype(np.float32) / count
    return {"x": places[0], "y": places[1], "z": places[2], "m": masses}, [*places, *speeds]
