"""Activations that the examples foretell: a class may say which functions are called on its objects.

    class Compound1: __autobatch_calls__ = {"": ("compound1",), "a1_0": ("value1_0",)}

`compound1` is called on every object of the class, `value1_0` on what their field `a1_0` holds. Inspection expands all
of these at once: it takes as many rounds as functions call one another, in place of as many as the data is deep. And it
checks what it was told: where a call leads to an activation that was not foreseen, or no call to one that was, all is
inspected again without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autobatch.data.columns import Columns, Ints
from autobatch.data.schema import Store
from autobatch.data.scopes import FunctionActivations
from autobatch.ir.core import Operand
from autobatch.ir.types import Ref

CALLS = "__autobatch_calls__"
"""The attribute of a class: the functions that are called on its objects (""), and on what a field of theirs holds."""


Pointers = Sequence[Ints | int]
"""The arguments of a call that are no structure; an integer is the pointer of all rows."""


class UnforeseenError(Exception):
    """What was foretold is not so."""


@dataclass
class ForeseenActivations:
    """The activations of one function: `number[row]` of a store is the activation, -1 where none was foreseen.
    `pointers`: what all of them have as their other arguments. `reached`: those that some call leads to."""

    number: Ints
    pointers: tuple[int, ...]
    reached: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def of(self, rows: Ints, pointers: Pointers) -> Ints:
        """The activations that a call leads to."""
        found = self.number[rows]
        if found.min(initial=0) < 0 or not all(map(_is_always, pointers, self.pointers)):
            raise UnforeseenError
        self.reached[found] = True
        return found


def _is_always(pointer: Ints | int, wanted: int) -> bool:
    return pointer == wanted if isinstance(pointer, int) else not (pointer != wanted).any()


class Foreseen:
    """What the classes of some examples foretell. `examples`: those that are inspected."""

    def __init__(self, columns: Columns, examples: Ints) -> None:
        self.columns, self.examples = columns, examples
        self.told = _told(columns)
        self.rows: dict[str, ForeseenActivations] = {}

    def first(self, kind: FunctionActivations, given: Pointers) -> tuple[Ints, Ints, dict[Operand, int]] | None:
        """The rows that a function is called on, their examples, and its other arguments, at its first call; None where
        nothing is told."""
        args = kind.function.region.args
        if len(kind.host_args) != 1 or kind.function.waits:
            return None
        type = args[kind.host_args[0]].type
        if not isinstance(type, Ref):
            return None
        name = kind.function.name.partition(".")[0]
        parts = [p for store, p in self.told.get(name, ()) if store == type.store]
        pointers = [p if isinstance(p, int) else int(p[0]) for p in given]
        if not parts or not all(map(_is_always, given, pointers)):
            return None
        starts = self.columns.starts[type.store]
        number = np.full(int(starts[-1]), -1)
        for part in parts:
            number[part] = 0
        if len(self.examples) < self.columns.count:
            left_out = np.ones(self.columns.count, bool)
            left_out[self.examples] = False
            number[np.repeat(left_out, np.diff(starts))] = -1
        rows = np.flatnonzero(number == 0)
        number[rows] = np.arange(len(rows))
        self.rows[kind.function.name] = ForeseenActivations(number, tuple(pointers), np.zeros(len(rows), np.bool_))
        examples = np.searchsorted(starts, rows, side="right") - 1
        return rows, examples, {args[k]: p for k, p in zip(kind.pointer_args, pointers, strict=True)}

    def check(self) -> None:
        """Raise UnforeseenError unless calls lead to all that was foreseen."""
        if not all(r.reached.all() for r in self.rows.values()):
            raise UnforeseenError


def _told(columns: Columns) -> dict[str, list[tuple[str, Ints]]]:
    """By the name of a function: the stores whose rows it is called on, with these rows."""
    found: dict[str, list[tuple[str, Ints]]] = {}
    for store in columns.schema.stores:
        for k, calls in _classes(store):
            mine = np.flatnonzero(columns.arrays[f"{store.name}.#tag"] == k)
            for name in calls.get("", ()):
                found.setdefault(name, []).append((store.name, mine))
            for field in store.fields:
                if k in field.classes and isinstance(field.type, Ref) and field.name in calls:
                    held = columns.arrays[field.column][mine].astype(np.int64)
                    for name in calls[field.name]:
                        found.setdefault(name, []).append((field.type.store, held[held >= 0]))
    return found


def _classes(store: Store) -> Iterator[tuple[int, Mapping[str, tuple[str, ...]]]]:
    for k, c in enumerate(store.classes):
        calls = None if c.cls is None else vars(c.cls).get(CALLS)
        if calls is not None:
            yield k, calls
