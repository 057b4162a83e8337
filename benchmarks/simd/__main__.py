"""Programs for one example against the same kernels by NumPy, numba, `jit(vmap)`, gcc, ispc, Dr.Jit and Warp, on one
core.

`python -m benchmarks.simd [--only mandelbrot,ode] [--peers numpy,ispc] [--ispc FILE] [--interpreter PYTHON]
[--backend NAME] [--size 1.0] [--rounds 7] [--callgrind] [--json FILE]`. `get_ispc.sh` fetches ispc; what is not there
is not measured.
benchmarks/README.md has the method.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autobatch as ab
from benchmarks.simd import callgrind
from benchmarks.simd.kernels import KERNELS, Kernel
from benchmarks.simd.peers import MissingError, Plain, Process, compiled_c, compiled_ispc, process, processor_time

PEERS = ("numpy", "numba", "vmap", "gcc", "ispc", "drjit", "warp")
PROCESSES = ("numba", "drjit", "warp")
TURN = 0.02
"""Seconds that a way runs in each round, at least."""

Seconds = Callable[[int], float]
"""Of a run, where there are so many."""


class Outside:
    """The competitors that are there; `missing` says why others are not."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        self.missing: dict[str, str] = {}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.gcc = self._there("gcc", options, lambda: compiled_c(folder))
        self.ispc = self._there("ispc", options, lambda: compiled_ispc(folder, options.ispc))
        found = {
            n: self._there(n, options, partial(self._process, stack, n, options.interpreter, folder)) for n in PROCESSES
        }
        self.processes: dict[str, Process] = {n: p for n, p in found.items() if p is not None}

    @staticmethod
    def _process(stack: ExitStack, name: str, interpreter: str, folder: Path) -> Process:
        return stack.enter_context(process(name, interpreter, folder))

    def _there(self, name: str, options: argparse.Namespace, make: Callable[[], Any]) -> Any:
        if name not in options.peers:
            return None
        try:
            return make()
        except MissingError as error:
            self.missing[name] = str(error)
            return None


def away(found: Any, wanted: Sequence[np.ndarray], kernel: Kernel) -> float:
    """The share of examples whose results are further from those wanted than the kernel's tolerance."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(found)]
    assert [x.shape for x in leaves] == [x.shape for x in wanted], ([x.shape for x in leaves], kernel.name)
    far = np.zeros(kernel.count, bool)
    for x, y in zip(leaves, wanted, strict=True):
        bad = ~(np.abs(x - y) <= kernel.tolerance * np.maximum(1.0, np.abs(y)))
        far |= bad.reshape(kernel.count, -1).any(axis=1)
    return float(far.mean())


def turned(run: Callable[[], Any]) -> Seconds:
    return partial(processor_time, run)


def ours(kernel: Kernel, backend: str, first: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
    """A call of our program, and its results; `first` gets what the first one took."""
    start, wall = time.process_time(), time.perf_counter()
    if backend == "llvm":
        handle = kernel.function.lower(*kernel.given).compile()
        run: Callable[[], Any] = partial(handle, *kernel.given)
    else:
        jitted = jax.jit(kernel.function) if not kernel.objects or kernel.name == "expressions" else kernel.function
        given = kernel.given if kernel.objects else kernel.arrays()

        def run() -> Any:
            return jax.block_until_ready(jitted(*given))

    found = run()
    first["autobatch"] = {"processor": time.process_time() - start, "wall": time.perf_counter() - wall}
    return run, found


def ways_of(
    kernel: Kernel, outside: Outside, options: argparse.Namespace, report: dict[str, Any]
) -> dict[str, Seconds]:
    """All that can run the kernel, each after a first run whose results were compared."""
    ways: dict[str, Seconds] = {}
    results: dict[str, Any] = {}
    first = report["first_call"]
    try:
        run, results["autobatch"] = ours(kernel, options.backend, first)
        ways["autobatch"] = turned(run)
        for asked in (True, False) if kernel.refills else ():
            with ab.options(refill=asked):
                again, results[f"refill={asked}"] = ours(kernel, options.backend, {})
            ways[f"refill={asked}"] = turned(again)
    except ab.Error as error:
        report["refused"] = str(error)
    if "numpy" in options.peers and kernel.by_numpy is not None:
        results["numpy"] = kernel.by_numpy(*kernel.given)
        ways["numpy"] = turned(partial(kernel.by_numpy, *kernel.given))
    if "vmap" in options.peers and kernel.by_vmap is not None:
        by_vmap, given = kernel.by_vmap, kernel.arrays()
        start = time.process_time()
        results["vmap"] = jax.block_until_ready(by_vmap(*given))
        first["vmap"] = {"processor": time.process_time() - start}
        ways["vmap"] = turned(lambda: jax.block_until_ready(by_vmap(*given)))
    for name, library in (("gcc", outside.gcc), ("ispc", outside.ispc)):
        for function in [kernel.name, *(kernel.also if name == "ispc" else ())] if library else []:
            plain = Plain(library, function, kernel)
            way = name if function == kernel.name else f"{name} {function}"
            results[way] = [x.copy() for x in plain()]
            ways[way] = turned(plain)
    for name, peer in outside.processes.items():
        try:
            taken, results[name] = peer.first(kernel)
        except MissingError:
            continue
        first[name] = {"processor": taken}
        ways[name] = partial(peer.seconds, kernel.name)
    truth = next((w for w in ("gcc", "ispc", "numba") if w in results), None)
    if truth is not None:
        wanted = [np.asarray(x) for x in results[truth]]
        report["away"] = {w: away(x, wanted, kernel) for w, x in results.items() if w != truth}
        report["agrees"] = all(share <= kernel.strays for share in report["away"].values())
    return ways


def interleaved(ways: Mapping[str, Seconds], rounds: int) -> dict[str, Any]:
    """Medians of milliseconds, and of what each way takes over the first one, within a round."""
    repeats = {name: max(1, round(TURN / max(run(1), 1e-6))) for name, run in ways.items()}
    times = [{name: run(repeats[name]) for name, run in ways.items()} for _ in range(rounds)]
    one = next(iter(ways))
    return {
        "milliseconds": {n: 1e3 * statistics.median(t[n] for t in times) for n in ways},
        "times": {n: statistics.median(t[n] / t[one] for t in times) for n in ways if n != one},
    }


def gradient(kernel: Kernel, outside: Outside, options: argparse.Namespace) -> dict[str, Any] | None:
    """What the gradient of the sum of a program's results takes, by us over the program and by others over ours."""
    if kernel.total is None:
        return None
    pulled = ab.grad(ab.batched(kernel.total), argnums=kernel.wrt)
    start = time.process_time()
    found = jax.tree.leaves(pulled(*kernel.given))
    report: dict[str, Any] = {"first_call": {"autobatch": time.process_time() - start}, "away": {}}
    ways = {
        "autobatch": turned(lambda: jax.block_until_ready(pulled(*kernel.given))),
        "primal": turned(lambda: jax.block_until_ready(kernel.function(*kernel.given))),
    }
    for name, peer in outside.processes.items():
        if name == "numba":
            continue
        try:
            report["first_call"][name], theirs = peer.first(kernel, ".gradient")
        except MissingError as why:
            report.setdefault("missing", {})[name] = str(why)
            continue
        size = [np.abs(np.asarray(x)).max() for x in found]
        near = [np.abs(np.asarray(x) - y) <= 1e-2 * s for x, y, s in zip(found, theirs, size, strict=True)]
        report["away"][name] = 1.0 - float(np.mean([n.mean() for n in near]))
        ways[name] = partial(peer.seconds, f"{kernel.name}.gradient")
    return report | interleaved(ways, options.rounds)


def measure(name: str, outside: Outside, options: argparse.Namespace) -> dict[str, Any]:
    kernel = KERNELS[name](options.size)
    report: dict[str, Any] = {"examples": kernel.count, "loops": kernel.loops, "first_call": {}}
    ways = ways_of(kernel, outside, options, report)
    if ways:
        report |= interleaved(ways, options.rounds)
    if "times" in report and "refused" not in report:
        beside = {w: x for w, x in report["times"].items() if w.startswith("ispc")}
        if beside:
            report["times"]["ispc"] = min(beside.values())
        if (found := gradient(kernel, outside, options)) is not None:
            report["gradient"] = found
    return report


def mean(found: Mapping[str, Any], peer: str, only_loops: bool = False) -> float | None:
    """The geometric mean of the factors to a competitor."""
    of = [r["times"][peer] for r in found.values() if "refused" not in r and peer in r.get("times", {})]
    if only_loops:
        of = [r["times"][peer] for r in found.values() if "refused" not in r and r["loops"] and peer in r["times"]]
    return statistics.geometric_mean(of) if of else None


def line(name: str, report: Mapping[str, Any]) -> str:
    if "refused" in report:
        return f"{name:16} refused: {report['refused'].splitlines()[0]}"
    times, taken = report["times"], report["milliseconds"]
    factors = " ".join(f"{times[p]:8.2f}" if p in times else f"{'-':>8}" for p in PEERS)
    agrees = {True: "", False: "  RESULTS DIFFER", None: "  not compared"}[report.get("agrees")]
    return (
        f"{name:16} {taken['autobatch']:9.3f} {factors} {report['first_call']['autobatch']['processor']:9.2f}{agrees}"
    )


def of_gradient(report: Mapping[str, Any]) -> str:
    times, away = report["times"], report["away"]
    others = ", ".join(f"{n} {times[n]:.2f}" + (f" (differs in {away[n]:.0%})" if away[n] > 0.01 else "") for n in away)
    return f"  gradient       {1 / times['primal']:.2f} times as long as the program; {others}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simd", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(KERNELS), help="names of kernels, with commas between them")
    parser.add_argument("--peers", default=",".join(PEERS), help="which competitors")
    parser.add_argument("--ispc", default="ispc", help="the program ispc (get_ispc.sh fetches it)")
    parser.add_argument("--interpreter", default=sys.executable, help="one that has numba, Dr.Jit and Warp")
    parser.add_argument("--backend", default="auto", help="that of autobatch: llvm, or others inside of jax.jit")
    parser.add_argument("--size", type=float, default=1.0, help="how many examples, 1 is a few milliseconds of ispc's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--callgrind", action="store_true", help="count instructions instead, with AVX2")
    parser.add_argument("--json", type=Path, help="write the report there")
    options = parser.parse_args()
    options.only, options.peers = options.only.split(","), options.peers.split(",")
    for given, known in ((options.only, KERNELS), (options.peers, PEERS)):
        if unknown := set(given) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
    return options


def counted(options: argparse.Namespace) -> int:
    """Instructions instead of times."""
    try:
        found = callgrind.main(options)
    except MissingError as error:
        print(f"nothing is counted: {error}")
        return 0
    if options.json:
        options.json.write_text(json.dumps({"instructions": found}, indent=1), encoding="utf-8")
    return 0 if all(r["agrees"] for r in found.values()) else 1


def main() -> int:
    options = arguments()
    if options.callgrind:
        return counted(options)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before there are threads
    ab.keep_memory()  # else each large result is fresh pages, which competitors that write into one array do not pay
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        os.environ["XDG_CACHE_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())  # first calls compile
        outside = Outside(stack, options)
        print(f"{'':16} {'ours, ms':>9} {' '.join(f'{p:>8}' for p in PEERS)}  first, s   (times as long as ours)")
        for name in options.only:
            with ab.options(backend=options.backend):
                found[name] = measure(name, outside, options)
            print(line(name, found[name]), flush=True)
            for way, times in found[name].get("times", {}).items():
                if way.startswith("refill"):
                    print(f"  {way:14} {times:.2f} times as long")
            if "gradient" in found[name]:
                print(of_gradient(found[name]["gradient"]))
    means = {p: mean(found, p, only_loops=p == "vmap") for p in PEERS}
    print(f"{'mean':16} {'':9} " + " ".join(f"{x:8.2f}" if x else f"{'-':>8}" for x in means.values()))
    for peer, why in outside.missing.items():
        print(f"not measured: {peer}, {why}")
    if options.json:
        report = {"kernels": found, "means": means, "missing": outside.missing, "machine": platform.processor()}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if all(r.get("agrees", True) for r in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
