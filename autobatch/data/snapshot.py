"""What plain objects held when they were packed: to tell whether they still do, without packing them again.

Of the objects that one leads to, the names and values of all fields are kept, and compared by identity: a field that
was set, or a list that was changed, shows. Objects whose numbers can change in place (arrays) have no snapshot.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

FIXED = (int, float, bool, type(None))
"""The classes of values that never change."""


class Snapshot:
    """`of` gives one; it keeps the objects alive."""

    def __init__(self, objects: list[Any], lists: list[list[Any]]) -> None:
        self.objects, self.lists = objects, lists
        self.classes = list(map(type, objects))
        fields = list(map(vars, objects))
        self.names, self.held = list(chain.from_iterable(fields)), self._values(fields)
        self.lengths = self._lengths(fields)

    @staticmethod
    def of(root: Any) -> Snapshot | None:
        """None where something that `root` leads to is no plain object or list, and no number."""
        objects: list[Any] = []
        lists: list[list[Any]] = []
        seen = set[int]()
        todo = [root]
        while todo:
            x = todo.pop()
            if type(x) in FIXED or id(x) in seen:
                continue
            seen.add(id(x))
            if type(x) is list:
                lists.append(x)
                todo += x
            elif type(getattr(x, "__dict__", None)) is dict and not hasattr(type(x), "__slots__"):
                objects.append(x)
                todo += vars(x).values()
            else:
                return None
        return Snapshot(objects, lists)

    def _values(self, fields: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What all objects and lists hold, by one call of the interpreter's, which takes a third of the time of a chain
        over them. (What a dict refers to is its values, and keys that are no strings.)"""
        return gc.get_referents(*fields, *self.lists)

    def _lengths(self, fields: Sequence[Mapping[str, Any]]) -> list[int]:
        return list(map(len, chain(fields, self.lists)))

    def holds(self) -> bool:
        """Do all objects hold what they held?"""
        fields = list(map(vars, self.objects))
        now = self._values(fields)
        if len(now) != len(self.held) or self._lengths(fields) != self.lengths:
            return False
        same = list(chain.from_iterable(fields)) == self.names and list(map(type, self.objects)) == self.classes
        return same and all(map(is_, now, self.held))
