"""What the entry returns beside numbers: references, tags and lists of them, which the host has computed.

Lists are tuples there. As results they are their innermost elements behind one another, and the lengths at each depth:

    ((4, 5), (6,)), ()      ->      values 4 5 6,  lengths (2, 0), (2, 1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints
from autobatch.ir.types import BuiltObject, List, Ref, Type

# ---- items
#
# Lists of the host that a program joins: a list that grows turn by turn takes no more room than its elements.
#
# `out = out + [x]` in a loop makes a list a turn, and each of them is kept, as an argument that later turns are
# compared with. As tuples they would take the square of the turns. Here lists that begin alike share one buffer, of
# which each sees its own number of elements; their hash is carried along, so that comparing two of them seldom looks at
# elements.
#
#     out = (3, 7)           joined((out, (9,)))      buffer 3 7 9, length 3
#     again = out + (8,)     joined((out, (8,)))      the buffer goes on with 9 behind `out`: a buffer of its own


_BASE, _PRIME = 1_000_003, (1 << 61) - 1


class Items:
    """A list as long as `length`, in a buffer that longer ones may share. Equal to others with equal elements."""

    __slots__ = ("buffer", "hashed", "length")

    def __init__(self, buffer: list[Any], length: int, hashed: int) -> None:
        self.buffer, self.length, self.hashed = buffer, length, hashed

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.buffer[: self.length])

    def __getitem__(self, index: int) -> Any:
        if not -self.length <= index < self.length:
            raise IndexError("list index out of range")
        return self.buffer[index if index >= 0 else index + self.length]

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Items) or (self.length, self.hashed) != (other.length, other.hashed):
            return False
        if self.buffer is other.buffer:
            return True
        return self.buffer[: self.length] == other.buffer[: other.length]

    def __repr__(self) -> str:
        return f"Items({self.buffer[: self.length]})"

    def followed_by(self, more: Sequence[Any]) -> Items:
        """This list and then `more`; the buffer is taken on where nothing stands behind this list. Raises TypeError
        for elements without a hash."""
        if not more:
            return self
        hashed = self.hashed
        for x in more:
            hashed = (hashed * _BASE + hash(x) + 1) % _PRIME
        buffer = self.buffer if len(self.buffer) == self.length else self.buffer[: self.length]
        buffer.extend(more)
        return Items(buffer, len(buffer), hashed)


def joined(lists: Sequence[Any]) -> Any:
    """The elements of all lists behind one another: `Items`, or a tuple where elements have no hash (arrays)."""
    try:
        whole = Items([], 0, 0)
        for k, items in enumerate(lists):
            whole = items if k == 0 and isinstance(items, Items) else whole.followed_by(tuple(items))
        return whole
    except TypeError:
        return tuple(x for items in lists for x in items)


def is_list(value: Any) -> bool:
    """Is it a list of the host? What is undefined is none."""
    return isinstance(value, tuple | Items)


MADE_STORE = "#made"
"""The store that objects made by the program are rows of."""


def flat_lists(lists: Sequence[Any], depth: int) -> tuple[list[Any], tuple[Ints, ...]]:
    """The innermost elements of tuples nested so deep, and the lengths of the lists of each depth."""
    lengths = []
    for _ in range(depth):
        lists = [x if is_list(x) else () for x in lists]  # what is undefined is no tuple, and never read
        lengths.append(np.array([len(x) for x in lists], np.int64))
        lists = [y for x in lists for y in x]
    return list(lists), tuple(lengths)


def owners(lengths: Sequence[Ints]) -> Ints:
    """For each innermost element the position of the outermost list that it is in."""
    found = np.arange(len(lengths[0]))
    for held in lengths:
        found = np.repeat(found, held)
    return found


def element_type(type: Type) -> Type:
    """The type of the innermost elements of lists that the program made."""
    while isinstance(type, List) and type.store is None:
        type = type.elem
    return type


def depth_of(type: Type) -> int:
    """How deep lists that the program made are nested."""
    return 1 + depth_of(type.elem) if isinstance(type, List) and type.store is None else 0


def store_of(type: Type) -> str | None:
    """The store that values of a type are rows of."""
    held = element_type(type)
    if isinstance(held, BuiltObject):
        return MADE_STORE
    return held.store if isinstance(held, Ref | List) else None


def relative(rows: NDArray[Any], owner: Ints, starts: Ints) -> NDArray[Any]:
    """Rows counted from the first one of their example; null stays null."""
    return np.where(rows >= 0, rows - starts[owner], -1)
