"""Speed of the child-sum tree-LSTM over code trees: batches against loops, and how time grows with size.

`make bench`, or `python -m benchmarks.trees [--json] [--rounds N]`. The method is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

import autobatch as ab
from benchmarks.compilations import Compilations
from examples.trees import per_node
from examples.trees.check import largest_difference
from examples.trees.child_sum import HIDDEN, Params, encode, parameters
from examples.trees.data import KINDS, Node, code_trees, size

BATCH = 64


@dataclass
class Rates:
    """Medians over the rounds. A factor is the median of the factors of single rounds, so drift of the machine, which
    hits all three alike within a round, cancels."""

    plain_trees_per_second: float
    per_node_trees_per_second: float
    batched_trees_per_second: float
    times_plain: float
    times_per_node: float
    largest_difference: float


@dataclass
class Stream:
    batches: int
    executables: int
    xla_compilations: int
    compile_seconds: float


@dataclass
class Growth:
    """Time for a row of a large problem over time for a row of a small one."""

    small_rows: int
    large_rows: int
    ratio: float


def run_batch(p: Params, data: Any, chosen: np.ndarray) -> Any:
    return encode(p, data[chosen])


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def median_ratio(rounds: int, first: Callable[[], Any], second: Callable[[], Any]) -> float:
    """The median over rounds of the time of `second` over the time of `first`, run one after the other."""
    seconds(first), seconds(second)
    pairs = [(seconds(first), seconds(second)) for _ in range(rounds)]
    return statistics.median(b / a for a, b in pairs)


def measure_rates(p: Params, trees: Sequence[Node], sizes: np.ndarray, data: Any, rounds: int) -> Rates:
    """Nodes per second of the three ways, then trees per second for trees of mean size."""
    rng = np.random.default_rng(1)
    few = rng.choice(len(trees), 8, replace=False)
    many = rng.choice(len(trees), 64, replace=False)
    batches = [rng.choice(len(trees), BATCH) for _ in range(10)]
    zero = per_node.zero_state(p)
    ways: tuple[tuple[Callable[[], Any], int], ...] = (
        (lambda: [encode.example(p, trees[i]) for i in few], int(sizes[few].sum())),
        (lambda: [per_node.encode(p, trees[i], zero) for i in many], int(sizes[many].sum())),
        (lambda: [run_batch(p, data, chosen) for chosen in batches], sum(int(sizes[b].sum()) for b in batches)),
    )
    for run, _ in ways:
        seconds(run)
    speeds = [[nodes / seconds(run) for run, nodes in ways] for _ in range(rounds)]
    plain, jitted, batched = (statistics.median(s[k] for s in speeds) / float(sizes.mean()) for k in range(3))
    worst = largest_difference(ab.unbatch(encode(p, data[few])), [encode.example(p, trees[i]) for i in few])
    return Rates(
        plain,
        jitted,
        batched,
        statistics.median(s[2] / s[0] for s in speeds),
        statistics.median(s[2] / s[1] for s in speeds),
        worst,
    )


def measure_stream(p: Params, data: Any, batches: int) -> Stream:
    """Random batches from the first call on: what a training run compiles."""
    rng, spent, known = np.random.default_rng(2), 0.0, 0
    with Compilations() as compilations:
        for _ in range(batches):
            chosen = rng.choice(len(data), BATCH)
            elapsed = seconds(partial(run_batch, p, data, chosen))
            executables = encode.cache_info().executables
            if executables > known:
                known, spent = executables, spent + elapsed
    return Stream(batches, known, compilations.count, spent)


def random_trees(count: int, height: int, arity: int, rng: np.random.Generator) -> list[Node]:
    """Complete trees of random kinds."""

    def grow(level: int) -> Node:
        return Node(int(rng.integers(len(KINDS))), [grow(level - 1) for _ in range(arity)] if level > 1 else [])

    return [grow(height) for _ in range(count)]


def chains(count: int, length: int, rng: np.random.Generator) -> list[Node]:
    made = []
    for _ in range(count):
        node = Node(int(rng.integers(len(KINDS))), [])
        for kind in rng.integers(len(KINDS), size=length - 1):
            node = Node(int(kind), [node])
        made.append(node)
    return made


def growth(p: Params, small: Sequence[Node], large: Sequence[Node], rounds: int) -> Growth:
    few, many = sum(map(size, small)), sum(map(size, large))
    first, second = encode.pack(small), encode.pack(large)
    ratio = median_ratio(rounds, lambda: encode(p, first), lambda: encode(p, second))
    return Growth(few, many, ratio * few / many)


def measure_growth(p: Params, trees: Sequence[Node], rounds: int) -> Iterator[tuple[str, Growth]]:
    """A loop that copied its buffers each time round would take ten times as long for a row of the large problem."""
    rng = np.random.default_rng(3)
    order = rng.permutation(len(trees))
    yield "buffer_code_trees", growth(p, [trees[i] for i in order[:80]], [trees[i] for i in order[:800]], rounds)
    yield "buffer_chains", growth(p, chains(8, 500, rng), chains(8, 5000, rng), rounds)
    base = random_trees(8, 6, 3, rng)
    for factor in (2, 4, 8, 16):
        yield f"fixed_height_{factor}x", growth(p, base, random_trees(8 * factor, 6, 3, rng), rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--rounds", type=int, default=7, help="how often everything is measured")
    parser.add_argument("--batches", type=int, default=100, help="random batches in the stream")
    given = parser.parse_args(arguments)
    p, trees = parameters(), code_trees()
    sizes = np.array([size(tree) for tree in trees])
    packing = statistics.median(seconds(lambda: encode.pack(trees)) for _ in range(3))
    data = encode.pack(trees)
    report: dict[str, Any] = {
        "machine": {"processor": platform.processor() or platform.machine(), "jax": jax.__version__,
                    "python": platform.python_version(), "devices": [str(d) for d in jax.devices()]},
        "model": {"hidden": HIDDEN, "batch": BATCH, "trees": len(trees), "nodes": int(sizes.sum())},
        "pack_nodes_per_second": float(sizes.sum() / packing),
        "stream": asdict(measure_stream(p, data, given.batches)),
        "rates": asdict(measure_rates(p, trees, sizes, data, given.rounds)),
        "growth": {name: asdict(found) for name, found in measure_growth(p, trees, given.rounds)},
    }  # fmt: skip
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)
    return 0


def show(report: dict[str, Any], indent: str = "") -> None:
    for name, value in report.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            show(value, indent + "    ")
        else:
            print(f"{indent}{name:<28} {f'{value:,.4g}' if isinstance(value, float) else value}")


if __name__ == "__main__":
    sys.exit(main())
