"""What a call changes of its arguments: lists, and attributes of objects. The caller's become what the function made of
them, after the batch.

    f([[3.0, 1.0]])              the list is an argument of its own in the program, and a result
    f([account])                 f(account, objects=[account, ...]): all objects that the example has of the classes
                                 whose attributes are set, in the order of their rows; what they are then is a result
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax
import numpy as np

from autobatch.call import plain
from autobatch.call.arguments import ArgumentSlot, BoundArguments
from autobatch.call.batches.data import Examples
from autobatch.call.results import ChangedPart, not_changed, unbatch
from autobatch.data.leaves import Category, category
from autobatch.data.pack import Walker, attributes_of
from autobatch.data.together import component_field, together
from autobatch.errors import BatchError, UnsupportedError
from autobatch.frontend.lowering.state import ChangesObjects
from autobatch.frontend.memory.heap import OBJECTS
from autobatch.frontend.memory.rebinding import kinds_in
from autobatch.ir.core import List, Ref
from autobatch.ir.jax_compat import float_dtype
from autobatch.ir.template import ChangedFields

# ---- the objects that the entry is given

ObjectKinds = tuple[frozenset[Hashable], ...]
"""Of what kinds each list of objects is (`ChangesObjects`)."""


def joined(known: ObjectKinds, more: frozenset[Hashable]) -> ObjectKinds:
    """The kinds with more of them, which lie in the same columns."""
    apart = [x for x in known if not x & more]
    return (*apart, more.union(*(x for x in known if x & more)))


def with_objects(bound: BoundArguments, kinds: ObjectKinds, keys_are_data: bool) -> BoundArguments:
    """The same call, given all objects that each example has of some kinds; as it is where it has them, or where the
    examples are not known."""
    if not kinds or any((s.kind == "batch" and s.values.is_traced) or s.name.startswith(OBJECTS) for s in bound.slots):
        return bound
    bound = plain.unpacked(bound)  # what is packed is a copy, which nobody sees change
    packed = [s for s in bound.slots if s.kind != "array"]
    if not packed:
        return bound
    lists: list[list[list[Any]]] = [[] for _ in kinds]
    examples = packed[0].values if len(packed) == 1 else together([s.values for s in packed])
    walker = Walker(examples, keys_are_data)
    for example in examples:
        met: list[Any] = []
        walker.one(example, met)
        for held, of in zip(lists, kinds, strict=True):
            held.append([x for x in met if (_kind(walker, x) if isinstance(x, dict) else type(x)) in of])
    slots, forms = list(bound.slots), dict(bound.forms)
    parameters = {p.name: p for p in bound.signature.parameters.values()}
    for k, held in enumerate(lists):
        name = f"{OBJECTS}{k}"
        slots.append(ArgumentSlot(len(slots), name, "list", held))
        forms[name] = slots[-1]
        parameters[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    ordered = sorted(parameters.values(), key=lambda p: p.kind)
    return BoundArguments(bound.signature.replace(parameters=ordered), forms, tuple(slots), bound.size)


def check_objects(bound: BoundArguments, examples: Examples) -> None:
    """ChangesObjects where others lie in the columns among the objects that a call is given: these would have other
    numbers there."""
    packed = [s.index for s in bound.slots if s.kind != "array"]
    for slot in (s for s in bound.slots if s.name.startswith(OBJECTS)):
        type = component_field(examples.schema, packed.index(slot.index)).type
        assert isinstance(type, List) and isinstance(type.elem, Ref) and examples.group is not None
        rows = examples.group.column(f"{type.store}.#values")
        if not np.array_equal(rows, np.arange(len(rows))):
            words = "objects are changed that stand where others do, which cannot be changed"
            raise ChangesObjects(kinds_in(examples.schema, type.elem), UnsupportedError(words))


def longest(bound: BoundArguments) -> int:
    """How many objects of one list an example is given."""
    return max((len(x) for held in bound.objects for x in held), default=0)


def _kind(walker: Walker, x: dict[Any, Any]) -> Hashable:
    """Of what kind a dict is."""
    return dict if walker.is_table(x) else tuple(sorted(x))


# ---- what comes back


def _given_twice(function: str, what: str) -> BatchError:
    return BatchError(
        f"{function} changes {what} that is given twice, which plain Python would change again: give each example "
        f"{what} of its own"
    )


def write_back(function: str, bound: BoundArguments, parts: Sequence[ChangedPart]) -> None:
    """Change the caller's lists and objects. `bound`: the arguments of the call."""
    for part in parts:
        slots = (part.bound or bound).slots
        given = {s.name: s.values for s in slots if s.kind == "list"}
        copies = {s.name for s in slots if s.kind == "batch"}  # which are packed: nobody sees them change
        if lists := {k: x for k, x in part.lists.items() if k not in copies}:
            _write_lists(function, lists, given, part.failed)
        if part.fields.names:
            objects = [given[f"{OBJECTS}{k}"] for k in range(len(part.fields.names))]
            _write_objects(function, part, objects, {n: given.get(n, ()) for n in part.fields.lists})


def _write_lists(function: str, changed: Mapping[str, Any], given: Mapping[str, Any], failed: frozenset[int]) -> None:
    rows: list[tuple[tuple[list[Any], list[Any]], ...]] = []
    for name, found in changed.items():
        lists = given.get(name)
        if lists is None or not all(type(x) is list for x in lists):
            raise BatchError(not_changed(function, [name]))
        pairs = zip(lists, unbatch(found), strict=True)
        rows = [(*row, pair) for row, pair in zip(rows, pairs, strict=True)] if rows else [(pair,) for pair in pairs]
    if len({id(old) for row in rows for old, _ in row}) < len(rows) * len(changed):
        raise _given_twice(function, "a list")
    rows = [row for k, row in enumerate(rows) if k not in failed]
    dtype = float_dtype()
    for row in rows:
        numbers = [x for old, _ in row for x in _numbers_in(old)]
        known = dict(zip(np.asarray(numbers, dtype).tolist(), numbers, strict=True))
        for old, new in row:
            old[:] = [_as_before(x, known) for x in new]


def _numbers_in(values: Any) -> Iterator[float]:
    for x in values:
        if type(x) is list:
            yield from _numbers_in(x)
        elif type(x) is float:
            yield x


def _as_before(value: Any, known: Mapping[float, float]) -> Any:
    """A number that the list had is that again, with all its digits."""
    if type(value) is list:
        return [_as_before(x, known) for x in value]
    return known.get(value, value) if type(value) is float else value


def _write_objects(
    function: str, part: ChangedPart, given: Sequence[Sequence[Sequence[Any]]], lists: Mapping[str, Sequence[Any]]
) -> None:
    """`given`: of each list of objects, those of each example; `lists`: arguments that are lists of them."""
    found: list[_Change] = []
    for name, held in lists.items():
        if not held or not all(type(x) is list for x in held):
            raise BatchError(not_changed(function, [name]))
    if not lists and all(x is None or isinstance(x.values, dict) for x in part.objects):
        for k, names in enumerate(part.fields.names):
            if names:
                kept = [() if example in part.failed else x for example, x in enumerate(given[k])]  # as results do
                found += _changed_numbers(part.objects[k].values, names, kept)
    else:
        for example, after in enumerate(unbatch(part.objects)):
            if example in part.failed:
                continue
            objects, own = [x[example] for x in given], [x[example] for x in lists.values()]
            found += _changed_structure(example, after, part.fields, objects, own)
    _refuse_changed_twice(function, found, given)
    for change in found:
        change.apply()


@dataclass(frozen=True)
class _Change:
    """An object of an example becomes other: its attribute `name` is set, or what that holds has changed, where it is
    `inside`; with no name, a list, dict or set is that."""

    example: int
    held: Any
    name: str
    value: Any
    inside: bool = False

    def apply(self) -> None:
        if not self.name and type(self.held) is list:
            self.held[:] = self.value
        elif not self.name:
            self.held.clear()
            self.held.update(self.value)
        elif self.inside:
            _parts_of(self.held)[self.name][:] = self.value
        elif type(self.held) is dict:
            self.held[self.name] = self.value
        else:
            setattr(self.held, self.name, self.value)


def _refuse_changed_twice(function: str, found: Sequence[_Change], given: Sequence[Sequence[Sequence[Any]]]) -> None:
    """Raise where an example that changed an object has a later one behind it that was given it, too; and where a list
    is changed that two objects hold."""
    first = {id(x.held): x.example for x in reversed(found)}
    for lists in given if first else ():
        for example, objects in enumerate(lists):
            for x in objects:
                if first.get(id(x), example) < example:
                    raise _given_twice(function, f"an object of class {type(x).__name__}")
    inside = {id(_parts_of(x.held)[x.name]) for x in found if x.inside}
    names = {x.name for x in found if x.inside}
    everything = chain.from_iterable(chain.from_iterable(given)) if names else ()
    held = Counter(id(y) for x in everything for n in names if (y := _parts_of(x).get(n)) is not None)
    if any(held[number] > 1 for number in inside):
        raise _given_twice(function, "a list")


def _changed_numbers(after: Mapping[str, Any], names: Sequence[str], given: Sequence[Sequence[Any]]) -> list[_Change]:
    """What changes of attributes that are numbers, by name: one row for each object."""
    objects, found = list(chain.from_iterable(given)), list[_Change]()
    examples = np.repeat(np.arange(len(given)), [len(x) for x in given]).tolist()
    for name in names:
        new = np.asarray(after[name])[: len(objects)]
        old = [_parts_of(x).get(name) if type(x) is dict else getattr(x, name, None) for x in objects]
        try:
            before = np.asarray(old, new.dtype)
            differs = (before != new) & ~((before != before) & (new != new))
            rows = np.flatnonzero(differs.reshape(len(objects), -1).any(1)).tolist()
        except (TypeError, ValueError):  # None, or arrays of other shapes: some have no such attribute yet
            rows = [k for k, x in enumerate(old) if not _same(x, new[k])]
        numbers = new.tolist() if new.ndim == 1 else new
        found += [_Change(examples[k], objects[k], name, numbers[k]) for k in rows]
    return found


def _changed_structure(
    example: int,
    after: Sequence[Any],
    fields: ChangedFields,
    given: Sequence[Sequence[Any]],
    lists: Sequence[list[Any]],
) -> list[_Change]:
    """What changes of the objects of an example, which are there as copies; a dict or set in a tuple of its own."""
    copies, found = _Copies(), list[_Change]()
    after, left = after[: len(given)], after[len(given) :]
    for held, objects in zip(after, given, strict=True):
        copies.stand_for(held or (), objects if held else ())
    for new, old in zip(left, lists, strict=True):
        value = [copies.own(x) for x in new]
        if not _same(old, value):
            found.append(_Change(example, old, "", value))
    for held, objects, names, inside in zip(after, given, fields.names, fields.inside, strict=True):
        for new, old in zip(held or (), objects if held else (), strict=True):
            if type(new) is tuple:
                value = _with_digits(old, copies.own(new[0]))
                if not _same(old, value):
                    found.append(_Change(example, old, "", value))
                continue
            now, before = _parts_of(new), _parts_of(old)
            for name in (*names, *(n for n in inside if n not in names)):
                if name in now and not (name in before and _same(before[name], copies.own(now[name]))):
                    is_inside = name not in names and type(before.get(name)) is list
                    value = _with_digits(before.get(name), copies.own(now[name]))
                    found.append(_Change(example, old, name, value, is_inside))
    copies.finish()
    return found


def _parts_of(x: Any) -> Mapping[str, Any]:
    return x if type(x) is dict else attributes_of(x)


def _with_digits(old: Any, new: Any) -> Any:
    """A container in which what has not changed has all its digits."""
    if type(old) is list and type(new) is list:
        return [x if _same(x, y) else y for x, y in zip(old, new, strict=False)] + new[len(old) :]
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: old[k] if k in old and _same(old[k], x) else x for k, x in new.items()}
    return new


class _Copies:
    """The objects of one example. What leads to a copy of one that the caller has, is to lead to that one."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._made: list[Any] = []

    def stand_for(self, copies: Sequence[Any], objects: Sequence[Any]) -> None:
        """The objects of the caller that copies stand for."""
        self._known.update((id(x), y) for x, y in zip(copies, objects, strict=True))

    def own(self, value: Any) -> Any:
        """A value with the caller's objects in the place of their copies."""
        if (found := self._known.get(id(value))) is not None:
            return found
        if category(type(value)) is not Category.OBJECT:
            return value
        if type(value) is list:
            value[:] = map(self.own, value)
        elif isinstance(value, (set, frozenset)):
            return value
        elif isinstance(value, dict):
            value.update({k: self.own(x) for k, x in value.items()})
        elif isinstance(value, tuple):
            parts = [self.own(x) for x in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        else:
            self._known[id(value)] = value
            self._made.append(value)
        return value

    def finish(self) -> None:
        """The same in all objects that the function has made."""
        while self._made:
            made = self._made.pop()
            for name, x in attributes_of(made).items():
                object.__setattr__(made, name, self.own(x))


def _same(old: Any, new: Any) -> bool:
    """Is a value what the program was given for another one?"""
    if old is new:
        return True
    if isinstance(old, (bool, str)) or isinstance(new, (bool, str)) or old is None or new is None:
        return type(old) is type(new) and bool(old == new)
    if isinstance(old, int) and isinstance(new, int):
        return old == new
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return bool(float_dtype().type(old) == new) or (old != old and new != new)
    if isinstance(old, (np.ndarray, np.generic, jax.Array)):
        return np.shape(old) == np.shape(new) and bool(np.array_equal(np.asarray(old, np.asarray(new).dtype), new))
    if isinstance(old, dict) and isinstance(new, dict):
        return list(old) == list(new) and all(_same(x, new[k]) for k, x in old.items())
    if isinstance(old, (set, frozenset)):
        return bool(old == new)
    if type(old) in (list, tuple) and type(new) is type(old):
        return len(old) == len(new) and all(map(_same, old, new))
    return False
