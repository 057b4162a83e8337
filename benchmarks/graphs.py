"""Message passing over networkx graphs, written for one, beside the same model batched by hand with segment sums.

    python -m benchmarks.graphs [--data FOLDER] [--batch 128] [--hidden 64] [--rounds 7] [--json FILE]

The model is that of `examples/tables/molecules.py`; `FOLDER` is a data set of the TU collection, as NCI1. Both cut each
minibatch out of arrays that were made once, which is timed, and both are checked against each other. They take turns; a
factor is the ratio of the medians, by hand over ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from examples.tables.molecules import ROUNDS, of_file, parameters, random_molecules, score


class ByHand:
    """Nodes of all graphs behind one another; a batch has room for the nodes and edges of the largest one."""

    def __init__(self, graphs: Sequence[nx.Graph], size: int) -> None:
        self.kinds = [np.array([g.nodes[a]["kind"] for a in g.nodes], np.int32) for g in graphs]
        place = [{a: k for k, a in enumerate(g.nodes)} for g in graphs]
        self.edges = [
            np.array([(p[a], p[b]) for a in g.nodes for b in g.neighbors(a)], np.int32).reshape(-1, 2)
            for g, p in zip(graphs, place, strict=True)
        ]
        self.size, self.nodes, self.links = size, self.most(self.kinds, size), self.most(self.edges, size)

    @staticmethod
    def most(parts: Sequence[np.ndarray], size: int) -> int:
        """What the largest graphs have together."""
        return int(np.sort([len(x) for x in parts])[-size:].sum())

    def rounded(self, count: int, most: int) -> int:
        """Room of one of a few sizes, as one would choose by hand: an eighth apart."""
        step = max(most // 8, 1)
        return min(-(-count // step) * step, most)

    def batch(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        counts = np.array([len(self.kinds[k]) for k in chosen])
        first = np.concatenate([[0], np.cumsum(counts)])
        edges = np.concatenate([self.edges[k] + f for k, f in zip(chosen, first, strict=False)])
        nodes, links = self.rounded(int(first[-1]), self.nodes), self.rounded(len(edges), self.links)
        kind, owner = np.zeros(nodes, np.int32), np.full(nodes, self.size, np.int32)
        kind[: first[-1]] = np.concatenate([self.kinds[k] for k in chosen])
        owner[: first[-1]] = np.repeat(np.arange(self.size), counts)
        ends = np.full((links, 2), nodes, np.int32)
        ends[: len(edges)] = edges
        order = np.argsort(ends[:, 0], kind="stable")
        return {"kind": kind, "owner": owner, "to": ends[order, 0], "of": ends[order, 1], "count": counts}


def by_hand(p: Any, b: dict[str, Any]) -> Any:
    nodes, size = b["kind"].shape[0], b["count"].shape[0]
    h = p["embed"][b["kind"]]
    for k in range(ROUNDS):
        near = jax.ops.segment_sum(h[b["of"]], b["to"], nodes, indices_are_sorted=True)
        h = jnp.tanh(h @ p["self"][k].T + near @ p["near"][k].T)
    total = jax.ops.segment_sum(h, b["owner"], size, indices_are_sorted=True)
    return (total / b["count"][:, None]) @ p["out"] + p["bias"]


def ways(graphs: Sequence[nx.Graph], batch: int) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """For forward and training: ours, and that by hand, of parameters and the numbers of examples."""
    data, hand = score.pack(list(graphs)), ByHand(graphs, batch)

    def loss(scores: jax.Array) -> jax.Array:
        return jnp.mean(scores**2)

    ours, theirs = jax.jit(score), jax.jit(by_hand)
    our_slope = jax.jit(jax.value_and_grad(lambda p, b: loss(score(p, b))))
    their_slope = jax.jit(jax.value_and_grad(lambda p, b: loss(by_hand(p, b))))
    return {
        "forward": (lambda p, c: ours(p, data[c]), lambda p, c: theirs(p, hand.batch(c))),
        "training": (lambda p, c: our_slope(p, data[c]), lambda p, c: their_slope(p, hand.batch(c))),
    }


def seconds(way: Callable[..., Any], p: Any, batches: Sequence[np.ndarray]) -> float:
    start = time.perf_counter()
    for chosen in batches:
        jax.block_until_ready(way(p, chosen))
    return (time.perf_counter() - start) / len(batches)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graphs", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with a data set of the TU collection")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=12, help="minibatches in a round")
    parser.add_argument("--json", type=Path, help="a file for the report")
    given = parser.parse_args(arguments)
    graphs, _, kinds = of_file(given.data) if given.data else random_molecules(1000)
    p, rng = parameters(kinds, given.hidden), np.random.default_rng(0)
    report: dict[str, dict[str, float]] = {}
    for name, (ours, theirs) in ways(graphs, given.batch).items():
        drawn = [
            [rng.choice(len(graphs), given.batch, replace=False) for _ in range(given.batches)]
            for _ in range(3 + given.rounds)
        ]
        for chosen in [c for r in drawn[:3] for c in r]:  # compiles for the sizes that come
            a, b = ours(p, chosen), theirs(p, chosen)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        taken = [(seconds(ours, p, r), seconds(theirs, p, r)) for r in drawn[3 : 3 + given.rounds]]
        mine, hand = (statistics.median(t) for t in zip(*taken, strict=True))
        factor = statistics.median(b / a for a, b in taken)
        report[name] = {"autobatch_ms": 1e3 * mine, "by_hand_ms": 1e3 * hand, "factor": factor}
        print(f"{name:10} autobatch {1e3 * mine:8.2f} ms   by hand {1e3 * hand:8.2f} ms   factor {factor:.2f}")
    if given.json:
        machine = {"cores": os.cpu_count(), "jax": jax.__version__}
        given.json.write_text(json.dumps({"machine": machine, "batch": given.batch, **report}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
