"""Mandelbrot and an adaptive ODE: our kernels beside CUDA C++ by hand (`competitors/kernels.cu`), compiled by nvcc -O3.

    python -m benchmarks.cuda                    times on the GPU that is here, interleaved; medians of ratios
    python -m benchmarks.cuda --static           instructions of a turn of the innermost loop; no GPU is needed

Both need nvcc. `--static` needs NVIDIA's nvdisasm as well (`pip install nvidia-cuda-nvdisasm`; `--nvdisasm PATH`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autobatch.api.batched import Batched
from autobatch.backends.cuda.device import LEGACY, Device, DeviceArray, Place, current_device, made
from autobatch.backends.cuda.program import BLOCK, CudaProgram
from autobatch.backends.llvm.program import words_dtype, words_shape
from autobatch.errors import DeviceError
from benchmarks.cuda import sass
from examples.control import mandelbrot, ode

SOURCE = Path(__file__).parent / "competitors" / "kernels.cu"
STATIC = ("sm_80", "sm_90", "sm_100")


@dataclass(frozen=True)
class Program:
    """A function with its examples. `results`: which of those of our kernel the one by hand writes."""

    name: str
    function: Batched[..., Any]
    given: Sequence[np.ndarray[Any, Any]]
    results: int

    @property
    def kernel(self) -> CudaProgram:
        found = self.function.with_settings(backend="cuda").lower(*[x[:1] for x in self.given])
        native = found.program.compiled.native  # type: ignore[union-attr]
        assert isinstance(native, CudaProgram)
        return native


def programs(size: float) -> list[Program]:
    width = int(6000 * size**0.5)
    return [
        Program("mandelbrot", mandelbrot.escape, mandelbrot.plane(width, width // 3), 1),
        Program("ode", ode.solve, ode.problems(int(2_000_000 * size)), 2),
    ]


# ---- without a GPU


def static(nvdisasm: str) -> list[dict[str, Any]]:
    rows = []
    for program in programs(1e-4):
        for architecture in STATIC:
            ours = sass.innermost(sass.assembled(program.kernel.ptx(architecture), architecture), "run", nvdisasm)
            hand = sass.innermost(sass.compiled(SOURCE, architecture), program.name, nvdisasm)
            rows.append({"program": program.name, "architecture": architecture, "ours": vars(ours), "nvcc": vars(hand)})
            print(
                f"{program.name:<12} {architecture:<7} a turn: ours {ours.instructions:>4} instructions "
                f"({ours.doubles} on doubles), nvcc {hand.instructions:>4} ({hand.doubles}): "
                f"{ours.instructions / hand.instructions:.2f}"
            )
    return rows


# ---- on a GPU


def there(on: Device, x: np.ndarray[Any, Any]) -> DeviceArray:
    found = made(on, x.shape, x.dtype, LEGACY)
    with on.current():
        on.driver("cuMemcpyHtoDAsync_v2", Place(found.view.place), x.ctypes.data, x.nbytes, LEGACY)
    return found


def measured(program: Program, on: Device, rounds: int) -> dict[str, Any]:
    """Seconds of one launch of each, in turns, and of a call of the function with arrays that are there."""
    native, count = program.kernel, len(program.given[0])
    given = [there(on, x) for x in program.given]
    out = [made(on, (count, *words_shape(r)), words_dtype(r), LEGACY) for r in native.results]
    hand_out = [made(on, x.shape, x.dtype, LEGACY) for x in out[: program.results]]
    notes = on.allocate(16, LEGACY)
    ours = on.function(native.ptx(on.architecture.name), "run")
    capability = "sm_{}{}".format(*on.capability)
    hand = on.function(sass.compiled(SOURCE, capability), program.name)
    blocks = -(-count // BLOCK)
    places = [x.view.place for x in given]
    tail = [0, 0, 0, notes.place, 0, count]

    def by_us() -> None:
        on.launch(ours, blocks, BLOCK, LEGACY, [*places, *(x.view.place for x in out), *tail])

    def by_hand() -> None:
        on.launch(hand, blocks, BLOCK, LEGACY, [*places, *(x.view.place for x in hand_out), count])

    function = program.function.with_settings(backend="cuda")
    with on.current():
        timed = in_turns(on, [by_us, by_hand, lambda: function(*given)], rounds)
    agree(program.name, out, hand_out)
    ratios = [a / b for a, b in zip(timed[0], timed[1], strict=True)]
    row = {
        "program": program.name,
        "gpu": on.name,
        "examples": count,
        "ours_ms": 1e3 * statistics.median(timed[0]),
        "nvcc_ms": 1e3 * statistics.median(timed[1]),
        "call_ms": 1e3 * statistics.median(timed[2]),
        "ratio": statistics.median(ratios),
    }
    print(
        f"{row['program']:<12} {count:>10,} examples: ours {row['ours_ms']:.3f} ms, nvcc {row['nvcc_ms']:.3f} ms, "
        f"ratio {row['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); the whole call {row['call_ms']:.3f} ms"
    )
    return row


def in_turns(on: Device, ways: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Seconds of each way in each round, of several launches behind each other."""
    times: list[list[float]] = [[] for _ in ways]
    for k in range(rounds + 1):
        for way, found in zip(ways, times, strict=True):
            on.wait(LEGACY)
            begin = time.perf_counter()
            for _ in range(5):
                way()
            on.wait(LEGACY)
            if k:  # the first round warms up
                found.append((time.perf_counter() - begin) / 5)
    return times


def agree(name: str, ours: Sequence[DeviceArray], hand: Sequence[DeviceArray]) -> None:
    """Nine in ten examples are equal to a part in a hundred: products and sums are fused in other places, so a few take
    another path."""
    for a, b in zip(ours, hand, strict=False):
        x, y = np.asarray(a), np.asarray(b)
        near = np.isclose(x, y, rtol=1e-2, atol=1e-3).mean()
        if near < 0.9:
            sys.exit(f"{name}: only {near:.1%} of our results are those by hand")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    try:
        if given.static:
            rows = static(given.nvdisasm)
        else:
            on = current_device()
            rows = [measured(p, on, given.rounds) for p in programs(given.size)]
    except (DeviceError, sass.NoTool) as error:
        print(f"skipped: {error}")
        return 0
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
