"""The No-U-Turn Sampler on many chains at once (Hoffman and Gelman, JMLR 2014, algorithm 6).

`transition` is one draw of ONE chain, in the words of the paper: `tree` calls itself twice, and how deep, the numbers
decide. As a batch every chain has a stack of its own. Run it: `python -m examples.control.nuts [CHAINS] [DIMENSIONS]`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

import autobatch as ab
from examples.control.check import check

DEEPEST, UNLIKELY = 10, 1000.0
WANTED, GAMMA, DELAY, KAPPA = 0.8, 0.05, 10.0, 0.75
Model = dict[str, jax.Array]


def log_density(model: Model, q: jax.Array) -> jax.Array:
    """That of a Gaussian, but for a constant."""
    return -0.5 * jnp.sum(((q - model["mean"]) / model["scale"]) ** 2)


def leapfrog(model: Model, q: jax.Array, r: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    gradient = jax.grad(log_density, argnums=1)
    r = r + 0.5 * step * gradient(model, q)
    q = q + step * r
    return q, r + 0.5 * step * gradient(model, q)


def goes_on(q_left: jax.Array, r_left: jax.Array, q_right: jax.Array, r_right: jax.Array) -> jax.Array:
    """Do both ends still move away from each other?"""
    way = q_right - q_left
    return (jnp.dot(way, r_left) >= 0) & (jnp.dot(way, r_right) >= 0)


def tree(model: Model, key: Any, q: Any, r: Any, slice_: Any, side: Any, depth: Any, step: Any, start: Any) -> Any:
    """2^depth leapfrog steps to one side: both ends, one of the states in the slice, how many these are, whether to go
    on, and the sum of acceptance probabilities with the number of steps."""
    if depth == 0:
        q, r = leapfrog(model, q, r, side * step)
        energy = log_density(model, q) - 0.5 * jnp.dot(r, r)
        inside = jnp.where(slice_ <= energy, 1, 0)
        return q, r, q, r, q, inside, slice_ < energy + UNLIKELY, jnp.minimum(1.0, jnp.exp(energy - start)), 1
    one, two, draw = random.split(key, 3)
    ql, rl, qr, rr, q, n, more, a, steps = tree(model, one, q, r, slice_, side, depth - 1, step, start)
    if more:
        if side < 0:
            ql, rl, _, _, q2, n2, more, a2, steps2 = tree(model, two, ql, rl, slice_, side, depth - 1, step, start)
        else:
            _, _, qr, rr, q2, n2, more, a2, steps2 = tree(model, two, qr, rr, slice_, side, depth - 1, step, start)
        if random.uniform(draw) * (n + n2) < n2:
            q = q2
        n, a, steps = n + n2, a + a2, steps + steps2
        more = more & goes_on(ql, rl, qr, rr)
    return ql, rl, qr, rr, q, n, more, a, steps


@ab.batched(in_axes=(None, 0, 0, None))
def transition(model: Model, key: Any, q: jax.Array, step: float) -> Any:
    """The next state of a chain, the mean acceptance probability of its steps, and how many it took."""
    key, momentum, height = random.split(key, 3)
    r = random.normal(momentum, q.shape)
    start = log_density(model, q) - 0.5 * jnp.dot(r, r)
    slice_ = start + jnp.log(random.uniform(height))
    ql, rl, qr, rr = q, r, q, r
    n, depth, more, accepted, steps = 1, 0, True, 0.0, 0
    while more and depth < DEEPEST:
        key, flip, below, draw = random.split(key, 4)
        side = jnp.where(random.bernoulli(flip), 1.0, -1.0)
        if side < 0:
            ql, rl, _, _, q2, n2, more, a, s = tree(model, below, ql, rl, slice_, side, depth, step, start)
        else:
            _, _, qr, rr, q2, n2, more, a, s = tree(model, below, qr, rr, slice_, side, depth, step, start)
        if more and random.uniform(draw) * n < n2:
            q = q2
        n, accepted, steps = n + n2, accepted + a, steps + s
        more = more & goes_on(ql, rl, qr, rr)
        depth += 1
    return q, accepted / steps, steps


def sample(model: Model, key: jax.Array, q: jax.Array, warm_up: int, draws: int) -> tuple[jax.Array, jax.Array]:
    """Draws[draws, chains, dimensions] after the warm-up, and the leapfrog steps of each. All chains have one step
    size, which the warm-up adapts by dual averaging to the acceptance `WANTED` (the paper's section 3.2)."""
    first = jnp.log(10.0 * 0.05)

    def turn(state: Any, given: Any) -> Any:
        q, step, smooth, wrong = state
        m, key = given
        adapts = m <= warm_up
        size = jnp.exp(jnp.where(adapts, step, smooth))
        q, accepted, steps = transition(model, random.split(key, len(q)), q, size)
        weight = 1.0 / (m + DELAY)
        wrong = jnp.where(adapts, (1.0 - weight) * wrong + weight * (WANTED - accepted.mean()), wrong)
        step = jnp.where(adapts, first - jnp.sqrt(m) / GAMMA * wrong, step)
        smooth = jnp.where(adapts, m**-KAPPA * step + (1.0 - m**-KAPPA) * smooth, smooth)
        return (q, step, smooth, wrong), (q, steps)

    numbers = jnp.arange(1.0, warm_up + draws + 1.0)
    begin = q, jnp.log(0.05), jnp.log(0.05), jnp.float32(0.0)
    _, (states, steps) = jax.lax.scan(turn, begin, (numbers, random.split(key, warm_up + draws)))
    return states[warm_up:], steps[warm_up:]


def effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """For each dimension, of draws[n, chains, dimensions]: from the autocorrelations of all chains, cut off where a sum
    of two neighbouring ones is negative (Geyer, Statistical Science 1992; Vehtari and others, 2021)."""
    n, chains, _ = draws.shape
    centred = draws - draws.mean(axis=0)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=0)) ** 2
    covariance = np.fft.irfft(spectrum, axis=0)[:n].mean(axis=1) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + (draws.mean(axis=0).var(axis=0, ddof=1) if chains > 1 else 0.0)
    correlation = 1.0 - (within - covariance * n / (n - 1)) / total
    pairs = correlation[0 : 2 * (n // 2) : 2] + correlation[1 : 2 * (n // 2) : 2]
    kept = np.cumprod(pairs > 0, axis=0)
    size: np.ndarray = n * chains / np.maximum(2.0 * (pairs * kept).sum(axis=0) - 1.0, 1.0 / np.log10(n * chains))
    return size


def gaussian(dimensions: int) -> Model:
    return {"mean": jnp.linspace(-1.0, 1.0, dimensions), "scale": jnp.linspace(0.5, 2.0, dimensions)}


def problems_of(model: Model, draws: np.ndarray) -> list[str]:
    """What is wrong with draws of this Gaussian: means and variances more than five standard errors off."""
    effective = effective_sample_size(draws)
    scale, mean = np.asarray(model["scale"], np.float64), np.asarray(model["mean"], np.float64)
    z = (draws - mean) / scale
    off = np.abs(z.mean(axis=(0, 1))) * np.sqrt(effective)
    spread = np.abs((z**2).mean(axis=(0, 1)) - 1.0) * np.sqrt(effective_sample_size(z**2) / 2.0)
    found = [f"mean {k} is {x:.1f} standard errors off" for k, x in enumerate(off) if x > 5]
    return found + [f"variance {k} is {x:.1f} standard errors off" for k, x in enumerate(spread) if x > 5]


def main(chains: int = 100, dimensions: int = 20, warm_up: int = 100, draws: int = 200, plain: int = 2) -> int:
    model = gaussian(dimensions)
    start, first, rest = random.split(random.key(0), 3)
    q = random.normal(start, (chains, dimensions))
    states, steps = jax.jit(sample, static_argnums=(3, 4))(model, rest, q, warm_up, draws)
    found = np.asarray(states, np.float64)
    effective, wrong = effective_sample_size(found), problems_of(model, found)
    print(f"{chains} chains, {draws} draws each, {float(np.mean(steps)):.1f} leapfrog steps a draw")
    print(f"effective sample size of a dimension: {effective.min():,.0f} to {effective.max():,.0f}")
    print("means and variances are right" if not wrong else "\n".join(wrong))
    keys = random.split(first, plain)
    same = check("one draw of some chains", transition, (model, keys, states[-1][:plain], 0.3), tolerance=1e-4)
    return same | int(bool(wrong) or effective.min() < 0.1 * draws * chains)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
