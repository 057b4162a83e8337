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

from autobatch.planning.levels import longest_paths
from autobatch.planning.ordering import stable_order

Ints = NDArray[np.int64]
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
