"""Ways down decision trees that computed numbers choose, beside the same by hand in JAX, and by Python.

`python -m benchmarks.walks [--json FILE] [--batch N] [--depths 4 7 9] [--rounds N]`. Each example has a tree of its
own. By hand the nodes of all trees lie behind one another in arrays, children are their places there, and `jax.vmap` of
a `lax.while_loop` walks; packing is left out on both sides. Results and derivatives are checked against each other. All
take turns; a factor is the ratio of the medians of processor time, ours over that by hand.
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
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab

FEATURES = 8


@dataclass
class Node:
    """A leaf where it has no sides."""

    feature: int
    threshold: float
    value: float
    left: Node | None = None
    right: Node | None = None


def decided(w: Any, node: Node, x: Any) -> Any:
    y = jnp.tanh(w @ x)
    while node.left is not None:
        node = node.left if y[node.feature] < node.threshold else node.right  # type: ignore[assignment]
    return node.value * y[0]


def grown(depth: int, rng: np.random.Generator) -> Node:
    if depth == 0 or rng.random() < 0.1:
        return Node(0, 0.0, float(rng.normal()))
    sides = grown(depth - 1, rng), grown(depth - 1, rng)
    return Node(int(rng.integers(FEATURES)), float(rng.normal() * 0.3), 0.0, *sides)


def nodes(tree: Node) -> int:
    return 1 if tree.left is None or tree.right is None else 1 + nodes(tree.left) + nodes(tree.right)


def laid_out(trees: Sequence[Node]) -> tuple[dict[str, Any], Any]:
    """The fields of all nodes as arrays, and where each tree begins."""
    columns: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "value", "left", "right")}

    def add(node: Node) -> int:
        row = len(columns["value"])
        held = node.feature, node.threshold, node.value, -1, -1
        for column, x in zip(columns.values(), held, strict=True):
            column.append(x)
        if node.left is not None and node.right is not None:
            columns["left"][row], columns["right"][row] = add(node.left), add(node.right)
        return row

    roots = [add(tree) for tree in trees]
    return {name: jnp.asarray(column) for name, column in columns.items()}, jnp.asarray(roots)


def by_hand(w: Any, columns: dict[str, Any], roots: Any, xs: Any) -> Any:
    def one(root: Any, x: Any) -> Any:
        y = jnp.tanh(w @ x)

        def step(row: Any) -> Any:
            below = y[columns["feature"][row]] < columns["threshold"][row]
            return jnp.where(below, columns["left"][row], columns["right"][row])

        row = jax.lax.while_loop(lambda row: columns["left"][row] >= 0, step, root)
        return columns["value"][row] * y[0]

    return jax.vmap(one)(roots, xs)


@dataclass
class Found:
    """Seconds of processor time of a call, and of its derivative by w; a factor is ours over that by hand."""

    depth: int
    nodes: float
    xla: float
    llvm: float
    by_hand: float
    python: float
    factor_of_xla: float
    factor_of_llvm: float
    derivative: float
    derivative_by_hand: float
    factor_of_derivative: float


def measure(depth: int, batch: int, rounds: int) -> Found:
    """All in turn. A difference of results is an error."""
    rng = np.random.default_rng(depth)
    trees = [grown(depth, rng) for _ in range(batch)]
    w, xs = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((FEATURES, FEATURES), (batch, FEATURES)))
    columns, roots = laid_out(trees)
    ways: dict[str, Callable[[], Any]] = {}
    hand, slope = jax.jit(by_hand), jax.jit(jax.grad(lambda *given: jnp.sum(by_hand(*given))))
    ways["by_hand"], ways["derivative_by_hand"] = (partial(g, w, columns, roots, xs) for g in (hand, slope))
    for backend in ("xla", "llvm"):
        f = ab.batched(decided, in_axes=(None, 0, 0), options=ab.options(backend=backend))
        packed = f.pack(trees, xs)
        ways[backend] = partial(f, w, *packed.args)
        if backend == "xla":
            ways["derivative"] = partial(ab.grad(f), w, *packed.args)
    results = {name: np.asarray(way()) for name, way in ways.items()}
    for name in ("xla", "llvm"):
        np.testing.assert_allclose(results[name], results["by_hand"], rtol=1e-4, err_msg=f"depth {depth} by {name}")
    np.testing.assert_allclose(results["derivative"], results["derivative_by_hand"], rtol=1e-3, atol=1e-4)
    begin = time.process_time()
    plain = [decided(np.asarray(w), tree, x) for tree, x in zip(trees, np.asarray(xs), strict=True)]
    python = time.process_time() - begin
    np.testing.assert_allclose(results["by_hand"], np.asarray(plain), rtol=1e-3)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            jax.block_until_ready(way())
            taken[name].append(time.process_time() - begin)
    t = {name: statistics.median(times) for name, times in taken.items()}
    size = sum(map(nodes, trees)) / batch
    factors = t["xla"] / t["by_hand"], t["llvm"] / t["by_hand"], t["derivative"] / t["derivative_by_hand"]
    times = t["xla"], t["llvm"], t["by_hand"], python, *factors[:2], t["derivative"], t["derivative_by_hand"]
    return Found(depth, size, *times, factors[2])


def shown(found: Sequence[Found]) -> str:
    heads = ("xla ms", "llvm ms", "by hand", "Python", "xla", "llvm", "d ms", "by hand", "d")
    lines = [f"{'nodes':>8}" + "".join(f"{head:>10}" for head in heads)]
    for f in found:
        times = "".join(f"{1e3 * seconds:>10.2f}" for seconds in (f.xla, f.llvm, f.by_hand, f.python))
        derivative = f"{1e3 * f.derivative:>10.2f}{1e3 * f.derivative_by_hand:>10.2f}{f.factor_of_derivative:>10.2f}"
        lines.append(f"{f.nodes:>8.0f}{times}{f.factor_of_xla:>10.2f}{f.factor_of_llvm:>10.2f}{derivative}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks", description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--depths", type=int, nargs="+", default=[4, 7, 9])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="a file for the report")
    options = parser.parse_args(arguments)
    found = [measure(depth, options.batch, options.rounds) for depth in options.depths]
    print(shown(found))
    if options.json:
        machine = {"processor": platform.processor(), "cores": os.cpu_count(), "jax": jax.__version__}
        report = {"batch": options.batch, "machine": machine, "depths": [asdict(f) for f in found]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
