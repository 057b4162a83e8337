"""Orders of rows: sorted by small integers, and the distinct ones among equal rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def stable_order(keys: Ints) -> Ints:
    """A stable argsort of non-negative integers: by radix, of 16 bits at a time, where they are small, as levels and
    numbers of rows are."""
    most = int(keys.max(initial=0))
    if most >= 2**32:
        return np.argsort(keys, kind="stable")
    order = np.argsort(keys.astype(np.uint16), kind="stable")  # by the lower bits
    if most < 2**16:
        return order
    return order[np.argsort((keys >> 16).astype(np.uint16)[order], kind="stable")]


def inverse(order: Ints) -> Ints:
    """Where each entry of a permutation stands."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def distinct_rows(numbers: Ints, size: int, room: int = 65536) -> tuple[Ints, Ints]:
    """The rows whose number stands in no row before them, ascending; and which of these every row equals. Numbers are
    less than `size`; they are found by marks where these take little room, as value numbers of a data set do."""
    if size > 16 * len(numbers) + room:
        _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return first[order], inverse(order)[which]
    at = np.arange(len(numbers))
    mark = np.empty(size, np.int64)  # only what is written here is read
    mark[numbers[::-1]] = at[::-1]  # of equal numbers, the first is written last
    first_equal = mark.take(numbers)
    new = first_equal == at
    return new.nonzero()[0], (new.cumsum() - 1).take(first_equal)
