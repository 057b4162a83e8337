"""Steps of all runs that are the same operation from the same place: classes, and what each of their operands is.

    h = p["W"] * h + x      Step(mul, line 3, (Shared(0), Known(0.0)))   example 0, the first turn
                            Step(mul, line 3, (Shared(0), Out(1)))       the second
      ->   class 0: mul, operands: Shared(0); a value: of class 1, or a number

What is known of a class only grows: a batch that shows more makes another program, a batch that shows less does not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autobatch.traces.copying import rebuilt
from autobatch.traces.record import (
    NO_PLACE,
    Given,
    Items,
    Kind,
    Known,
    Leaf,
    Operand,
    Out,
    Place,
    Rows,
    Run,
    Shared,
    Step,
    Uniform,
)

_FIXED = (Shared, Uniform)
RESULT = "result"
WORD: tuple[tuple[int, ...], Any] = ((), "word")
LIST: tuple[tuple[int, ...], Any] = ((), "list")
"""The types of what is no number in a result."""


@dataclass
class Slot:
    """An operand of a class. `fixed`: the shared value that it always is. Else `numbers`: it has been a number that is
    known, `same`: always this one; `producers`: it has been results of these classes."""

    type: tuple[tuple[int, ...], Any]
    fixed: Shared | Uniform | None = None
    numbers: bool = False
    same: Any = None
    producers: dict[tuple[int, int], None] = field(default_factory=dict)

    @property
    def is_constant(self) -> bool:
        return self.same is not None and not self.producers

    @property
    def is_data(self) -> bool:
        """Is it always a number of the example?"""
        return self.fixed is None and not self.producers and not self.is_constant

    def see_number(self, value: Any) -> bool:
        """Meet a number; does that make the class another one?"""
        if not self.numbers:
            self.numbers = True
            if not self.producers:
                self.same = value
            return True
        if self.same is not None and not equal_numbers(self.same, value):
            self.same = None
            return True
        return False

    def see_given(self) -> bool:
        """Meet a number of an example."""
        if self.numbers and self.same is None:
            return False
        self.numbers, self.same = True, None
        return True

    def see(self, producer: tuple[int, int]) -> bool:
        if producer in self.producers:
            return False
        self.producers[producer] = None
        self.same = None
        return True


def equal_numbers(a: Any, b: Any) -> bool:
    """Are two numbers that Python knows the same, bit by bit?"""
    if a is b:
        return True
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    x, y = np.asarray(a), np.asarray(b)
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


@dataclass
class OpClass:
    """An operation at a place. `kind` is None for what a run returns, or an element of a list in it: `structure` is
    what its operands are put into."""

    number: int
    kind: Kind | None
    place: Place
    slots: list[Slot]
    uniform: bool = False
    structure: Any = None

    @property
    def name(self) -> str:
        return RESULT if self.kind is None else str(self.kind.key[0])  # type: ignore[index]


@dataclass
class Instances:
    """The steps of a batch that are needed, those of each example behind one another: `classes[k]` is the class of step
    `k`, `operands[k]` what it reads, with the numbers of steps in this batch."""

    classes: np.ndarray
    operands: list[tuple[Operand, ...]]
    roots: list[int]
    new: set[int] = field(default_factory=set)
    """The runs that showed what no run before them did."""
    edges: Any = None
    """Who reads what, once `compounds` has found out."""


class Classes:
    """The classes of one function."""

    def __init__(self) -> None:
        self.all: list[OpClass] = []
        self.version = 0
        self._by_key: dict[Hashable, OpClass] = {}
        self._of_steps: dict[Hashable, OpClass] = {}

    def add(self, runs: Sequence[Run]) -> Instances:
        """The runs of a batch as instances of classes."""
        numbers: list[int] = []
        operands: list[tuple[Operand, ...]] = []
        roots: list[int] = []
        shown: set[int] = set()
        for number, run in enumerate(runs):
            known = self.version
            new: dict[int, int] = {}
            for k in _needed(run):
                step = run.steps[k]
                moved = tuple(_moved(x, new) for x in step.operands)
                new[k] = len(numbers)
                self._append(numbers, operands, self._class_of(step), moved)
            leaves = [_moved(x, new) for x in run.leaves]
            roots.append(self._result(run, run.result, leaves, numbers, operands))
            if self.version != known:
                shown.add(number)
        found = Instances(np.array(numbers, np.int64), operands, roots, shown)
        self._see(found)
        self._find_uniform()
        return found

    def _append(
        self, numbers: list[int], operands: list[tuple[Operand, ...]], of: OpClass, moved: tuple[Operand, ...]
    ) -> None:
        numbers.append(of.number)
        operands.append(moved)

    def _class_of(self, step: Step) -> OpClass:
        key = step.kind, step.place, step.types, *[x if type(x) in _FIXED else None for x in step.operands]
        found = self._of_steps.get(key)
        if found is None:
            pairs = zip(step.operands, step.types, strict=True)
            slots = tuple(x if isinstance(x, (Shared, Uniform)) else t for x, t in pairs)
            found = self._get((step.kind, step.place, slots), step.kind, step.place, slots, step.types)
            self._of_steps[key] = found
        return found

    def _result(
        self, run: Run, result: Any, leaves: Sequence[Operand], numbers: list[int], operands: list[tuple[Any, ...]]
    ) -> int:
        """The step that a result is, or an element of a list in it; behind those of its elements."""
        found: list[Any] = []
        types: list[Any] = []

        def put(x: Any, type: Any) -> int:
            found.append(x)
            types.append(type)
            return len(found) - 1

        def template(x: Any) -> Any:
            match x:
                case Leaf(number=k):
                    return Leaf(put(leaves[k], _type_of(run.leaves[k], run)))
                case Items(elements=elements):
                    steps = [self._result(run, e, leaves, numbers, operands) for e in elements]
                    return Items(number=put(Rows(tuple(steps)), LIST))
                case str():
                    return Leaf(put(Known(x), WORD))
                case tuple():
                    parts = [template(y) for y in x]
                    return rebuilt(x, parts)
                case dict():
                    return {k: template(y) for k, y in x.items()}
                case _:
                    return x

        structure = template(result)
        slots = tuple(x if isinstance(x, (Shared, Uniform)) else t for x, t in zip(found, types, strict=True))
        of = self._get((RESULT, shape_of(structure), slots), None, NO_PLACE, slots, types)
        of.structure = structure
        self._append(numbers, operands, of, tuple(found))
        return len(numbers) - 1

    def _get(
        self, key: Hashable, kind: Kind | None, place: Place, slots: Sequence[Any], types: Sequence[Any]
    ) -> OpClass:
        found = self._by_key.get(key)
        if found is None:
            made = [Slot(t, s if isinstance(s, (Shared, Uniform)) else None) for s, t in zip(slots, types, strict=True)]
            found = self._by_key[key] = OpClass(len(self.all), kind, place, made)
            self.all.append(found)
            self.version += 1
        return found

    def _see(self, found: Instances) -> None:
        """Meet the operands of all instances."""
        run = 0
        for k, (number, operands) in enumerate(zip(found.classes.tolist(), found.operands, strict=True)):
            for slot, x in zip(self.all[number].slots, operands, strict=True):
                if self._meet(slot, x, found):
                    found.new.add(run)
                    self.version += 1
            run += k == found.roots[run]

    def _meet(self, slot: Slot, x: Any, found: Instances) -> bool:
        """Meet one operand; is it of a kind that was not met before?"""
        if isinstance(x, Out):
            return slot.see((int(found.classes[x.step]), x.number))
        if isinstance(x, Known):
            return slot.see_number(x.value)
        if isinstance(x, Given):
            return slot.see_given()
        if isinstance(x, Rows):
            return sum(slot.see((int(found.classes[step]), 0)) for step in x.steps) > 0
        return False

    def _find_uniform(self) -> None:
        """Mark classes that compute the same for all examples."""
        for c in self.all:
            c.uniform = False
        changed = True
        while changed:
            changed = False
            for c in self.all:
                if not c.uniform and c.kind is not None and all(map(self._is_uniform, c.slots)):
                    c.uniform = changed = True

    def _is_uniform(self, slot: Slot) -> bool:
        if slot.fixed is not None or slot.is_constant:
            return True
        return not slot.numbers and len(slot.producers) == 1 and self.all[next(iter(slot.producers))[0]].uniform

    def fixed(self) -> Iterator[Shared | Uniform]:
        """The shared values that classes read."""
        return (s.fixed for c in self.all for s in c.slots if s.fixed is not None)


def shape_of(structure: Any) -> Any:
    """The containers of a structure, as a key."""
    if isinstance(structure, (Leaf, Items)):
        return type(structure)
    if isinstance(structure, tuple):
        return (type(structure), *map(shape_of, structure))
    if isinstance(structure, dict):
        return (dict, *((k, shape_of(x)) for k, x in structure.items()))
    return structure


def _needed(run: Run) -> list[int]:
    """The steps that the result depends on, in order."""
    needed = set[int]()
    waiting = [x.step for x in run.leaves if isinstance(x, Out)]
    while waiting:
        k = waiting.pop()
        if k not in needed:
            needed.add(k)
            waiting += [x.step for x in run.steps[k].operands if isinstance(x, Out)]
    return sorted(needed)


def _moved(x: Operand, new: dict[int, int]) -> Operand:
    return Out(new[x.step], x.number) if isinstance(x, Out) else x


def _type_of(x: Operand, run: Run) -> Any:
    if isinstance(x, Out):
        of = run.steps[x.step].kind.outs[x.number]
        return of.shape, of.dtype
    if isinstance(x, Given):
        return x.shape, x.dtype
    if isinstance(x, Known):
        held = np.asarray(x.value)
        return held.shape, held.dtype
    return x
