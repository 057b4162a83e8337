"""Message passing over networkx graphs: is a molecule active? Written for one graph, with a dict of vectors.

    python -m examples.tables.molecules [--data FOLDER] [--steps 60]

`FOLDER` holds a data set of the TU collection, as NCI1 (Morris and others, "TUDataset: A collection of benchmark
datasets for learning with graphs", 2020); without it, random molecules are made of which rings of carbon and a nitrogen
decide. The batch is checked against the loop, then trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax

import autobatch as ab
from examples.trees.check import check

ROUNDS = 3
TOLERANCE = 1e-4


@ab.batched(in_axes=(None, 0))
def score(p: Any, molecule: nx.Graph) -> Any:
    """The logarithm of the odds that a molecule is active."""
    h = {atom: p["embed"][molecule.nodes[atom]["kind"]] for atom in molecule.nodes}
    for k in range(ROUNDS):
        near = {a: sum((h[b] for b in molecule.neighbors(a)), start=jnp.zeros_like(h[a])) for a in molecule.nodes}
        h = {a: jnp.tanh(p["self"][k] @ h[a] + p["near"][k] @ near[a]) for a in molecule.nodes}
    return jnp.dot(p["out"], sum(h[a] for a in molecule.nodes) / len(molecule)) + p["bias"]


def parameters(kinds: int, hidden: int = 64, seed: int = 0) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[-1]), jnp.float32)

    return {
        "embed": drawn(kinds, hidden),
        "self": drawn(ROUNDS, hidden, hidden),
        "near": drawn(ROUNDS, hidden, hidden) / 2,
        "out": drawn(hidden),
        "bias": jnp.zeros(()),
    }


def of_file(folder: Path) -> tuple[list[nx.Graph], np.ndarray, int]:
    """The graphs of a data set of the TU collection, which of them are active, and how many kinds of nodes there
    are."""
    name = next(folder.glob("*_A.txt")).name.removesuffix("_A.txt")

    def column(what: str) -> np.ndarray:
        return np.loadtxt(folder / f"{name}_{what}.txt", dtype=np.int64)

    edges = np.loadtxt(folder / f"{name}_A.txt", dtype=np.int64, delimiter=",") - 1
    owner, active, kind = column("graph_indicator") - 1, column("graph_labels") > 0, column("node_labels")
    kind -= kind.min()
    first = np.searchsorted(owner, np.arange(len(active)))
    made = [nx.Graph() for _ in active]
    for node, g in enumerate(owner.tolist()):
        made[g].add_node(node - int(first[g]), kind=int(kind[node]))
    for a, b in edges.tolist():
        g = int(owner[a])
        made[g].add_edge(a - int(first[g]), b - int(first[g]))
    return made, active, int(kind.max()) + 1


def random_molecules(count: int, kinds: int = 4, seed: int = 0) -> tuple[list[nx.Graph], np.ndarray, int]:
    """Trees with some rings; those with a ring beside an atom of kind 1 are active."""
    rng = np.random.default_rng(seed)
    made, active = [], []
    for _ in range(count):
        size = int(rng.integers(6, 30))
        g = nx.Graph()
        for atom in range(size):
            g.add_node(atom, kind=int(rng.choice(kinds, p=[0.7, *[0.3 / (kinds - 1)] * (kinds - 1)])))
            if atom:
                g.add_edge(atom, int(rng.integers(max(0, atom - 4), atom)))
        for _ in range(int(rng.integers(0, 3))):
            a, b = rng.choice(size, 2, replace=False).tolist()
            g.add_edge(a, b)
        inside = {a for ring in nx.cycle_basis(g) for a in ring}
        active.append(any(g.nodes[b]["kind"] == 1 for a in inside for b in g.neighbors(a)))
        made.append(g)
    return made, np.array(active), kinds


def train(p: Any, molecules: list[nx.Graph], active: np.ndarray, steps: int, size: int = 64) -> tuple[float, float]:
    """Adam on minibatches; the losses of the first and of the last tenth of the steps."""
    data = score.pack(molecules)
    optimiser = optax.adam(3e-3)
    state, rng, losses = optimiser.init(p), np.random.default_rng(1), []

    @jax.jit
    def step(p: Any, state: Any, batch: Any, wanted: jax.Array) -> Any:
        loss, slope = jax.value_and_grad(lambda p: optax.sigmoid_binary_cross_entropy(score(p, batch), wanted).mean())(
            p
        )
        change, state = optimiser.update(slope, state)
        return optax.apply_updates(p, change), state, loss

    for _ in range(steps):
        chosen = rng.choice(len(molecules), min(size, len(molecules)), replace=False)
        p, state, loss = step(p, state, data[chosen], jnp.asarray(active[chosen], jnp.float32))
        losses.append(float(loss))
    part = max(steps // 10, 1)
    return float(np.mean(losses[:part])), float(np.mean(losses[-part:]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.tables.molecules", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with a data set of the TU collection")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=64)
    given = parser.parse_args(arguments)
    molecules, active, kinds = of_file(given.data) if given.data else random_molecules(600)
    p = parameters(kinds, given.hidden)
    worse = check("molecules", score, p, molecules[:64], TOLERANCE)
    before, after = train(p, molecules, active, given.steps)
    print(f"  loss {before:.3f}, after {given.steps} steps {after:.3f}")
    return worse or int(after >= before)


if __name__ == "__main__":
    sys.exit(main())
