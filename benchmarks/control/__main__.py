"""Data-dependent branches, loops and recursion, against JAX's own transforms.

`python -m benchmarks.control [--json FILE] [--rounds N] [--only branch,loop,ode,nuts]`. benchmarks/README.md has the
method.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from autobatch.backends.xla import stack
from benchmarks.control import by_hand
from examples.control import mandelbrot, nuts, ode

Run = Callable[[], Any]
ALONE = "machine code"
"""Rows one after another, by machine code."""
SCHEDULES = (stack.EARLIEST, stack.FREE)
"""Of blocks over all rows, by XLA."""
RUN = stack.run


def seconds(run: Run) -> float:
    """Processor time of a run, of all its threads."""
    start = time.process_time()
    jax.block_until_ready(run())
    return time.process_time() - start


def interleaved(ways: Mapping[str, Run], rounds: int) -> dict[str, Any]:
    """Medians of milliseconds, and of what each way takes over the first, within a round."""
    for run in ways.values():
        seconds(run)
    times = [{name: seconds(run) for name, run in ways.items()} for _ in range(rounds)]
    first = next(iter(ways))
    return {
        "milliseconds": {n: 1e3 * statistics.median(t[n] for t in times) for n in ways},
        "times": {n: statistics.median(t[n] / t[first] for t in times) for n in ways if n != first},
    }


@ab.batched(in_axes=(None, 0))
def branch(p: Any, x: Any) -> Any:
    if x[0] > 0:
        x = by_hand.costly(p, x)
    return x.sum()


def measure_branch(rounds: int, count: int = 2000, width: int = 128) -> dict[str, Any]:
    """A network of three layers that 1 % of the examples run, in neighbouring places and spread over the batch."""
    rng = np.random.default_rng(0)
    p = [jnp.asarray(rng.normal(0, width**-0.5, (width, width)), jnp.float32) for _ in range(3)]
    found: dict[str, Any] = {}
    for name, places in (("spread", rng.permutation(count)), ("none", [])):
        x = rng.normal(size=(count, width)).astype(np.float32)
        x[:, 0] = -1.0
        x[places[: count // 100], 0] = 1.0
        data = jnp.asarray(x)
        ours = jax.jit(branch)
        apart = np.max(np.abs(np.asarray(ours(p, data)) - np.asarray(by_hand.branch(p, data))))
        ways = {
            "autobatch": partial(ours, p, data),
            "vmap of cond": partial(by_hand.branch, p, data),
            "both arms and where": partial(by_hand.both_arms, p, data),
        }
        found[name] = {**interleaved(ways, rounds), "differ_by": float(apart)}
    return found


def measure_loop(rounds: int, width: int = 600) -> dict[str, Any]:
    """The picture of `examples/control/mandelbrot.py`."""
    points = [jnp.asarray(x) for x in mandelbrot.plane(width, width // 3)]
    ours = jax.jit(mandelbrot.escape)
    ways = {"autobatch": partial(ours, *points), "vmap of while_loop": partial(by_hand.escape, *points)}
    other = int(np.sum(np.asarray(ours(*points)) != np.asarray(by_hand.escape(*points))))
    return {**interleaved(ways, rounds), "points": len(points[0]), "points_that_differ": other}


def measure_ode(rounds: int, count: int = 1000, most: int = 64) -> dict[str, Any]:
    """The gradient of `examples/control/ode.py` by rates and starts. Equinox is told how many turns there are at most:
    64, and 1024 as one that does not know them writes."""
    rates, starts = map(jnp.asarray, ode.problems(count))
    seen = jnp.ones_like(starts)
    ours = jax.jit(lambda *args: ab.grad(ode.distance, argnums=(0, 1))(*args))
    ways: dict[str, Run] = {"autobatch": partial(ours, rates, starts, seen)}
    for turns in (most, 16 * most):
        gradient = jax.jit(jax.grad(partial(by_hand.distances, most=turns), argnums=(0, 1)))
        ways[f"equinox, max_steps={turns}"] = partial(gradient, rates, starts, seen)
    found = {name: run() for name, run in ways.items()}
    scale = max(float(jnp.abs(g).max()) for g in found["autobatch"])
    apart = max(float(jnp.abs(a - b).max()) for f in found.values() for a, b in zip(f, found["autobatch"], strict=True))
    steps = np.asarray(ode.solve(rates, starts)[1])
    return {**interleaved(ways, rounds), "differ_by": apart / scale, "steps": [int(steps.min()), int(steps.max())]}


@contextmanager
def counted(found: list[np.ndarray], leaves: list[int]) -> Iterator[None]:
    """Have programs that are compiled here say how often each block ran; `leaves` gets those with a leapfrog step."""

    def counting(op: Any, xs: Any, varying: Any, rows: int, live: Any = None) -> Any:
        results, ran = RUN(op, xs, varying, rows, live)
        line = nuts.leapfrog.__code__.co_firstlineno
        leaves[:] = [
            k
            for k, b in enumerate(op["program"].blocks)
            if any(line <= i.span.line <= line + 5 and i.span.file.endswith("nuts.py") for i in b.body)
        ]
        jax.debug.callback(lambda ran: found.append(np.asarray(ran)), ran)
        return results, ran

    with mock.patch.object(stack, "run", counting):
        yield


@contextmanager
def tensorflow_probability(interpreter: str, *model: Any) -> Iterator[Callable[[], tuple[float, int]]]:
    """A function that has `tfp_nuts.py` take all draws once: processor time and leapfrog steps."""
    command = [interpreter, str(Path(__file__).with_name("competitors") / "tfp_nuts.py"), *map(str, model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, answered = process.stdin, process.stdout
        assert asked is not None and answered is not None

        def run() -> tuple[float, int]:
            print(file=asked, flush=True)
            found = json.loads(answered.readline())
            return found["seconds"], found["steps"]

        yield run
        asked.close()


def measure_nuts(
    rounds: int, tfp: str | None = None, chains: int = 100, dimensions: int = 100, draws: int = 20
) -> dict[str, Any]:
    """A Gaussian, one step size. Draws of the two differ, as their random numbers do: times are those of a leapfrog
    step of all chains."""
    model, step = nuts.gaussian(dimensions), 0.3
    keys = jax.random.split(jax.random.key(0), (draws, chains))
    q = model["mean"] + model["scale"] * jax.random.normal(jax.random.key(1), (chains, dimensions))

    def ours(schedule: str, depth: int) -> Any:
        def draw(q: Any, key: Any) -> Any:
            q, _, steps = nuts.transition(model, key, q, step)
            return q, (q, steps)

        # each program has a depth of its own: the key of a program does not hold what is patched
        loops = "native" if schedule == ALONE else "xla"
        with mock.patch.object(RUN, "__defaults__", (None, schedule)), ab.options(max_depth=depth, loops=loops):
            return jax.jit(lambda: jax.lax.scan(draw, q, keys)[1]).lower().compile()

    own = [jax.random.key(n) for n in range(chains)]
    single = jax.jit(partial(by_hand.chain, draws=draws))
    every = jax.jit(jax.vmap(partial(by_hand.chain, draws=draws), (None, 0, 0, None)))
    ways: dict[str, Run] = {f"autobatch, {s}": ours(s, 10_000 + k) for k, s in enumerate((ALONE, *SCHEDULES))}
    ways["a loop over jitted chains"] = lambda: [single(model, k, x, step) for k, x in zip(own, q, strict=True)]
    ways["vmap of chains"] = lambda: every(model, jnp.stack(own), q, step)

    def steps_of(result: Any) -> float:
        return float(sum(np.sum(x[1]) for x in result) if isinstance(result, list) else np.sum(result[1]))

    results = {name: run() for name, run in ways.items()}
    steps = {name: steps_of(result) for name, result in results.items()}
    for run in ways.values():
        seconds(run)
    with tensorflow_probability(tfp, chains, dimensions, step, draws) if tfp else nullcontext() as other:
        times = []
        if other is not None:
            other()
        for _ in range(rounds):
            times.append({n: seconds(run) * chains / steps[n] for n, run in ways.items()})
            if other is not None:
                took, taken = other()
                times[-1]["TensorFlow Probability"] = took * chains / taken
    first = next(iter(ways))
    ran: list[np.ndarray] = []
    leaves: list[int] = []
    shares = {ALONE: 1.0}  # a row is computed by vectors of its own numbers, and nobody waits for it
    for k, schedule in enumerate(SCHEDULES):
        ran.clear()
        with counted(ran, leaves):
            jax.block_until_ready(ours(schedule, 20_000 + k)())
            jax.effects_barrier()
        shares[schedule] = steps[f"autobatch, {schedule}"] / (chains * float(np.sum(np.sum(ran, axis=0)[leaves])))
    return {
        "microseconds_of_a_step_of_all": {n: 1e6 * statistics.median(t[n] for t in times) for n in times[0]},
        "times": {n: statistics.median(t[n] / t[first] for t in times) for n in times[0] if n != first},
        "share_of_lane_slots_with_a_useful_gradient": shares,
        "steps_a_draw": {n: s / chains / draws for n, s in steps.items()},
        "variance_over_the_true_one": {
            n: float(np.mean(np.var(_states(r), axis=0) / np.asarray(model["scale"]) ** 2)) for n, r in results.items()
        },
    }


def _states(result: Any) -> np.ndarray:
    found = [np.asarray(x[0]) for x in result] if isinstance(result, list) else [np.asarray(result[0])]
    return np.concatenate([x.reshape(-1, x.shape[-1]) for x in found])


MEASURED: dict[str, Callable[..., dict[str, Any]]] = {
    "branch": measure_branch,
    "loop": measure_loop,
    "ode": measure_ode,
    "nuts": measure_nuts,
}


def show(report: dict[str, Any], indent: str = "") -> None:
    for name, value in report.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            show(value, indent + "    ")
        else:
            print(f"{indent}{name:<34} {f'{value:,.4g}' if isinstance(value, float) else value}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tfp", help="an interpreter that has TensorFlow Probability (`tfp_nuts.py`), for nuts")
    parser.add_argument("--only", default=",".join(MEASURED), help="parts, with commas between them")
    given = parser.parse_args(arguments)
    report: dict[str, Any] = {
        "machine": {"processor": platform.processor() or platform.machine(), "load": os.getloadavg()[0]}
    }
    for name in given.only.split(","):
        if name not in MEASURED:
            raise SystemExit(f"there is no part {name!r}: {', '.join(MEASURED)}")
        more = {"tfp": given.tfp} if name == "nuts" else {}
        report[name] = MEASURED[name](given.rounds, **more)
        show({name: report[name]})
    if given.json:
        given.json.write_text(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
