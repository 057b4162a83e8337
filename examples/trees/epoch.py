"""A whole epoch of training as ONE executable: `jax.lax.scan` over minibatches that lie stacked on the device.

The binary tree-LSTM is trained by gradient descent twice from the same parameters: by a Python loop over minibatches,
and by a scan whose carry are the parameters, where the host does nothing between two steps. Both see the same
minibatches, so their losses must agree.

Run it on code: `python -m examples.trees.epoch`; on sentiment, where a folder holds the treebank's `dev.txt`:
`python -m examples.trees.epoch --folder FOLDER`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autobatch as ab
from examples.trees.binary import Params, encode, parameters
from examples.trees.check import largest_difference
from examples.trees.data import KINDS, Phrase, binarised, code_trees, sentiment_trees

BATCH = 64
RATE = 0.3
TOLERANCE = 1e-3
"""Of losses of the same minibatch: differences of single steps, in the last bits, grow over an epoch."""

Minibatch = tuple[ab.Batch, Any]
"""Trees, and the number of nodes of each: float32[BATCH]."""


def loss(p: Params, minibatch: Minibatch) -> jax.Array:
    """The mean loss of a node."""
    batch, nodes = minibatch
    _, _, of_tree = encode(p, batch)
    mean: jax.Array = of_tree.sum() / nodes.sum()
    return mean


def step(p: Params, minibatch: Minibatch) -> tuple[Params, jax.Array]:
    """A step of gradient descent, and the loss before it."""
    value, gradient = jax.value_and_grad(loss)(p, minibatch)
    return jax.tree.map(lambda x, g: x - RATE * g, p, gradient), value


jitted_step = jax.jit(step)
jitted_loss = jax.jit(loss)


@jax.jit
def scanned_epoch(p: Params, epoch: Minibatch) -> tuple[Params, jax.Array]:
    """All steps of an epoch; the losses are float32[steps]."""
    return jax.lax.scan(step, p, epoch)


def looped_epoch(p: Params, loader: ab.Loader[Minibatch]) -> tuple[Params, list[jax.Array]]:
    """The same, a call for each minibatch; the next ones are made ready meanwhile."""
    losses = []
    for minibatch in loader:
        p, value = jitted_step(p, minibatch)
        losses.append(value)
    return p, losses


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    return result, time.perf_counter() - start


def size(tree: Phrase) -> int:
    below = [child for child in (tree.left, tree.right) if child is not None]
    return 1 + sum(map(size, below))


def read_trees(folder: Path | None, limit: int | None) -> tuple[list[Phrase], int]:
    """The trees, and how many words there are."""
    if folder is None:
        return [binarised(tree) for tree in code_trees(limit, largest=200)], len(KINDS)
    trees, words = sentiment_trees(folder / "dev.txt")
    return trees[:limit], len(words)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="the treebank: a folder with its dev.txt")
    parser.add_argument("--trees", type=int, help="use only so many trees")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    given = parser.parse_args(arguments)

    trees, words = read_trees(given.folder, given.trees)
    p = parameters(words, given.hidden, given.hidden)
    data: Minibatch = (encode.pack(trees), np.array([size(tree) for tree in trees], np.float32))
    jitted_loss(p, (data[0][:BATCH], data[1][:BATCH]))  # from here on batches travel with a plan for such parameters

    minibatches = ab.Loader(data, BATCH, drop_last=True)
    epochs = ab.Loader(data, BATCH, drop_last=True, steps=len(minibatches), prefetch=1)
    print(f"{len(trees):,} trees, {len(minibatches)} minibatches of {BATCH}, hidden size {given.hidden}")
    worst = 0.0
    for number in range(given.epochs):
        (_, looped), loop_seconds = timed(partial(looped_epoch, p, minibatches))
        (epoch,) = epochs  # one item: the whole epoch
        (p, scanned), scan_seconds = timed(partial(scanned_epoch, p, epoch))
        worst = max(worst, largest_difference(list(scanned), looped))
        print(
            f"  epoch {number}: mean loss of a node {float(scanned.mean()):.4f}; minibatch by minibatch "
            f"{loop_seconds:.2f} s, as one executable {scan_seconds:.2f} s{' (compiling included)' * (not number)}"
        )
    print(f"  largest difference of losses {worst:.1e} (at most {TOLERANCE:.0e} is fine)")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
