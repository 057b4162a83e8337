"""Which function finds the value that an operand is: one for each operand, one for all of a cycle of the same type.

    h = tanh(h @ W + x)     reads itself: its cycle has one function for each type of value that it goes on with
    y = h @ V               reads the cycle, and is in none: its operand has a function of its own

Few functions call each other then, however many compounds a cycle has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx

from autobatch.call.tracing.classes import OpClass, OperandSlot, OperationClasses
from autobatch.call.tracing.compounds import Compound, Compounds


@dataclass
class ResultPool:
    """What some operands of one type may be: results of classes, or a number."""

    name: str
    type: Any
    producers: dict[tuple[int, int], None] = field(default_factory=dict)
    numbers: bool = False


class Dispatch:
    """The pools of a program's operands."""

    def __init__(self, classes: OperationClasses, compounds: Compounds) -> None:
        self.classes, self.compounds = classes, compounds
        self._of: dict[tuple[int, int], ResultPool] = {}
        self._ambiguous: dict[tuple[int, int], bool] = {}
        cycles, made = self._cycles(), dict[Hashable, ResultPool]()
        for c, j, slot in self._values():
            own = cycles.get(compounds.of_class[c.number].number)
            inside = own is not None and any(cycles.get(k) == own for k in self._read(slot))
            key: Hashable = (own, slot.type) if inside else (c.number, j, "alone")
            name = f"cycle{own}_{len(made)}" if inside else f"value{c.number}_{j}"
            pool = made.setdefault(key, ResultPool(name, slot.type))
            pool.producers.update(slot.producers)
            pool.numbers |= slot.numbers
            self._of[c.number, j] = pool

    def __call__(self, c: OpClass, j: int) -> ResultPool:
        """The pool of an operand."""
        return self._of[c.number, j]

    def _values(self) -> Iterator[tuple[OpClass, int, OperandSlot]]:
        """The operands that rows are read for."""
        for c in self.classes.all:
            for j, slot in enumerate(c.slots):
                inner = any((*p, c.number, j) in self.compounds.inner for p in slot.producers)
                if not c.uniform and slot.producers and slot.fixed is None and not inner:
                    yield c, j, slot

    def _read(self, slot: OperandSlot) -> list[int]:
        """The compounds that an operand may be of."""
        return [self.compounds.of_class[p].number for p, _ in slot.producers if not self.classes.all[p].uniform]

    def _cycles(self) -> dict[int, int]:
        """The cycle that a compound is in, by number, for those that are in one."""
        graph = networkx.DiGraph()
        for c, _, slot in self._values():
            graph.add_edges_from((self.compounds.of_class[c.number].number, k) for k in self._read(slot))
        found: dict[int, int] = {}
        for number, members in enumerate(sorted(map(sorted, networkx.strongly_connected_components(graph)))):
            if len(members) > 1 or graph.has_edge(members[0], members[0]):
                found.update(dict.fromkeys(members, number))
        return found

    def is_ambiguous(self, pool: ResultPool, of: Compound) -> bool:
        """Does a pool hold several results of a compound? Then rows say which one they mean."""
        key = id(pool), of.number
        if key not in self._ambiguous:
            self._ambiguous[key] = sum(self.compounds.of_class.get(p) is of for p, _ in pool.producers) > 1
        return self._ambiguous[key]
