"""A whole epoch as ONE executable: `jax.lax.scan` over minibatches that lie stacked on the device.

The mean loss of the binary tree-LSTM over a data set, once by a Python loop over minibatches, and once as a scan, where
the host does nothing between two steps. Both see the same minibatches, so they must agree. The loss is evaluated here,
not trained: a level loop is a `while`, which JAX does not differentiate in reverse. With a derivative of `encode` the
parameters become the carry of the scan, and nothing else changes.

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
TOLERANCE = 1e-5

encode_jit = jax.jit(encode)


@jax.jit
def losses_of_epoch(p: Params, epoch: ab.Batch) -> jax.Array:
    """The loss of every tree of an epoch, float32[steps, BATCH]."""

    def step(carry: None, batch: ab.Batch) -> tuple[None, jax.Array]:
        _, _, loss = encode(p, batch)
        return carry, loss

    return jax.lax.scan(step, None, epoch)[1]


def losses_by_loop(p: Params, loader: ab.Loader[ab.Batch]) -> np.ndarray[Any, Any]:
    """The same, a call for each minibatch; the next ones are made ready meanwhile."""
    return np.stack([np.asarray(encode_jit(p, batch)[2]) for batch in loader])


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    return result, time.perf_counter() - start


def read_trees(folder: Path | None, limit: int | None) -> tuple[list[Phrase], int]:
    """The trees, and how many words there are."""
    if folder is None:
        return [binarised(tree) for tree in code_trees(limit)], len(KINDS)
    trees, words = sentiment_trees(folder / "dev.txt")
    return trees[:limit], len(words)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="the treebank: a folder with its dev.txt")
    parser.add_argument("--trees", type=int, help="use only so many trees")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=150)
    given = parser.parse_args(arguments)

    trees, words = read_trees(given.folder, given.trees)
    p = parameters(words, given.hidden)
    data = encode.pack(trees)
    encode_jit(p, data[:BATCH])  # from here on batches travel with the plan for such parameters

    minibatches = ab.Loader(data, BATCH, drop_last=True)
    epochs = ab.Loader(data, BATCH, drop_last=True, steps=len(minibatches), prefetch=1)
    print(f"{len(trees):,} trees, {len(minibatches)} minibatches of {BATCH}, hidden size {given.hidden}")
    worst = 0.0
    for number in range(given.epochs):
        looped, loop_seconds = timed(partial(losses_by_loop, p, minibatches))
        (epoch,) = epochs  # one item: the whole epoch
        scanned, scan_seconds = timed(partial(losses_of_epoch, p, epoch))
        worst = max(worst, largest_difference(scanned, looped))
        print(
            f"  epoch {number}: mean loss of a tree {float(np.mean(scanned)):9.4f}; minibatch by minibatch "
            f"{loop_seconds:.2f} s, as one executable {scan_seconds:.2f} s (epoch 0: compiling included)"
        )
    print(f"  largest difference {worst:.1e} (at most {TOLERANCE:.0e} is fine)")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
