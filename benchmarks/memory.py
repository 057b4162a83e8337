"""Memory that a function makes under data-dependent control flow, beside the same by hand in JAX, and by Python.

`python -m benchmarks.memory [--json FILE] [--lanes N] [--rounds N] [--only NAME]`. A stack on which lanes push and pop,
and dicts of 16, 64 and 256 keys. By hand it is `jax.vmap` of a `lax.while_loop` over a buffer, a length and a mask; a
dict is two buffers, whose keys are compared all at once. Results are checked against each other, and for some lanes
against Python. They take turns; a factor is the ratio of the medians of processor time, ours over that by hand.
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

ROOM, KEYS, LANES_OF_PYTHON = 32, (16, 64, 256), 20


def stack(w: Any, x: Any) -> Any:
    """Push, or replace the two on top by one."""
    held, y = [w], w * x
    while y < 8.0:
        y = y * 1.05 + 0.05
        if len(held) < 3 or y * y - jnp.floor(y * y) < 0.6:
            held.append(y)
        else:
            held.append(held.pop() * 0.5 + held.pop())
    return held[-1] + len(held)


def stack_by_hand(w: Any, x: Any) -> Any:
    def turn(state: Any) -> Any:
        y, buffer, n = state
        y = y * 1.05 + 0.05
        push = (n < 3) | (y * y - jnp.floor(y * y) < 0.6)
        top, second = (jax.lax.dynamic_index_in_dim(buffer, n - k, 0, False) for k in (1, 2))
        value, place = jnp.where(push, y, top * 0.5 + second), jnp.where(push, n, n - 2)
        return y, jax.lax.dynamic_update_index_in_dim(buffer, value, place, 0), place + 1

    start = (w * x, jnp.zeros(ROOM).at[0].set(w), 1)
    _, buffer, n = jax.lax.while_loop(lambda state: state[0] < 8.0, turn, start)
    return buffer[n - 1] + n


def table(keys: int) -> Callable[..., Any]:
    """Sums by key, twice as many turns as keys."""

    def sums(w: Any, x: Any) -> Any:
        found: dict[int, Any] = {}
        y, k = w * x, 0
        while y < 4.0 * keys:
            y, k = y + 2.0, k + 1
            key = (7 * k) % keys
            found[key] = found.get(key, 0.0) + y
        return sum(found.values()) + len(found) + found.get(1, 0.0)

    return sums


def table_by_hand(keys: int, room: int) -> Callable[..., Any]:
    def turn(state: Any) -> Any:
        y, k, held, sums, n = state
        y, k = y + 2.0, k + 1
        key = (7 * k) % keys
        hits = (held == key) & (jnp.arange(room) < n)
        place = jnp.where(jnp.any(hits), jnp.argmax(hits), n)
        old = jnp.where(place < n, sums[place], 0.0)
        return y, k, held.at[place].set(key), sums.at[place].set(old + y), jnp.maximum(n, place + 1)

    def sums(w: Any, x: Any) -> Any:
        start = (w * x, 0, jnp.zeros(room, jnp.int32), jnp.zeros(room), 0)
        _, _, held, found, n = jax.lax.while_loop(lambda state: state[0] < 4.0 * keys, turn, start)
        one = (held == 1) & (jnp.arange(room) < n)
        return jnp.sum(found) + n + jnp.sum(jnp.where(one, found, 0.0))

    return sums


@dataclass(frozen=True)
class Case:
    """`function` and `by_hand` take a number and those of all lanes; `room`: how many elements there is room for."""

    name: str
    function: Callable[..., Any]
    by_hand: Callable[..., Any]
    room: int
    wanted: float


def cases() -> list[Case]:
    dicts = [(keys, max(ROOM, keys)) for keys in KEYS]
    return [
        Case("stack", stack, stack_by_hand, ROOM, 2.0),
        *(Case(f"dict of {keys}", table(keys), table_by_hand(keys, room), room, 0.0) for keys, room in dicts),
    ]


@dataclass
class Found:
    """Seconds of processor time of a call; a factor is ours over that by hand, `wanted` at most (0: no figure)."""

    name: str
    llvm: float
    xla: float
    by_hand: float
    python: float
    factor_of_llvm: float
    factor_of_xla: float
    wanted: float


def measure(case: Case, lanes: int, rounds: int) -> Found:
    """All in turn. A difference of results is an error."""
    w, x = jnp.float32(1), np.random.default_rng(0).uniform(0.1, 7.9, lanes).astype(np.float32)
    ways: dict[str, Callable[..., Any]] = {"by_hand": jax.jit(jax.vmap(case.by_hand, in_axes=(None, 0)))}
    for backend in ("llvm", "xla"):
        room = ab.options(list_capacity=case.room, backend=backend)
        ways[backend] = ab.batched(case.function, in_axes=(None, 0), options=room)
    results = {name: np.asarray(way(w, x)) for name, way in ways.items()}
    for name in ("llvm", "xla"):
        np.testing.assert_allclose(results[name], results["by_hand"], rtol=1e-4, err_msg=f"{case.name} by {name}")
    some = x[:LANES_OF_PYTHON]
    begin = time.process_time()
    plain = [case.function(1.0, float(one)) for one in some]
    python = (time.process_time() - begin) * lanes / len(some)
    np.testing.assert_allclose(results["by_hand"][: len(some)], np.asarray(plain), rtol=1e-3, err_msg=case.name)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            jax.block_until_ready(way(w, x))
            taken[name].append(time.process_time() - begin)
    found = {name: statistics.median(times) for name, times in taken.items()}
    llvm, xla, by_hand = found["llvm"], found["xla"], found["by_hand"]
    return Found(case.name, llvm, xla, by_hand, python, llvm / by_hand, xla / by_hand, case.wanted)


def shown(found: Sequence[Found]) -> str:
    lines = [f"{'':14}{'llvm ms':>10}{'xla ms':>10}{'by hand':>10}{'Python':>10}{'llvm':>8}{'xla':>8}{'wanted':>9}"]
    for f in found:
        times = "".join(f"{1e3 * seconds:>10.2f}" for seconds in (f.llvm, f.xla, f.by_hand, f.python))
        wanted = f"{f.wanted:.1f}" if f.wanted else "-"
        lines.append(f"{f.name:14}{times}{f.factor_of_llvm:>8.2f}{f.factor_of_xla:>8.2f}{wanted:>9}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--lanes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--json", type=Path, help="a file for the report")
    options = parser.parse_args(arguments)
    found = [measure(c, options.lanes, options.rounds) for c in cases() if options.only in c.name]
    print(shown(found))
    if options.json:
        machine = {"processor": platform.processor(), "cores": os.cpu_count(), "jax": jax.__version__}
        report = {"lanes": options.lanes, "machine": machine, "cases": [asdict(f) for f in found]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
