"""What an operation of a derivative costs besides its arithmetic: an LSTM by autobatch, over batches of growing size.

`python -m benchmarks.overhead [--calls] [--json FILE]`. The time of a batch is a line over its size. What it has at
size zero does not grow with the examples: planning, starting, turning loops. That, over the operations that one example
runs, is the figure. Then what a call of 16 small examples costs (`--calls`: that alone). The method is in
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

import autobatch as ab
from autobatch.backends.llvm.machine_code import wait_for_optimised
from benchmarks import small_calls
from benchmarks.compare import alone

WORDS = 100


@dataclass
class Sentence:
    words: list[int]


@ab.batched(in_axes=(None, 0))
def loss(p: dict[str, Any], s: Sentence) -> Any:
    """An LSTM over the words, from zeros; the loss is a product with its last state."""
    h = c = jnp.zeros(p["state"].shape[0])
    for word in s.words:
        i, f, g, o = jnp.split(p["emb"][word] @ p["input"] + h @ p["state"] + p["bias"], 4)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
    return h @ p["out"]


def parameters(hidden: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> jax.Array:
        return jnp.asarray(rng.uniform(-1, 1, size=shape) / np.sqrt(shape[0]), jnp.float32)

    return {"emb": matrix(WORDS, hidden), "input": matrix(hidden, 4 * hidden), "state": matrix(hidden, 4 * hidden),
            "bias": matrix(4 * hidden), "out": matrix(hidden)}  # fmt: skip


def sentences(count: int, steps: int) -> list[Sentence]:
    rng = np.random.default_rng(1)
    return [Sentence(rng.integers(WORDS, size=steps).tolist()) for _ in range(count)]


def operations_of_a_turn(text: str) -> int:
    """How many leaf operations the loop over words has: instructions of the IR for one example that result in floats.

    What computes an index or reads structure is not counted; nor does the derivative count, whatever it has more.
    """
    lines = text.splitlines()
    begin = next(k for k, line in enumerate(lines) if " = for " in line)
    end = next(k for k in range(begin, len(lines)) if lines[k].lstrip().startswith("yield"))
    return sum(": float32[" in line.partition(" = ")[0] for line in lines[begin + 1 : end])


@dataclass
class Overhead:
    """Seconds are of a call of `ab.value_and_grad`, with cutting and planning the batch. `fixed` and `of_an_example`
    are the line through them, which is off by `largest_error` of a time at most. An operation of the derivative is one
    of a turn, forward or backward; `microseconds_for_each_forward` counts them forward alone."""

    hidden: int
    steps: int
    operations_of_a_turn: int
    seconds: dict[int, float]
    fixed_seconds: float
    seconds_of_an_example: float
    largest_error: float
    microseconds_for_each: float
    microseconds_for_each_forward: float


def measure(hidden: int, steps: int, sizes: Sequence[int], rounds: int, seconds: float) -> Overhead:
    """Sizes take turns in each round, so that a machine that slows down slows all alike."""
    p, held = parameters(hidden), sentences(max(sizes), steps)
    data = ab.pack(held).plan(loss)
    derivative = ab.value_and_grad(loss, sparse=True)

    def call(size: int) -> None:
        jax.block_until_ready(derivative(p, data[np.arange(size)]))

    for size in sizes:
        call(size)
        call(size)
    wait_for_optimised()
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            begin, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < seconds or not count:
                call(size)
                count += 1
            taken[size].append(spent / count)
    medians = {size: statistics.median(times) for size, times in taken.items()}
    slope, fixed, error = line_through(list(medians), list(medians.values()))
    operations = operations_of_a_turn(loss.lower(p, data[:1]).as_text("example"))
    each = 1e6 * fixed / (operations * steps)
    return Overhead(hidden, steps, operations, medians, fixed, slope, error, each / 2, each)


def line_through(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """(slope, value at zero, largest relative error) of the line with the least squares of relative errors.

    What disturbs a measurement is proportional to it: unweighted, the largest batches would decide the value at zero.
    """
    times = np.asarray(y)
    slope, fixed = np.polyfit(x, times, 1, w=1 / times)
    return float(slope), float(fixed), float(np.max(np.abs(slope * np.asarray(x) + fixed - times) / times))


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="benchmarks.overhead", description=__doc__)
    options.add_argument("--json", type=Path, help="write the report there")
    options.add_argument("--hidden", type=int, default=128)
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--sizes", default="1,2,4,8,16,24,32,48,64")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=0.2, help="how long a size runs in each round")
    options.add_argument("--calls", action="store_true", help="what small calls cost, and nothing else")
    given = options.parse_args(arguments)
    os.environ.update(alone(threads=1))  # before XLA reads its flags, which it does when it first computes
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if given.calls:
        calls = small_calls.measure(given.rounds, given.seconds)
        print(*small_calls.lines(calls), sep="\n")
        if given.json:
            given.json.write_text(json.dumps({"calls": calls}, indent=2))
        return 0
    found = measure(given.hidden, given.steps, [int(b) for b in given.sizes.split(",")], given.rounds, given.seconds)
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version(),
               "jax": jax.__version__}  # fmt: skip
    for size, spent in found.seconds.items():
        print(f"{size:>4} examples {1e3 * spent:>10.2f} ms")
    print(f"a call costs {1e3 * found.fixed_seconds:.2f} ms and {1e3 * found.seconds_of_an_example:.3f} ms an example "
          f"(the line is off by {100 * found.largest_error:.0f} % of a time at most)")  # fmt: skip
    print(f"{found.operations_of_a_turn} operations in each of {found.steps} turns, forward and backward: "
          f"{found.microseconds_for_each:.2f} microseconds for each ({found.microseconds_for_each_forward:.2f} where "
          "those of the forward pass alone are counted)")  # fmt: skip
    calls = small_calls.measure(given.rounds, given.seconds)
    print(f"a call of {small_calls.EXAMPLES} examples of two numbers:", *small_calls.lines(calls), sep="\n")
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, **asdict(found), "calls": calls}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
