"""Data-dependent control, beside `jax.vmap` of `lax.while_loop` and `lax.cond`, on one machine.

`python -m benchmarks.masks [--json FILE] [--rows N] [--rounds N]`. Both compute the same from the same arrays, and are
checked against each other. They take turns; a factor is the ratio of the medians of processor time, vmap's over ours.
The cases and what is wanted are in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab

TURNS, WIDTH = 100, 32
"""Turns of a loop on average; numbers in the state of a small network."""


@dataclass(frozen=True)
class Case:
    """`ours` and `vmapped` take (parameters, numbers[rows], first states[rows, ...]), and return arrays of rows."""

    name: str
    wanted: float
    ours: Callable[..., Any]
    vmapped: Callable[..., Any]
    arguments: tuple[Any, ...]


def orbit(p: Any, n: Any, x: Any) -> Any:
    """A few operations on one number in each turn; `p` is 1.0, so the turns are `n`."""
    k = 0 * p
    while k < n:
        x = jnp.sin(x) * p + 0.1 * x * x
        k = k + p
    return x


def orbit_by_jax(p: Any, n: Any, x: Any) -> Any:
    def turn(state: Any) -> Any:
        k, x = state
        return k + p, jnp.sin(x) * p + 0.1 * x * x

    return jax.lax.while_loop(lambda state: state[0] < n, turn, (0 * p, x))[1]


def network(w: Any, n: Any, h: Any) -> Any:
    """A matrix product in each turn."""
    k = 0 * w[0, 0]
    while k < n:
        h = jnp.tanh(h @ w)
        k = k + 1
    return h


def network_by_jax(w: Any, n: Any, h: Any) -> Any:
    return jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.tanh(s[1] @ w)), (0 * w[0, 0], h))[1]


def rare(w: Any, n: Any, h: Any) -> Any:
    """An arm of ten matrix products, which the rows take whose number is large."""
    if n * jnp.sum(w[0] * w[0]) / jnp.sum(w[0] * w[0]) > 0.5:
        for _ in range(10):
            h = jnp.tanh(h @ w)
    return h


def rare_by_jax(w: Any, n: Any, h: Any) -> Any:
    def arm(h: Any) -> Any:
        for _ in range(10):
            h = jnp.tanh(h @ w)
        return h

    return jax.lax.cond(n > 0.5, arm, lambda h: h, h)


def derivative(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.grad(lambda p, n, x: jnp.sum(function(p, n, x))))


def bounded(turns: int) -> Callable[..., Any]:
    """`orbit` as JAX can differentiate it in reverse: as many turns for all as the longest has."""

    def each(p: Any, n: Any, x: Any) -> Any:
        def turn(x: Any, k: Any) -> Any:
            return jnp.where(k < n, jnp.sin(x) * p + 0.1 * x * x, x), None

        return jax.lax.scan(turn, x, jnp.arange(turns))[0]

    return jax.vmap(each, in_axes=(None, 0, 0))


def cases(rows: int) -> list[Case]:
    rng = np.random.default_rng(0)
    uneven = jnp.asarray(np.ceil(rng.exponential(TURNS, rows)), jnp.float32)
    even = jnp.full(rows, float(TURNS), jnp.float32)
    few = jnp.asarray(np.arange(rows) % 100 == 7, jnp.float32)
    one, x = jnp.float32(1), jnp.asarray(rng.normal(size=rows), jnp.float32)
    w = jnp.asarray(rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH), jnp.float32)
    h = jnp.asarray(rng.normal(size=(rows, WIDTH)), jnp.float32)

    def pair(mine: Callable[..., Any], by_jax: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        batched = ab.batched(mine, in_axes=(None, 0, 0))
        return jax.jit(lambda p, n, x: batched(p, n, x)), jax.jit(jax.vmap(by_jax, in_axes=(None, 0, 0)))

    numbers, matrices, arms = pair(orbit, orbit_by_jax), pair(network, network_by_jax), pair(rare, rare_by_jax)
    longest = int(np.max(np.asarray(uneven)))
    gradients = derivative(numbers[0]), derivative(bounded(longest))
    return [
        Case("uneven loop, numbers", 2.0, *numbers, (one, uneven, x)),
        Case("uneven loop, products", 2.0, *matrices, (w, uneven, h)),
        Case("even loop, numbers", 1.0, *numbers, (one, even, x)),
        Case("even loop, products", 1.0, *matrices, (w, even, h)),
        Case("costly arm of 1 %", 3.0, *arms, (w, few, h)),
        Case("gradient, uneven loop", 0.0, *gradients, (one, uneven, x)),
    ]


@dataclass
class Found:
    """Seconds of processor time of a call, and the factor of the medians, which is `wanted` at least (0: no figure)."""

    name: str
    seconds: float
    seconds_of_vmap: float
    factor: float
    wanted: float


def measure(case: Case, rounds: int, seconds: float) -> Found:
    """Both in turn, for so long in each round. A difference of results is an error."""
    ways = (case.ours, case.vmapped)
    results = [way(*case.arguments) for way in ways]
    np.testing.assert_allclose(results[0], results[1], rtol=2e-3, atol=1e-3, err_msg=case.name)
    taken: list[list[float]] = [[], []]
    for _ in range(rounds):
        for way, times in zip(ways, taken, strict=True):
            begin, count = time.process_time(), 0
            while (spent := time.process_time() - begin) < seconds or not count:
                jax.block_until_ready(way(*case.arguments))
                count += 1
            times.append(spent / count)
    mine, theirs = map(statistics.median, taken)
    return Found(case.name, mine, theirs, theirs / mine, case.wanted)


def table(found: Sequence[Found]) -> str:
    lines = [f"{'':26}{'autobatch':>12}{'vmap':>12}{'factor':>9}{'wanted':>9}"]
    for f in found:
        wanted = f"{f.wanted:.1f}" if f.wanted else "-"
        times = f"{1e3 * f.seconds:>9.2f} ms{1e3 * f.seconds_of_vmap:>9.2f} ms"
        lines.append(f"{f.name:26}{times}{f.factor:>9.2f}{wanted:>9}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.masks", description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each way in each round")
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--json", type=Path, help="a file for the report")
    options = parser.parse_args(arguments)
    found = [measure(c, options.rounds, options.seconds) for c in cases(options.rows) if options.only in c.name]
    print(table(found))
    if options.json:
        machine = {"processor": platform.processor(), "cores": os.cpu_count(), "jax": jax.__version__}
        report = {"rows": options.rows, "machine": machine, "cases": [asdict(f) for f in found]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
