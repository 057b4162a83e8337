"""What the entry returns beside numbers: references, tags and lists of them, which the host has computed.

Lists are tuples there. As results they are their innermost elements behind one another, and the lengths at each depth:

    ((4, 5), (6,)), ()      ->      values 4 5 6,  lengths (2, 0), (2, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints
from autobatch.data.items import is_list
from autobatch.ir.types import BuiltObject, List, Ref, Type

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
