"""Root finding with its gradient: Kepler's equation by Newton's method with bisection, one orbit an example.

`E - e sin E = M` is solved for E. The gradient runs through the turns of the loop that each example took, and is
compared with the one that the implicit function theorem gives. Run it: `python -m examples.control.roots [ORBITS]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.control.check import check
from examples.trees.check import largest_difference

TOLERANCE = 1e-6


def kepler(anomaly: jax.Array, eccentricity: jax.Array, mean: jax.Array) -> jax.Array:
    return anomaly - eccentricity * jnp.sin(anomaly) - mean


@ab.batched
def solve(eccentricity: Any, mean: Any) -> Any:
    """The eccentric anomaly of an orbit: Newton's step where it stays in the bracket, else its middle."""
    low, high = mean - 1.0, mean + 1.0
    x = mean
    for _ in range(60):
        value, slope = jax.value_and_grad(kepler)(x, eccentricity, mean)
        if value > 0:
            high = x
        else:
            low = x
        step = x - value / slope
        if not low <= step <= high:
            step = 0.5 * (low + high)
        done = abs(step - x) <= TOLERANCE * (1.0 + abs(x))
        x = step
        if done:
            break
    else:
        raise ValueError("no root after 60 turns")
    return x


def orbits(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.0, 0.95, count).astype(np.float32), rng.uniform(0.1, np.pi, count).astype(np.float32)


def main(count: int = 200) -> int:
    e, mean = orbits(count)
    anomaly = solve(e, mean)
    found = ab.grad(solve, argnums=(0, 1))(e, mean)
    slope = 1.0 - e * jnp.cos(anomaly)
    apart = largest_difference(found, (jnp.sin(anomaly) / slope, 1.0 / slope))
    print(f"{count} orbits; the gradient is {apart:.1e} from the implicit function theorem's")
    return check("roots", solve, (e[:40], mean[:40]), tolerance=1e-3, grads=(0, 1)) | int(apart > 1e-3)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
