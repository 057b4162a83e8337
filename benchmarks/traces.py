"""What it costs to trace structure: Python that does not compile, run once per example with symbols for numbers.

`python -m benchmarks.traces [--json FILE]`. Each function runs over the same examples with numbers whose operations do
nothing, is traced, and is planned whole: from packed examples to the tables that an executable reads. Processor time,
in rounds that take turns; the figure is planning over doing nothing. Then how often the function runs in a second
epoch, which is never.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from autobatch.call.tracing.structure import Tracing
from autobatch.call.tracing.templates import noted


class Nothing:
    """A number whose operations do nothing; so do functions of JAX on it."""

    __slots__ = ()

    def call(self, name: str, fun: Any, args: Any, kwargs: Any) -> Nothing:
        return self

    def is_symbol(self, value: Any) -> bool:
        return value is self

    def is_users(self, code: Any) -> bool:
        return False


def _nothing(self: Nothing, *args: Any) -> Nothing:
    return self


for _name in ("add", "sub", "mul", "truediv", "matmul"):
    setattr(Nothing, f"__{_name}__", _nothing)
    setattr(Nothing, f"__r{_name}__", _nothing)
for _name in ("neg", "getitem"):
    setattr(Nothing, f"__{_name}__", _nothing)

NOTHING = Nothing()


# ---- functions


def inside(p: Any, xs: list[float]) -> Any:
    """The inside algorithm: a dict by spans."""
    n = len(xs)
    held: dict[tuple[int, int], Any] = {}
    for i in range(n):
        held[i, i + 1] = xs[i] * p["w"]
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            total: Any = 0.0
            for k in range(i + 1, i + width):
                total = total + jnp.tanh(held[i, k] * held[k, i + width])
            held[i, i + width] = total
    return held[0, n]


def tagger(p: Any, words: list[int]) -> Any:
    """An LSTM over rows of a table, each of which is read once."""
    rows: dict[int, Any] = {}
    h = c = p["h"]
    for w in words:
        if w not in rows:
            rows[w] = p["E"][w]
        z = rows[w] @ p["W"] + h @ p["U"]
        c = jax.nn.sigmoid(z[16:32]) * c + jax.nn.sigmoid(z[:16]) * jnp.tanh(z[32:48])
        h = jax.nn.sigmoid(z[48:]) * jnp.tanh(c)
    return h @ p["h"]


def machine(p: Any, example: tuple[list[int], list[float]]) -> Any:
    """A small machine: what its code says decides which operations are done on which numbers."""
    code, numbers = example
    stack: list[Any] = list(numbers)
    named: dict[int, Any] = {}
    for at, op in enumerate(code):
        if op == 0:
            stack.append(stack[at % len(stack)] * p["w"])
        elif op == 1 and len(stack) > 1:
            a, b = stack.pop(), stack.pop()
            stack.append(jnp.tanh(a - b))
        elif op == 2:
            named[at % 3] = stack[-1]
        elif op == 3:
            stack.append(named.get(at % 3, p["b"]))
        else:
            stack.insert(0, stack.pop(len(stack) // 2) * stack[0] if len(stack) > 1 else stack[0])
    return sum(stack)


def examples(name: str, count: int, rng: np.random.Generator) -> list[Any]:
    """Examples of a function."""
    if name == "inside":
        return [rng.normal(size=n).astype(np.float32).tolist() for n in rng.integers(6, 14, size=count)]
    if name == "tagger":
        return [rng.integers(100, size=n).tolist() for n in rng.integers(10, 40, size=count)]
    made = []
    for n in rng.integers(20, 60, size=count):
        made.append((rng.integers(0, 5, size=n).tolist(), rng.normal(size=4).astype(np.float32).tolist()))
    return made


FUNCTIONS: dict[str, Callable[..., Any]] = {"inside": inside, "tagger": tagger, "machine": machine}


def parameters() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"w": (), "b": (), "h": (16,), "E": (100, 16), "W": (16, 64), "U": (16, 64)}
    return {k: jnp.asarray(rng.normal(size=s) / 4, jnp.float32) for k, s in shapes.items()}


def without_numbers(x: Any) -> Any:
    """An example, with nothing in the place of its floats."""
    if isinstance(x, float):
        return NOTHING
    return type(x)(map(without_numbers, x)) if isinstance(x, (list, tuple)) else x


# ---- measuring


@dataclass
class Cost:
    """Milliseconds of processor time for all examples. `runs`: how many of them are traced, as others differ in their
    numbers alone; `steps`: operations that are noted. `ratio`: of planning and of doing nothing. `second_epoch`: how
    many are traced while minibatches of the data set are planned again."""

    function: str
    examples: int
    runs: int
    steps: int
    nothing: float
    tracing: float
    planning: float
    ratio: float
    second_epoch: int


@dataclass
class Watch:
    """What is traced while it is entered."""

    seconds: float = 0.0
    runs: int = 0
    steps: int = 0

    def __enter__(self) -> Watch:
        self.before = before = Tracing.runs

        def watched(tracing: Tracing, *args: Any) -> Any:
            begin = time.process_time()
            made = before(tracing, *args)
            self.seconds += time.process_time() - begin
            self.runs += len(made[0])
            self.steps += sum(len(run.log.sites) for run in made[0] if run is not None)
            return made

        setattr(Tracing, "runs", watched)  # noqa: B010
        return self

    def __exit__(self, *error: object) -> None:
        setattr(Tracing, "runs", self.before)  # noqa: B010


def measure(name: str, count: int, rounds: int) -> Cost:
    function, p = FUNCTIONS[name], parameters()
    f = ab.batched(function, in_axes=(None, 0))
    held = examples(name, count, np.random.default_rng(1))
    f.prepare(f.bound((p, ab.pack(held).plan(f)), {}))  # so that all operations are known
    empty, nothing = without_numbers(held), dict.fromkeys(p, NOTHING)
    idle, traced, planned = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        begin = time.process_time()
        with noted(NOTHING):
            for x in empty:
                function(nothing, x)
        idle.append(time.process_time() - begin)
        bound = f.bound((p, ab.pack(held).plan(f)), {})
        with Watch() as watch:
            begin = time.process_time()
            f.prepare(bound)
            planned.append(time.process_time() - begin)
        traced.append(watch.seconds)
    nothing_, tracing, planning = (1000 * statistics.median(x) for x in (idle, traced, planned))
    again = second_epoch(f, p, ab.pack(held).plan(f))
    return Cost(name, count, watch.runs, watch.steps, nothing_, tracing, planning, planning / nothing_, again)


def second_epoch(f: Any, p: Any, data: Any) -> int:
    """How many examples are traced while the minibatches of a second epoch are planned."""
    rng = np.random.default_rng(2)
    for _ in range(2):
        with Watch() as watch:
            for part in np.array_split(rng.permutation(len(data)), 4):
                f.prepare(f.bound((p, data[part]), {}))
    return watch.runs


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="benchmarks.traces", description=__doc__)
    options.add_argument("--json", type=Path, help="write the report there")
    options.add_argument("--examples", type=int, default=128)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args(arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore", ab.StructureWarning)
    with ab.options(trace=True):
        found = [measure(name, given.examples, given.rounds) for name in FUNCTIONS]
    for c in found:
        print(
            f"{c.function:8} {c.runs:4} of {c.examples} examples traced, {c.steps:6} steps: doing nothing "
            f"{c.nothing:6.2f} ms, tracing {c.tracing:7.2f}, planning {c.planning:7.2f}: {c.ratio:5.1f} of it; in a "
            f"second epoch {c.second_epoch} are traced"
        )
    if given.json:
        given.json.write_text(json.dumps([asdict(cost) for cost in found], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
