"""What plain objects held when they were packed: to tell whether they still do, without packing them again.

Of the objects that one leads to, the names and values of all fields are kept, and compared by identity: a field that
was set, or a list that was changed, shows. Objects whose numbers can change in place (arrays) have no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import is_
from typing import Any

FIXED = (int, float, bool, type(None))
"""The classes of values that never change."""


class Snapshot:
    """`of` gives one; it keeps the objects alive."""

    def __init__(self, objects: list[Any], lists: list[list[Any]]) -> None:
        self.objects, self.lists = objects, lists
        self.held = list(self._now())

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

    def _now(self) -> Iterable[Any]:
        fields = [vars(x) for x in self.objects]
        return chain(map(type, self.objects), *fields, *(d.values() for d in fields), *self.lists)

    def holds(self) -> bool:
        """Do all objects hold what they held?"""
        now = list(self._now())
        return len(now) == len(self.held) and all(map(is_, now, self.held))
