"""An ordinary differential equation by adaptive steps, and its gradient: predator and prey for many parameters.

Each example chooses its own steps, and takes one again, shorter, where the error is too large: a `while` with as many
turns as the numbers ask for. The method is Bogacki and Shampine's of order 3 with an estimate of order 2 (1989).
Run it: `python -m examples.control.ode [EXAMPLES]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.control.check import check

END, TOLERANCE = 4.0, 1e-3


def field(y: jax.Array, rates: jax.Array) -> jax.Array:
    """How fast prey and predators change (Lotka and Volterra)."""
    birth, eaten, feeding, death = rates
    prey, predators = y
    return jnp.stack([birth * prey - eaten * prey * predators, feeding * prey * predators - death * predators])


@ab.batched
def solve(rates: jax.Array, y: jax.Array) -> tuple[jax.Array, int]:
    """Prey and predators at the time `END`, and the steps that were accepted."""
    t: Any = 0.0
    h: Any = 0.1
    steps = 0
    while t < END:
        h = min(h, END - t)
        k1 = field(y, rates)
        k2 = field(y + h / 2 * k1, rates)
        k3 = field(y + h * 3 / 4 * k2, rates)
        new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = field(new, rates)
        apart = h * (5 / 72 * k1 - 1 / 12 * k2 - 1 / 9 * k3 + 1 / 8 * k4)
        error = jnp.max(jnp.abs(apart) / (TOLERANCE * (1.0 + jnp.abs(y))))
        if error <= 1.0:
            t, y = t + h, new
            steps += 1
        h = h * jnp.clip(0.9 * (error + 1e-10) ** (-1 / 3), 0.2, 5.0)
    return y, steps


@ab.batched
def distance(rates: jax.Array, y: jax.Array, seen: jax.Array) -> jax.Array:
    """The squared distance of what the equation predicts from what was seen: what a fit makes small."""
    predicted, _ = solve(rates, y)
    return jnp.sum((predicted - seen) ** 2)


def problems(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rates and starts, which differ by up to a half."""
    rng = np.random.default_rng(seed)
    rates = np.array([1.1, 0.4, 0.1, 0.4]) * rng.uniform(0.7, 1.5, (count, 4))
    return rates.astype(np.float32), rng.uniform(2.0, 8.0, (count, 2)).astype(np.float32)


def main(count: int = 100) -> int:
    rates, starts = problems(count)
    steps = np.asarray(solve(rates, starts)[1])
    print(f"{count} examples took {steps.min()} to {steps.max()} steps")
    seen = np.ones_like(starts)
    return check("adaptive steps", distance, (rates, starts, seen), tolerance=1e-3, grads=(0, 1))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
