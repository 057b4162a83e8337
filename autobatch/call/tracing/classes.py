"""Operations of all runs that are the same one from the same place: classes, and what each of their operands is.

    h = p["W"] * h + x      site 2: mul, line 3, words FIXED, number 0.0      example 0, the first turn
                            site 2: mul, line 3, words FIXED, result 1        the second
      ->   class 0: mul, operands: Shared(0); a value: of class 1, or a number

What is known of a class only grows: a batch that shows more makes another program, a batch that shows less does not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import numpy as np

from autobatch.call.tracing.filled import rebuilt
from autobatch.call.tracing.log import (
    FIXED,
    GIVEN,
    MOST_SMALL,
    NO_PLACE,
    NUMBERS,
    OUTS,
    SMALL,
    CodePlace,
    Fixed,
    ItemsMarker,
    Kinds,
    LeafMarker,
    OperationKind,
    OperationSite,
    SharedMarker,
    TracedRun,
    Uniform,
    value_of,
)
from autobatch.call.tracing.returned import Checked, FreePlace, Prints
from autobatch.data.columns import Ints, ranges

MANY = 4
"""An operation at one place that reads more than so many shared values, all of them small, is one class, and rows say
which of them each reads."""
RESULT, _AS_IT_IS = "result", "shared"
WORD: tuple[tuple[int, ...], Any] = ((), "word")
"""The type of a string in a result."""


def list_type(of: Any) -> tuple[tuple[int, ...], Any]:
    """The type of a list in a result, whose elements are so."""
    return (), ("list", of)


@dataclass
class OperandSlot:
    """An operand of a class. `fixed`: the shared value that it always is. Else `numbers`: it has been a number that is
    known, `same`: always this one, which has been `word`; `producers`: it has been results of these classes."""

    type: tuple[tuple[int, ...], Any]
    fixed: SharedMarker | Uniform | None = None
    numbers: bool = False
    same: Any = None
    word: int = 0
    producers: dict[tuple[int, int], None] = field(default_factory=dict)

    @property
    def is_constant(self) -> bool:
        return self.same is not None and not self.producers

    @property
    def is_data(self) -> bool:
        """Is it always a number of the example?"""
        return self.fixed is None and not self.producers and not self.is_constant

    def see_number(self, value: Any, word: int) -> bool:
        """Meet a number; does that make the class another one?"""
        if not self.numbers:
            self.numbers = True
            if not self.producers:
                self.same, self.word = value, word
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
    kind: OperationKind | None
    place: CodePlace
    slots: list[OperandSlot]
    uniform: bool = False
    structure: Any = None

    @property
    def name(self) -> str:
        return RESULT if self.kind is None else str(self.kind.key[0])  # type: ignore[index]


@dataclass
class Instances:
    """The operations of a batch that are needed, those of each example in order, then what the examples return:
    `classes[k]` is the class of instance `k`, `run[k]` its example. What they read are *entries*, sorted by instance:
    entry `e` is an operand of instance `owner[e]`, the one with the number `slot[e]` among the slots of all classes.
    It is result `out[e]` of instance `producer[e]`, or (-1) the number `word[e]`; of a list there is an entry for each
    `element`. `roots[i]`: what example i returns."""

    classes: Ints
    run: Ints
    owner: Ints
    slot: Ints
    producer: Ints
    out: Ints
    word: Ints
    element: np.ndarray[Any, np.dtype[np.bool_]]
    roots: Ints
    numbers: Sequence[Any]
    own: Sequence[Sequence[Any]]
    new: set[int] = field(default_factory=set)
    """The runs that showed what no run before them did."""
    edges: Any = None
    """Who reads what, and the row that each instance is in, once `compounds` has found out."""
    rows: Any = None

    def value(self, entry: int) -> Any:
        """The number that an entry is, which lies in no column."""
        return value_of(int(self.word[entry]), self.numbers, self.own[self.run[self.owner[entry]]])


@dataclass
class _Results:
    """What runs return, as instances behind those of the batch; a list of entries for each part of `Instances`."""

    count: int
    classes: list[int] = field(default_factory=list)
    run: list[int] = field(default_factory=list)
    entries: list[tuple[int, int, int, int, int, bool]] = field(default_factory=list)


class OperationClasses:
    """The classes of one function. `slots`: those of all classes, behind one another; `first[c]`: where those of class
    `c` begin, `first_out[c]`: where its results do, counted likewise."""

    def __init__(self) -> None:
        self.all: list[OpClass] = []
        self.version = 0
        self.slots: list[OperandSlot] = []
        self.first: list[int] = []
        self.first_out: list[int] = [0]
        self._by_key: dict[Hashable, OpClass] = {}
        self._of_site = np.zeros(0, np.int64)
        self._alike: dict[Hashable, list[OperationSite]] = {}
        self._general: set[int] = set()
        self._pairs = np.zeros(0, np.int64)

    @property
    def general(self) -> int:
        """How many sites are of classes that read many shared values."""
        return len(self._general)

    def add(self, runs: Sequence[TracedRun], kinds: Kinds) -> Instances:
        """The runs of a batch as instances of classes."""
        known = self.version
        found = self._instances(runs, kinds)
        self._see(found)
        if self.version != known:
            self._find_uniform()
        return found

    def _instances(self, runs: Sequence[TracedRun], kinds: Kinds) -> Instances:
        count = np.array([len(r.log.sites) for r in runs], np.int64)
        begin = np.cumsum(count) - count
        site = _joined([r.log.sites for r in runs])
        word = _joined([r.log.words for r in runs])
        arity = np.array(kinds.arity, np.int64)[site]
        owner = np.repeat(np.arange(len(site)), arity)
        run = np.repeat(np.arange(len(runs)), count)
        producer = np.where(word >= 0, (word >> OUTS) + begin[run[owner]], -1)
        leaves = [x + (int(b) << OUTS) for r, b in zip(runs, begin, strict=True) for x, _ in r.leaves
                  if isinstance(x, int) and x >= 0]  # fmt: skip
        place = np.arange(len(owner)) - np.repeat(np.cumsum(arity) - arity, arity)
        alive = _needed(np.array(leaves, np.int64) >> OUTS, producer, owner, arity)
        new_class = len(self.all)
        classes = self._classes_of(site[alive], kinds)
        moved = np.cumsum(alive) - 1
        kept = alive[owner]
        owner, producer, word, place = owner[kept], producer[kept], word[kept], place[kept]
        owner, producer = moved[owner], np.where(producer >= 0, moved[producer], -1)
        run = run[alive]
        results = _Results(len(classes))
        roots = [
            self._result(r, n, r.result, moved[b:], results) for n, (r, b) in enumerate(zip(runs, begin, strict=True))
        ]
        shared, own_classes, readers = self._fixed(
            site[alive][owner], place, np.flatnonzero(word == FIXED), kinds, len(classes) + len(results.classes)
        )
        slot = np.array(self.first, np.int64)[classes][owner] + place
        out = np.where(word >= 0, word & (1 << OUTS) - 1, 0)
        producer = np.where(shared >= 0, shared, producer)
        results.classes += [c.number for c in own_classes]
        results.run += run[owner[readers]].tolist()
        more = np.array(results.entries, np.int64).reshape(-1, 6).T
        found = Instances(
            np.concatenate([classes, np.array(results.classes, np.int64)]),
            np.concatenate([run, np.array(results.run, np.int64)]),
            np.concatenate([owner, more[0]]),
            np.concatenate([slot, more[1]]),
            np.concatenate([producer, more[2]]),
            np.concatenate([out, more[3]]),
            np.concatenate([word, more[4]]),
            np.concatenate([np.zeros(len(word), bool), more[5].astype(bool)]),
            np.array(roots, np.int64),
            kinds.numbers,
            [r.log.own for r in runs],
        )
        if len(self.all) > new_class:
            first_of = np.full(len(self.all), len(found.classes))
            np.minimum.at(first_of, found.classes, np.arange(len(found.classes)))
            found.new.update(found.run[first_of[new_class:]].tolist())
        return found

    def _classes_of(self, site: Ints, kinds: Kinds) -> Ints:
        if len(self._of_site) < len(kinds.sites):
            self._of_site = np.append(self._of_site, np.full(len(kinds.sites) - len(self._of_site), -1))
        new = [kinds.sites[k] for k in np.unique(site[self._of_site[site] < 0]).tolist()]
        for s in new:
            self._alike.setdefault((s.kind, s.place, s.types), []).append(s)
        for s in new:
            alike = self._alike[s.kind, s.place, s.types]
            if len(alike) > MANY and all(map(_is_small, alike)):
                for other in alike:
                    self._of_site[other.number] = self._class_of(other, s.types).number
                self._general.update(other.number for other in alike)
            else:
                slots = tuple(t if f is None else f for f, t in zip(s.fixed, s.types, strict=True))
                self._of_site[s.number] = self._class_of(s, slots).number
        found: Ints = self._of_site[site]
        return found

    def _class_of(self, s: OperationSite, slots: tuple[Any, ...]) -> OpClass:
        return self._get((s.kind, s.place, slots), s.kind, s.place, slots, s.types)

    def _fixed(self, site: Ints, place: Ints, at: Ints, kinds: Kinds, first: int) -> tuple[Ints, list[OpClass], Ints]:
        """Shared values that are operands of many at one place, as results of classes of their own: of the entries
        `at`, which are shared values, the instance that each is, from `first` on, or -1; the classes of these
        instances, and the entry that each is read by first."""
        general = np.zeros(len(kinds.sites), np.bool_)
        general[list(self._general)] = True
        at = at[general[site[at]]]
        found = np.full(len(site), -1)
        keys, which, number = np.unique(site[at] << 20 | place[at], return_index=True, return_inverse=True)
        classes, by_class, entries = list[OpClass](), dict[int, int](), list[int]()
        instances = np.zeros(len(keys), np.int64)
        for k, key in enumerate(keys.tolist()):
            s, j = kinds.sites[key >> 20], key & (1 << 20) - 1
            x, type = s.fixed[j], s.types[j]
            kind = _same(type)
            of = self._get((kind, NO_PLACE, (x,)), kind, NO_PLACE, (x,), (type,))
            if of.number not in by_class:
                by_class[of.number] = first + len(classes)
                classes.append(of)
                entries.append(int(at[which[k]]))
            instances[k] = by_class[of.number]
        found[at] = instances[number]
        return found, classes, np.array(entries, np.int64)

    def _result(self, run: TracedRun, number: int, result: Any, moved: Ints, results: _Results) -> int:
        """The instance that a result is, or an element of a list in it; behind those of its elements. `moved`: the
        instances of the run's steps."""
        found: list[list[tuple[int, int, int, bool]]] = []
        fixed: list[Any] = []
        types: list[Any] = []

        def put(entries: list[tuple[int, int, int, bool]], type: Any, of: Any = None) -> int:
            found.append(entries)
            types.append(type)
            fixed.append(type if of is None else of)
            return len(found) - 1

        def leaf(x: Fixed | int, type: Any) -> int:
            if not isinstance(x, int):
                return put([(-1, 0, FIXED, False)], type, x)
            if x < 0:
                return put([(-1, 0, x, False)], type)
            return put([(int(moved[x >> OUTS]), x & (1 << OUTS) - 1, x, False)], type)

        def template(x: Any) -> Any:
            match x:
                case LeafMarker(number=k):
                    return LeafMarker(leaf(*run.leaves[k]))
                case ItemsMarker(elements=elements):
                    steps = [self._result(run, number, e, moved, results) for e in elements]
                    return ItemsMarker(number=put([(step, 0, 0, True) for step in steps], list_type(x.of)), of=x.of)
                case FreePlace(text=text, lists=lists):
                    return FreePlace(template(text), tuple(map(template, lists)))
                case Prints(result=returned, lines=lines):
                    return Prints(template(returned), template(lines))
                case Checked(result=returned, checks=checks):
                    return Checked(template(returned), template(checks))
                case str():
                    return LeafMarker(put([(-1, 0, run.log.owned(x), False)], WORD))
                case tuple():
                    return rebuilt(x, [template(y) for y in x])
                case dict():
                    return {k: template(y) for k, y in x.items()}
                case _:
                    return x

        structure = template(result)
        of = self._get((RESULT, shape_of(structure), tuple(fixed)), None, NO_PLACE, fixed, types)
        of.structure = structure
        made = results.count + len(results.classes)
        results.classes.append(of.number)
        results.run.append(number)
        base = self.first[of.number]
        results.entries += [(made, base + j, *entry) for j, entries in enumerate(found) for entry in entries]
        return made

    def _get(
        self, key: Hashable, kind: OperationKind | None, place: CodePlace, slots: Sequence[Any], types: Sequence[Any]
    ) -> OpClass:
        found = self._by_key.get(key)
        if found is None:
            made = [
                OperandSlot(t, s if isinstance(s, (SharedMarker, Uniform)) else None)
                for s, t in zip(slots, types, strict=True)
            ]
            found = self._by_key[key] = OpClass(len(self.all), kind, place, made)
            self.all.append(found)
            self.first.append(len(self.slots))
            self.first_out.append(self.first_out[-1] + (1 if kind is None else len(kind.outs)))
            self.slots += made
            self.version += 1
        return found

    def _see(self, found: Instances) -> None:
        """Meet the operands of all instances: those alone are looked at that may be new."""
        read = np.flatnonzero(found.producer >= 0)
        pairs = self.pairs(found, read)
        for e in read[_firsts_of_new(pairs, self._pairs)].tolist():
            k = int(found.producer[e])
            self._met(found, e, self.slots[found.slot[e]].see((int(found.classes[k]), int(found.out[e]))))
        self._pairs = np.union1d(self._pairs, pairs)
        closed = np.array([s.fixed is not None or (s.numbers and s.same is None) for s in self.slots], np.bool_)
        words = np.array([s.word for s in self.slots], np.int64)
        number = np.flatnonzero((found.producer < 0) & (found.word != FIXED) & ~closed[found.slot])
        number = number[(found.word[number] != words[found.slot[number]]) | (found.word[number] < -1 - NUMBERS)]
        for e in number.tolist():
            slot, word = self.slots[found.slot[e]], int(found.word[e])
            if slot.numbers and slot.same is None:
                continue
            self._met(found, e, slot.see_given() if is_given(word) else slot.see_number(found.value(e), word))

    def _met(self, found: Instances, entry: int, is_new: bool) -> None:
        if is_new:
            found.new.add(int(found.run[found.owner[entry]]))
            self.version += 1

    def pairs(self, found: Instances, read: Ints) -> Ints:
        """Which result of which class entries read, and as which operand: as one number."""
        result = np.array(self.first_out, np.int64)[found.classes[found.producer[read]]] + found.out[read]
        return found.slot[read] << 31 | result

    def _find_uniform(self) -> None:
        """Mark classes that compute the same for all examples; where results are small, as many as `Kinds.uniform` has,
        and all that are shared values as they are."""
        for c in self.all:
            c.uniform = False
        changed, small = True, 0
        while changed:
            changed = False
            for c in self.all:
                if c.uniform or c.kind is None or not all(map(self._is_uniform, c.slots)):
                    continue
                if c.name != _AS_IT_IS and c.kind.size <= SMALL:
                    if small >= MOST_SMALL:
                        continue
                    small += 1
                c.uniform = changed = True

    def _is_uniform(self, slot: OperandSlot) -> bool:
        if slot.fixed is not None or slot.is_constant:
            return True
        return not slot.numbers and len(slot.producers) == 1 and self.all[next(iter(slot.producers))[0]].uniform

    def fixed(self) -> Iterator[SharedMarker | Uniform]:
        """The shared values that classes read."""
        return (s.fixed for c in self.all for s in c.slots if s.fixed is not None)


def shape_of(structure: Any) -> Any:
    """The containers of a structure, as a key."""
    if isinstance(structure, (LeafMarker, ItemsMarker)):
        return type(structure)
    if isinstance(structure, FreePlace):
        return (FreePlace, *map(shape_of, structure.lists))
    if isinstance(structure, Prints):
        return Prints, shape_of(structure.result), shape_of(structure.lines)
    if isinstance(structure, Checked):
        return Checked, shape_of(structure.result)
    if isinstance(structure, tuple):
        return (type(structure), *map(shape_of, structure))
    if isinstance(structure, dict):
        return (dict, *((k, shape_of(x)) for k, x in structure.items()))
    return structure


def _joined(parts: Sequence[Any]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(np.frombuffer(p, np.int64) for p in parts if len(p))])


def _needed(leaves: Ints, producer: Ints, owner: Ints, arity: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which steps the results depend on: those that nobody reads are left out, then what they alone have read."""
    readers = np.bincount(producer[producer >= 0], minlength=len(arity))
    readers[leaves] += 1
    alive = np.ones(len(arity), np.bool_)
    dead = np.flatnonzero(readers == 0)
    first = np.cumsum(arity) - arity
    while len(dead):
        alive[dead] = False
        read = producer[ranges(first[dead], arity[dead])]
        read = read[read >= 0]
        np.subtract.at(readers, read, 1)
        dead = np.unique(read[readers[read] == 0])
    return alive


def _firsts_of_new(values: Ints, known: Ints) -> Ints:
    """Where values first stand that are not known."""
    distinct = np.unique(values)
    new = np.setdiff1d(distinct, known, assume_unique=True)
    if not len(new):
        return np.zeros(0, np.int64)
    at = np.flatnonzero(np.isin(values, new))
    return np.sort(at[np.unique(values[at], return_index=True)[1]])


def _is_small(site: OperationSite) -> bool:
    """Are the shared values that are operands small?"""
    return all(f is None or math.prod(t[0]) <= SMALL for f, t in zip(site.fixed, site.types, strict=True))


@cache
def _same(type: Any) -> OperationKind:
    """What gives a value of this type as it is."""
    return OperationKind((_AS_IT_IS, type), lambda x: (x,), (jax.ShapeDtypeStruct(*type),))


def is_given(word: int) -> bool:
    """Is it a number of the example that lies in a column?"""
    return word < GIVEN // 2


def is_list(slot: OperandSlot) -> bool:
    """Is it a list in a result?"""
    return isinstance(slot.type[1], tuple)
