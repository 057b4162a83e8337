"""Which examples the minibatches of an epoch hold: decided by a seed and the number of the epoch alone.

    count=7, batch_size=3           [4 0 6] [2 5 1] [3]          shuffled; the last minibatch is what is left
    drop_last=True                  [4 0 6] [2 5 1]
    keys (sizes of the examples)    similar examples together, the minibatches in random order

Bucketing: what is left over, if anything, is drawn first, so that no example is left out more often than another. The
others are permuted and cut into pools of `POOL` minibatches. Within a pool they are sorted by their keys, each moved by
up to one minibatch at random, so that the same examples do not meet in every epoch. Then the minibatches of all pools
are permuted.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

POOL = 32
"""Bucketing sorts so many minibatches at a time."""


@dataclass(frozen=True)
class Sampling:
    """`keys[i]`: what examples are bucketed by; None: not at all. Without `shuffle` examples come in their order, or in
    that of their keys."""

    count: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    keys: npt.NDArray[np.generic] | None = None

    @property
    def batches(self) -> int:
        """Minibatches an epoch."""
        whole, rest = divmod(self.count, self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def epoch(self, number: int) -> list[Ints]:
        """The examples of each minibatch of an epoch, in their order."""
        rng = np.random.default_rng((self.seed, number))
        order: Ints = rng.permutation(self.count) if self.shuffle else np.arange(self.count)
        if self.keys is not None and not self.shuffle:
            order = np.argsort(self.keys, kind="stable")
        rest = self.count % self.batch_size
        rows = order[: self.count - rest]
        if self.keys is not None and self.shuffle:
            rows = self._bucketed(rows, self.keys, rng)
        batches = list(rows.reshape(-1, self.batch_size))
        if rest and not self.drop_last:
            batches.append(order[-rest:])
        return batches

    def _bucketed(self, rows: Ints, keys: npt.NDArray[np.generic], rng: np.random.Generator) -> Ints:
        size = POOL * self.batch_size
        pools = []
        for start in range(0, len(rows), size):
            pool = rows[start : start + size]
            pool = pool[np.argsort(keys[pool], kind="stable")]
            place = np.arange(len(pool)) + rng.uniform(0, self.batch_size, len(pool))
            pools.append(pool[np.argsort(place, kind="stable")])
        batches = np.concatenate(pools).reshape(-1, self.batch_size) if pools else rows.reshape(0, self.batch_size)
        return rng.permutation(batches).reshape(-1)


def checksum(batches: list[Ints]) -> int:
    """A number that tells orders apart."""
    total = 0
    for rows in batches:
        total = crc32(np.ascontiguousarray(rows, "<i8").tobytes(), crc32(len(rows).to_bytes(8, "little"), total))
    return total
