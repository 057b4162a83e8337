"""What several batches of one result have in common: objects that one of them made are those of the others too.

A store is the same in two batches where all columns that its objects are made of, and those of all that they lead to,
lie at the same places in memory: `return first, last` gives two batches, and one object for each row of their memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from autobatch.data.schema import Schema
from autobatch.ir.types import List, Ref, Type

Token = Hashable


class Common:
    """Objects and lists that were made, by what tells their store from others."""

    def __init__(self) -> None:
        self.made: dict[Token, list[Any]] = {}


def tokens_of(schema: Schema, places: Mapping[str, int]) -> dict[str, Token]:
    """What tells each store and list store from others. `places`: where each column lies."""
    held: dict[str, tuple[Sequence[str], tuple[int, ...]]] = {}
    for store in schema.stores:
        names = [f"{store.name}.#tag", *(n for f in store.fields for n in (f.column, f"{f.column}?"))]
        held[store.name] = [n for f in store.fields for n in _names(f.type)], _places(names, places)
    for items in schema.lists:
        names = [f"{items.name}.#{part}" for part in ("offsets", "values", "values?")]
        held[items.name] = _names(items.elem), _places(names, places)
    return {name: tuple(held[n][1] for n in _reached(name, held)) for name in held}


def _places(names: list[str], places: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(places.get(n, 0) for n in names)


def _names(type: Type) -> tuple[str, ...]:
    """The store that values of a type are rows of, and that of its elements."""
    match type:
        case Ref(store=store):
            return (store,)
        case List(elem=elem, store=str(store)):
            return (store, *_names(elem))
        case _:
            return ()


def _reached(name: str, held: Mapping[str, tuple[Sequence[str], Any]]) -> list[str]:
    """A store, first, and all that its objects lead to."""
    found = {name: None}
    todo = [name]
    while todo:
        for other in held[todo.pop()][0]:
            if other in held and other not in found:
                found[other] = None
                todo.append(other)
    return list(found)
