"""Does `backend="auto"` take the faster back end? Each program by XLA, by machine code, and as it is chosen.

`python -m benchmarks.auto [--json FILE] [--rows 64,1024] [--rounds N] [--only NAME]`. The three take turns, on all
cores. `regret` is the time of what was chosen over that of the faster one: 1.0 where the choice is right.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from autobatch.errors import UnsupportedError

STEPS = 8


@dataclass(frozen=True)
class Case:
    """A function for one example, its axes, and its arguments."""

    name: str
    function: Callable[..., Any]
    in_axes: Any
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Found:
    """Microseconds a call (medians), by what was asked for; `taken` is what `auto` took, and `why`."""

    name: str
    rows: int
    xla: float
    llvm: float | None
    auto: float
    taken: str
    why: str

    @property
    def regret(self) -> float:
        return self.auto / min(self.xla, self.llvm or self.xla)


def settled(x: Any) -> Any:
    """A loop that numbers end."""
    turns = 0.0
    while x < 100.0:
        x = x * 1.1 + 0.01
        turns = turns + 1.0
    return turns


def iterated(w: Any, x: Any) -> Any:
    """Products in a loop that numbers end."""
    h = x
    while jnp.sum(h * h) > 0.5:
        h = 0.9 * jnp.tanh(w @ h)
    return h


def decoded(w: Any, words: list[int]) -> Any:
    """A stack which numbers shrink, over a list of integers."""
    stack, k = [w[0]], 0
    while k < len(words) or len(stack) > 1:
        if k == len(words) or (len(stack) > 1 and stack[-1] @ stack[-2] > 0.0):
            right = stack.pop()
            stack.append(jnp.tanh(w @ right + stack.pop() @ w))
        else:
            stack.append(w[words[k]])
            k += 1
    return stack[0]


def tagged(w: Any, words: list[int]) -> Any:
    """Products in a loop that structure ends."""
    h = w[0]
    for k in words:
        h = jnp.tanh(w @ h + w[k])
    return h


def chosen(x: Any) -> Any:
    return jnp.exp(x) * jnp.sin(x) if x > 0 else jnp.sqrt(1.0 + x * x)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(w @ x)


def recurrent(w: Any, x: Any) -> Any:
    h = x
    for _ in range(STEPS):
        h = jnp.tanh(w @ h + x)
    return h


def attention(q: Any, k: Any, x: Any) -> Any:
    return jax.nn.softmax((x @ q) @ (x @ k).T) @ x


def every(x: Any) -> Any:
    return jnp.tanh(x) * x + 1.0


def scaled(x: Any) -> Any:
    return 2.0 * x + 1.0


def total(x: Any) -> Any:
    return jnp.sum(x * x)


def normalised(x: Any) -> Any:
    return jax.nn.softmax(x)


def ordered(x: Any) -> Any:
    return jnp.sort(x)


def cases(rows: int) -> Iterator[Case]:
    numbers = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return jnp.asarray(numbers.standard_normal(shape), jnp.float32)

    yield Case("loop", settled, 0, (1.0 + jnp.abs(array(rows)),))
    yield Case("branch", chosen, 0, (array(rows),))
    for d in (4, 16, 32, 64, 96):
        yield Case(f"layer {d}", layer, (None, 0), (array(d, d), array(rows, d)))
    for d in (4, 16, 32):
        yield Case(f"recurrent {d}", recurrent, (None, 0), (array(d, d), array(rows, d)))
    for d in (16, 32, 64):
        yield Case(f"iterated {d}", iterated, (None, 0), (0.5 * array(d, d) / d**0.5, array(rows, d)))
        lists = [numbers.integers(d, size=n).tolist() for n in numbers.integers(5, 20, size=rows)]
        yield Case(f"decoded {d}", decoded, (None, 0), (array(d, d) / d**0.5, lists))
        yield Case(f"tagged {d}", tagged, (None, 0), (array(d, d) / d**0.5, lists))
    for d in (4, 8, 16):
        yield Case(f"attention {d}", attention, (None, None, 0), (array(d, d), array(d, d), array(rows, d, d)))
    for d in (1, 16, 256, 1024, 4096):
        yield Case(f"tanh {d}", every, 0, (array(rows, d),))
    for d in (1, 256, 4096):
        yield Case(f"scaled {d}", scaled, 0, (array(rows, d),))
    for d in (16, 256, 4096):
        yield Case(f"sum {d}", total, 0, (array(rows, d),))
    for d in (16, 256, 1024):
        yield Case(f"softmax {d}", normalised, 0, (array(rows, d),))
    for d in (8, 64):
        yield Case(f"sort {d}", ordered, 0, (array(rows, d),))


def measure(case: Case, rows: int, rounds: int, seconds: float) -> Found:
    """All three by turns."""
    ways: dict[str, Any] = {}
    for backend in ("xla", "llvm", "auto"):
        made = ab.batched(case.function, in_axes=case.in_axes, backend=backend, options={"trace": False})
        try:
            jax.block_until_ready(made(*case.arguments))
        except UnsupportedError:
            continue
        ways[backend] = made
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < seconds or not count:
                result = way(*case.arguments)
                count += 1
                jax.block_until_ready(result)
            taken[name].append(1e6 * spent / count)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    backend = ways["auto"].explain(*case.arguments).data["backend"]
    held = medians["xla"], medians.get("llvm"), medians["auto"]
    return Found(case.name, rows, *held, backend["taken"], backend["why"])


def table(found: Sequence[Found]) -> str:
    lines = [f"{'':16}{'rows':>6}{'xla us':>10}{'llvm us':>10}{'auto us':>10}  {'taken':6}{'regret':>7}"]
    for f in found:
        llvm = f"{f.llvm:>10.0f}" if f.llvm is not None else f"{'-':>10}"
        lines.append(f"{f.name:16}{f.rows:>6}{f.xla:>10.0f}{llvm}{f.auto:>10.0f}  {f.taken:6}{f.regret:>7.2f}")
    mean = statistics.geometric_mean([f.xla / f.auto for f in found])
    worst = max(found, key=lambda f: f.regret)
    regret = statistics.geometric_mean([f.regret for f in found])
    lines.append(
        f"xla over auto {mean:.2f}; regret {regret:.2f} on average, {worst.regret:.2f} at worst ({worst.name})"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auto", description=__doc__)
    parser.add_argument("--rows", default="64,1024", help="numbers of examples")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each way in each round")
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--json", type=Path, help="a file for the report")
    options = parser.parse_args(arguments)
    found = [
        measure(case, rows, options.rounds, options.seconds)
        for rows in map(int, options.rows.split(","))
        for case in cases(rows)
        if options.only in case.name
    ]
    print(table(found))
    if options.json:
        machine = {"cores": os.cpu_count(), "jax": jax.__version__}
        report = {"machine": machine, "cases": [{**asdict(f), "regret": f.regret} for f in found]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
