"""Rows of a cycle of spaces that must compute the same, found by hashes: level by level, for all spaces together.

    h(row) = mix(salt + sum over its entries of (salt + what is known + h(row read)) * a factor of the entry's place)

Rows are equal where their hashes are. That is checked, entry by entry, against the first row of each hash: where two
rows of one hash differ, everything is hashed again.
(Hash-consing, Ershov 1958; sums of products as universal hashes, Carter and Wegman 1979.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints

# ---- ordering
#
# Orders of rows: sorted by small integers, and the distinct ones among equal rows.


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


# ---- levels
#
# Levels: when each row of a recurrence can be computed, by longest path over the rows it reads.
#
# All spaces of one recurrence are numbered together. An edge goes from a row to a row that reads it; its weight is 0
# when the reader's space comes later in the static order of one level, else 1. (Kahn 1962, one NumPy step for each
# front.)


def longest_paths(rows: int, source: Ints, target: Ints, weight: Ints) -> tuple[Ints, Ints]:
    """The level of each row, and the rows that lie on or behind a cycle (their level is -1)."""
    order = stable_order(source)
    target, weight = target[order], weight[order]
    count = np.bincount(source, minlength=rows)
    first = np.cumsum(count) - count
    waiting = np.bincount(target, minlength=rows)
    level = np.zeros(rows, np.int64)
    once = np.zeros(rows, np.int64)
    alike = bool(np.all(weight == 1))  # the level of a row is then the front that it is in
    fronts = 0
    front = np.flatnonzero(waiting == 0)
    while len(front):
        if alike:
            level[front] = fronts
            fronts += 1
        front = front[count[front] > 0]
        lengths = count[front]
        ends = lengths.cumsum()
        if not len(ends):
            break
        edge = (first[front] - ends + lengths).repeat(lengths)
        edge += np.arange(ends[-1])
        reached = target[edge]
        if not alike:
            np.maximum.at(level, reached, level[front].repeat(lengths) + weight[edge])
        np.subtract.at(waiting, reached, 1)
        front = reached[waiting[reached] == 0]
        if len(front) > 1:  # each once: the last of equal ones
            once[front] = numbers = np.arange(len(front))
            front = front[once[front] == numbers]
    stuck = np.flatnonzero(waiting > 0)
    level[stuck] = -1
    return level, stuck


Words = NDArray[np.uint64]

DEEPEST = 512
"""Levels beyond which rows are not numbered: chains repeat little, and each level costs a few NumPy calls."""


@dataclass
class Cycle:
    """Spaces that read each other: rows of all of them behind one another, from `offset` on. `parts`: entries, each
    with the row that has it, its place among those of the row, what is known of it, and the row it reads, or -1."""

    offset: Mapping[int, int]
    count: Mapping[int, int]
    parts: list[tuple[Ints, Ints, Ints, Ints]] = field(default_factory=list)

    @classmethod
    def of(cls, spaces: Sequence[int], counts: Sequence[int]) -> Cycle:
        """The cycle of some spaces with so many rows."""
        offsets = np.cumsum([0, *counts])[:-1].tolist()
        made = cls(dict(zip(spaces, offsets, strict=True)), dict(zip(spaces, counts, strict=True)))
        for number, space in enumerate(spaces):
            rows = np.arange(made.count[space])
            made.add(space, rows, np.zeros_like(rows), np.full_like(rows, number), None)
        return made

    @property
    def rows(self) -> int:
        return sum(self.count.values())

    def add(self, space: int, row: Ints, place: Ints, known: Ints, read: Ints | None) -> None:
        """Entries of rows of a space; their places count from the first entry that is added here."""
        place = place + (len(self.parts) << 32)
        self.parts.append((row + self.offset[space], place, known, np.full(len(row), -1) if read is None else read))

    def numbered(self) -> dict[int, Ints]:
        """A number for each row of each space, equal for equal rows; none where the rows are too deep."""
        row, place, known, read = (np.concatenate(x) for x in zip(*self.parts, strict=True))
        reads = np.flatnonzero(read >= 0)
        level, stuck = longest_paths(self.rows, read[reads], row[reads], np.ones(len(reads), np.int64))
        if len(stuck) or level.max(initial=0) > DEEPEST:
            return {}
        order = stable_order(row)
        entries = _RowEntries(row[order], place[order], known[order], read[order])
        seed = 0
        while True:
            hashes = _hashes(entries, level, seed)
            if are_distinct(hashes):
                numbers = np.arange(len(hashes))
                return {s: numbers[begin : begin + self.count[s]] for s, begin in self.offset.items()}
            numbers, first = _numbers(hashes)
            if entries.are_equal(numbers, first):
                return {s: numbers[begin : begin + self.count[s]] for s, begin in self.offset.items()}
            seed += 1


@dataclass(frozen=True)
class _RowEntries:
    """Entries of rows, those of a row behind one another in the order of their places."""

    row: Ints
    place: Ints
    known: Ints
    read: Ints

    def are_equal(self, numbers: Ints, first: Ints) -> bool:
        """Has each row the entries that the first one with its number has?"""
        count = np.bincount(self.row, minlength=len(numbers))
        begin = np.cumsum(count) - count
        like = first[numbers]
        if np.any(count != count[like]):
            return False
        same = np.arange(len(self.row)) + (begin[like] - begin).repeat(count)
        if np.any(self.place != self.place[same]) or np.any(self.known != self.known[same]):
            return False
        read = np.where(self.read >= 0, numbers[self.read], -1)
        return not np.any(read != read[same])


def _hashes(entries: _RowEntries, level: Ints, seed: int) -> Words:
    factor = _mixed(_mixed(entries.place.astype(np.uint64) + np.uint64(seed << 48)) + np.uint64(seed)) | np.uint64(1)
    salt = _mixed(
        np.array([seed + 1], np.uint64)
    )  # what is known to be 0 is something, too, and so is a row of nothing
    found = np.full(len(level), salt)
    np.add.at(found, entries.row, (entries.known.astype(np.uint64) + salt) * factor)
    reads = np.flatnonzero(entries.read >= 0)
    reads = reads[stable_order(level[entries.row[reads]])]
    row, read, factor = entries.row[reads], entries.read[reads], factor[reads]
    bounds = np.searchsorted(level[row], np.arange(1, level.max(initial=0) + 2)).tolist()
    order = stable_order(level)
    ends = np.cumsum(np.bincount(level)).tolist()
    begin = 0
    for number, end in enumerate(ends):
        if number:
            at = slice(bounds[number - 1], bounds[number])
            np.add.at(found, row[at], found[read[at]] * factor[at])
        mine = order[begin:end]
        found[mine] = _mixed(found[mine])
        begin = end
    return found


def are_distinct(hashes: Words) -> bool:
    """Is no hash there twice? Then no rows are equal. (Sorting takes half of the time of an order.)"""
    ordered = np.sort(hashes)
    return not np.any(ordered[1:] == ordered[:-1])


def _mixed(x: Words) -> Words:
    """Words whose bits depend on all bits (the finaliser of SplitMix64: Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _numbers(hashes: Words) -> tuple[Ints, Ints]:
    """A number for each hash, and where each number stands first."""
    order = np.argsort(hashes, kind="stable")
    new = np.ones(len(order), np.bool_)
    new[1:] = hashes[order[1:]] != hashes[order[:-1]]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers, order[new]
