"""The demo: a tree-LSTM written for one tree, run over the code of Python's standard library in batches of 64.

`make demo`, or `python -m examples.trees.demo`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import autobatch as ab
from examples.trees import per_node
from examples.trees.check import largest_difference
from examples.trees.child_sum import HIDDEN, Params, encode, parameters
from examples.trees.data import Node, code_trees, size

BATCH = 64
TOLERANCE = 1e-4


@dataclass
class Rate:
    """Work done and the time it took; nodes are the measure, since trees differ in size."""

    nodes: int = 0
    seconds: float = 0.0

    def add(self, nodes: int, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = jax.block_until_ready(run())
        self.seconds += time.perf_counter() - start
        self.nodes += nodes
        return result

    @property
    def nodes_per_second(self) -> float:
        return self.nodes / self.seconds if self.seconds else float("nan")


def run_batch(p: Params, data: Any, indices: np.ndarray) -> Any:
    """Cut a minibatch from the data set, and run it."""
    return encode(p, data[indices])


def show(console: Console, rates: dict[str, Rate], nodes_per_tree: float) -> None:
    """A table of all ways to run the model; the last one is what the others are compared with."""
    *_, (_, best) = rates.items()
    table = Table("", "trees/s", "nodes/s", "autobatch is faster by")
    for name, rate in rates.items():
        factor = "" if rate is best else f"{best.nodes_per_second / rate.nodes_per_second:,.0f} x"
        speed = rate.nodes_per_second
        table.add_row(name, f"{speed / nodes_per_tree:,.0f}", f"{speed:,.0f}", factor)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, help="use only so many functions of the standard library")
    parser.add_argument("--batches", type=int, default=200, help="how many random batches of 64 to run")
    parser.add_argument("--eager", type=int, default=16, help="trees for the plain Python function, which is slow")
    given = parser.parse_args(arguments)
    console, rng, p = Console(), np.random.default_rng(0), parameters()

    with console.status("reading the standard library"):
        trees: list[Node] = code_trees(given.trees)
        sizes = np.array([size(tree) for tree in trees])
    packing = Rate()
    with console.status(f"packing {sizes.sum():,} nodes"):
        data = packing.add(int(sizes.sum()), lambda: encode.pack(trees))
    console.print(
        f"{len(trees):,} functions of the standard library, {sizes.sum():,} nodes; packed in "
        f"{packing.seconds:.1f} s, {packing.nodes_per_second:,.0f} nodes/s"
    )

    eager, jitted, batched = Rate(), Rate(), Rate()
    compiled, compile_seconds = 0, 0.0
    few = rng.choice(len(trees), given.eager, replace=False)
    many = rng.choice(len(trees), min(len(trees), 16 * given.eager), replace=False)
    zero = per_node.zero_state(p)
    columns = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for _ in progress.track(range(given.batches), description=f"autobatch, random batches of {BATCH}"):
            indices = rng.choice(len(trees), BATCH)
            once = Rate()
            once.add(int(sizes[indices].sum()), partial(run_batch, p, data, indices))
            executables = encode.cache_info().executables
            if executables > compiled:  # timed again below: a batch that compiles is not a batch at full speed
                compiled, compile_seconds = executables, compile_seconds + once.seconds
                continue
            batched.nodes, batched.seconds = batched.nodes + once.nodes, batched.seconds + once.seconds

        for i in many:  # compiles a cell for each number of children
            per_node.encode(p, trees[i], zero)
        for i in progress.track(many, description="a jitted cell at each node"):
            jitted.add(int(sizes[i]), partial(per_node.encode, p, trees[i], zero))

        plain = [encode.example(p, trees[i]) for i in few[:2]]  # fills JAX's caches of single operations
        plain.clear()
        for i in progress.track(few, description="plain Python, operation by operation"):
            plain.append(eager.add(int(sizes[i]), partial(encode.example, p, trees[i])))

    worst = largest_difference(ab.unbatch(encode(p, data[few])), plain)
    title = f"\nchild-sum tree-LSTM, hidden size {HIDDEN}, on {jax.devices()[0].platform}"
    console.print(title, highlight=False)
    rates = {"plain Python": eager, "a jitted cell at each node": jitted, f"autobatch, batches of {BATCH}": batched}
    show(console, rates, float(sizes.mean()))
    console.print(
        f"{given.batches} random batches ran on {compiled} executables. The calls that made them took "
        f"{compile_seconds:.1f} s, planning of the whole data set included.\n"
        f"Cutting each batch from the data set is counted in the figures above.\n"
        f"Largest difference to plain Python: {worst:.1e} (at most {TOLERANCE:.0e} is fine)."
    )
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
