"""How well do evolutionary trees explain DNA? Felsenstein's pruning (J Mol Evol 17, 1981), written for ONE tree.

The batch is what a tree search scores at every step: a tree and its neighbours by interchange of two branches, on one
alignment. Run it: `python -m examples.trees.phylogeny`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.trees.check import check

SITES = 1000
PRIMATES = (
    "(((((((Human:6.7,Chimpanzee:6.7):2.2,Gorilla:8.9):7.3,Orangutan:16.2):4.2,Gibbon:20.4):9.0,((Macaque:12.5,"
    "Baboon:12.5):5.5,(Colobus:13.5,Langur:13.5):4.5):11.4):13.8,((Marmoset:20.0,Capuchin:20.0):4.8,(Spider:22.0,"
    "Howler:22.0):2.8):18.4):24.0,(Tarsier:64.0,((Lemur:38.0,Sifaka:38.0):20.0,(Galago:38.0,Loris:38.0):20.0):6.0):3.2);"
)
"""Living primates; lengths are millions of years, roughly as dated by fossils."""
SUBSTITUTIONS = 0.004
"""Per site in a million years."""


@dataclass
class Clade:
    """A species (`taxon` is its row of the alignment) or an ancestor of two clades; `length` leads to its parent."""

    length: float
    taxon: int = -1
    left: Clade | None = None
    right: Clade | None = None


def transition(p: dict[str, jax.Array], length: float) -> jax.Array:
    """The chance of each base at the end of a branch, given the base at its start: exp(length * Q)."""
    return (p["vectors"] * jnp.exp(p["rates"] * length)) @ p["inverse"]


@ab.batched(in_axes=(None, 0))
def partials(p: dict[str, jax.Array], t: Clade) -> Any:
    """The likelihood of what stands below, for each site and base [SITES, 4], over its scale, a logarithm [SITES]."""
    if t.left is None or t.right is None:
        return p["alignment"][t.taxon], jnp.zeros(SITES)
    left, left_scale = partials(p, t.left)
    right, right_scale = partials(p, t.right)
    both = (left @ transition(p, t.left.length).T) * (right @ transition(p, t.right.length).T)
    scale = jnp.max(both, axis=1)
    return both / scale[:, None], left_scale + right_scale + jnp.log(scale)


@ab.batched(in_axes=(None, 0))
def log_likelihood(p: dict[str, jax.Array], t: Clade) -> Any:
    likelihood, scale = partials(p, t)
    return jnp.sum(jnp.log(likelihood @ p["frequencies"]) + scale)


def newick(text: str) -> tuple[Clade, list[str]]:
    """The tree that a text in Newick's format describes, and the names of its species."""
    stack: list[list[Clade]] = [[]]
    names: list[str] = []
    for opened, closed, name, length in re.findall(r"(\()|(\))?(\w*)(?::([\d.]+))?[,;]?", text):
        years = float(length or 0) * SUBSTITUTIONS
        if opened:
            stack.append([])
        elif closed:
            left, right = stack.pop()
            stack[-1].append(Clade(years, left=left, right=right))
        elif name:
            stack[-1].append(Clade(years, taxon=len(names)))
            names.append(name)
    [[root]] = stack
    return root, names


def neighbours(t: Clade) -> list[Clade]:
    """Every tree that differs from `t` by one nearest-neighbour interchange."""
    if t.left is None or t.right is None:
        return []
    found = [replace(t, left=n) for n in neighbours(t.left)] + [replace(t, right=n) for n in neighbours(t.right)]
    for here, there in ((t.left, t.right), (t.right, t.left)):
        if here.left is not None and here.right is not None:
            for kept, moved in ((here.left, here.right), (here.right, here.left)):
                found.append(replace(t, left=replace(here, left=kept, right=there), right=moved))
    return found


def model() -> dict[str, jax.Array]:
    """Hasegawa, Kishino, Yano (1985): unequal frequencies of A C G T, transitions four times as fast."""
    frequencies = np.array([0.31, 0.27, 0.14, 0.28])
    speed = np.array([[0, 1, 4, 1], [1, 0, 1, 4], [4, 1, 0, 1], [1, 4, 1, 0]], float) * frequencies
    q = speed - np.diag(speed.sum(1))
    q /= -frequencies @ np.diag(q)
    rates, vectors = np.linalg.eig(q)
    arrays = {"frequencies": frequencies, "rates": rates, "vectors": vectors, "inverse": np.linalg.inv(vectors)}
    return {name: jnp.asarray(np.real(array), jnp.float32) for name, array in arrays.items()}


def simulate(p: dict[str, jax.Array], t: Clade, rng: np.random.Generator, species: int) -> jax.Array:
    """Let random sequences evolve down a tree: the bases of every species, one-hot [species, SITES, 4]."""
    alignment = np.zeros((species, SITES, 4), np.float32)

    def draw(chances: np.ndarray) -> np.ndarray:
        below = chances.cumsum(-1) < rng.random((SITES, 1)) * chances.sum(-1, keepdims=True)
        return np.asarray(below.sum(-1))

    def descend(clade: Clade, bases: np.ndarray) -> None:
        if clade.left is None or clade.right is None:
            alignment[clade.taxon] = np.eye(4)[bases]
            return
        for child in (clade.left, clade.right):
            descend(child, draw(np.asarray(transition(p, child.length))[bases]))

    descend(t, draw(np.tile(np.asarray(p["frequencies"]), (SITES, 1))))
    return jnp.asarray(alignment)


if __name__ == "__main__":
    true_tree, names = newick(PRIMATES)
    params = model()
    params["alignment"] = simulate(params, true_tree, np.random.default_rng(0), len(names))
    candidates = [true_tree, *neighbours(true_tree)]
    status = check("trees of primates", log_likelihood, params, candidates, tolerance=1e-4)
    scores = np.asarray(log_likelihood(params, candidates))
    print(f"  log likelihood of the true tree {scores[0]:.1f}, of its best neighbour {scores[1:].max():.1f}")
    sys.exit(status)
