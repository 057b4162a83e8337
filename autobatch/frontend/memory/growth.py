"""Recursion that builds: results that nest deeper from round to round of the lowering.

    double: Node(x, None)  ->  Node(x, Node(x, None) or None)  ->  ...  ->  made<>

The type of such a result would never be the same in two rounds. The containers that hold themselves become made
objects (`boxes.py`), which are of one type however deep they nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from autobatch.frontend.lowering.state import LoweringMemory
from autobatch.frontend.types.layouts import Layout, LeafLayout, ListingLayout, OptionalLayout, RecordLayout
from autobatch.frontend.types.unify import optional, unaliased
from autobatch.ir.types import MADE

GROWTH = 2
"""How often the result of a recursion may nest deeper from round to round, before its objects are made."""

MANY = 50
"""Containers in a variable from which on a loop in which it nests deeper is not tried again."""


def settled(memory: LoweringMemory, function: Hashable, before: Layout, now: Layout) -> Layout:
    """The layout of what a recursive function returns. Where it nests deeper from round to round it would never be
    the same twice: the containers that hold themselves are made objects."""
    deeper = _depths(now) - _depths(before)
    if not deeper:
        return now
    memory.grown[function] = memory.grown.get(function, 0) + 1
    return _boxed_layout(unaliased(now), set(deeper)) if memory.grown[function] > GROWTH else now


def linked(layouts: Iterable[Layout]) -> list[type]:
    """The classes of the user whose objects hold objects of the same class."""
    deep = (key for layout in layouts for key, depth in _depths(layout).items() if depth > 1)
    return list(dict.fromkeys(cls for _, cls, _ in deep if cls is not None))


def deepest(before: Layout, now: Layout) -> tuple[list[type], int]:
    """The classes of the user whose objects hold objects of the same class, deeper than they did; and how deep any
    containers lie in those of their kind that did not."""
    depths = _depths(now)
    grown = {key: depths[key] for key in depths - _depths(before) if depths[key] > 1}
    return [cls for _, cls, _ in grown if cls is not None], max(grown.values(), default=0)


def nests_without_end(before: Layout, now: Layout) -> bool:
    """Do containers lie deeper in one another than a turn of a loop before, and so many that it is no chain of
    variables? What holds two of its kind has twice as many in each turn."""
    return bool(_depths(now) - _depths(before)) and _count(now) > MANY


def _count(layout: Layout) -> int:
    """How many containers a value is made of."""
    return isinstance(layout, RecordLayout) + sum(map(_count, _parts(layout)))


def _depths(layout: Layout) -> Counter[Any]:
    """For each class of containers, how many of it lie in one another."""
    found: Counter[Any] = Counter()
    for inner in _parts(layout):
        found |= _depths(inner)
    if isinstance(layout, RecordLayout) and layout.items:
        found[layout.kind, layout.cls, layout.keys] += 1
    return found


def _parts(layout: Layout) -> Iterator[Layout]:
    match layout:
        case RecordLayout(items=items):
            yield from items
        case OptionalLayout(value=inner) | ListingLayout(elem=inner):
            yield inner
        case _:
            return


def _boxed_layout(layout: Layout, classes: set[Any]) -> Layout:
    match layout:
        case RecordLayout(kind, keys, items, cls, _):
            if (kind, cls, keys) in classes:
                return LeafLayout(MADE)
            return replace(layout, items=tuple(_boxed_layout(x, classes) for x in items))
        case OptionalLayout(value=inner, unset=unset):
            boxed = _boxed_layout(inner, classes)
            return OptionalLayout(boxed, unset) if unset else optional(boxed)
        case ListingLayout(elem=elem):
            return replace(layout, elem=_boxed_layout(unaliased(elem), classes))
        case _:
            return layout
