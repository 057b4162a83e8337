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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, cast

import jax
import numpy as np

from autobatch.backends.llvm.reading import reading_machine
from autobatch.call import plain
from autobatch.call.arguments import ArgumentSlot, BoundArguments
from autobatch.call.batch import Batch
from autobatch.call.examples import Examples
from autobatch.call.results import ChangedPart, not_changed, unbatch, unbatched
from autobatch.data.ragged import Ragged
from autobatch.data.reading import objects_of
from autobatch.data.together import component_field, together
from autobatch.data.unpack import Common, GivenObjects, Token
from autobatch.data.walk import Walker, attributes_of, learned
from autobatch.errors import BatchError, UnsupportedError
from autobatch.frontend.lowering.state import ChangesObjects
from autobatch.frontend.memory.heap import OBJECTS
from autobatch.frontend.memory.rebinding import kinds_in
from autobatch.ir.core import List, Ref
from autobatch.ir.jax_compat import float_dtype

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
    examples = packed[0].values if len(packed) == 1 else together([s.values for s in packed])
    lists = objects_in(list(examples), kinds, keys_are_data)
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


def objects_in(examples: list[Any], kinds: ObjectKinds, keys_are_data: bool) -> list[list[list[Any]]]:
    """For each list of objects, those that each example has, in the order of their rows."""
    if (reader := reading_machine()) is not None:
        with suppress(BatchError):  # in whose words the walk will say it
            read = objects_of(examples, kinds, reader, learned, keys_are_data)
            if read is not None:
                return read
    walker, found = Walker(examples, keys_are_data), list[list[list[Any]]]([] for _ in kinds)
    for example in examples:
        met: list[Any] = []
        walker.one(example, met)
        for held, of in zip(found, kinds, strict=True):
            held.append([x for x in met if _kind(walker, x) in of])
    return found


def _kind(walker: Walker, x: Any) -> Hashable:
    """Of what kind an object is (`ChangesObjects`)."""
    if not isinstance(x, dict):
        return cast(Hashable, type(x))
    return dict if walker.is_table(x) else tuple(sorted(x))


# ---- what comes back


_MISSING = object()
_SCALARS = {bool, int, float, str}


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
    for name, held in lists.items():
        if not held or not all(type(x) is list for x in held):
            raise BatchError(not_changed(function, [name]))
    common, seen, fields = Common(), _SeenObjects(), part.fields
    batches, tables = list[tuple[Batch, Mapping[str, Token]]](), list[tuple[Ragged, list[Sequence[Any]]]]()
    for after, held, names, inside in zip(part.objects, given, fields.names, fields.inside, strict=False):
        if not isinstance(after, Ragged):  # nothing was changed
            continue
        kept: list[Sequence[Any]] = [() if k in part.failed else x for k, x in enumerate(held)]  # as results do
        if isinstance(after.values, tuple):
            tables.append((after, kept))
            continue
        begin, end = seen.more(kept, names)
        if isinstance(after.values, Batch):
            tokens, (store, rows) = after.values.tokens(), after.values.rows()
            seen.in_memory(common, tokens[store], dict(zip(rows.tolist(), range(begin, end), strict=False)), inside)
            batches.append((after.values, tokens))
        else:
            for name in names:
                seen.numbers(name, np.asarray(after.values[name]), begin, end)
    for batch, tokens in batches:
        batch.to_list_with(common, tokens)
    found = seen.found
    for after, kept in tables:  # each of them in a tuple of its own
        found += _changed(unbatched(after, common), kept)
    for after, own in zip(part.objects[len(given) :], lists.values(), strict=True):
        kept = [() if k in part.failed else (x,) for k, x in enumerate(own)]
        found += _changed([[(x,)] for x in unbatched(after, common)], kept)
    _refuse_changed_twice(function, found, given)
    for change in found:
        change.apply()


@dataclass(frozen=True)
class _Changes:
    """Objects of some examples become others: their attribute `name` is set, or what that holds has changed, where they
    change `inside`; with no name, they are lists, dicts and sets, and are the values."""

    name: str
    objects: Sequence[Any]
    values: Sequence[Any]
    examples: Sequence[int]
    inside: bool = False

    def apply(self) -> None:
        for x, value in zip(self.objects, self.values, strict=True):
            if self.inside:
                _value_of(x, self.name)[:] = value
            elif type(x) is dict and self.name:
                x[self.name] = value
            elif self.name:
                setattr(x, self.name, value)
            elif type(x) is list:
                x[:] = value
            else:
                x.clear()
                x.update(value)


def _refuse_changed_twice(function: str, found: Sequence[_Changes], given: Sequence[Sequence[Sequence[Any]]]) -> None:
    """Raise where an example that changed an object has a later one behind it that was given it, too; and where a list
    is changed that two objects hold."""
    everything = list(chain.from_iterable(chain.from_iterable(given))) if found else []
    if len(set(map(id, everything))) < len(everything):
        first = dict[int, int]()
        for x, example in chain.from_iterable(zip(c.objects, c.examples, strict=True) for c in found):
            first[id(x)] = min(example, first.get(id(x), example))
        for lists in given:
            for example, objects in enumerate(lists):
                for x in objects:
                    if first.get(id(x), example) < example:
                        raise _given_twice(function, f"an object of class {type(x).__name__}")
    inside = [c for c in found if c.inside]
    held = Counter(id(y) for name in {c.name for c in inside} for y in _values_of(everything, name))
    if any(held[id(y)] > 1 for c in inside for y in _values_of(c.objects, c.name)):
        raise _given_twice(function, "a list")


def _value_of(x: Any, name: str) -> Any:
    return (x if type(x) is dict else attributes_of(x)).get(name, _MISSING)


def _values_of(objects: Sequence[Any], name: str) -> list[Any]:
    if all(_is_plain(cls, name) for cls in set(map(type, objects))):
        with suppress(AttributeError):
            return list(map(attrgetter(name), objects))
    return [_value_of(x, name) for x in objects]


def _is_plain(cls: type, name: str) -> bool:
    """Does no code of the class say what the attribute is?"""
    found = getattr(cls, name, None)
    return cls is not dict and (not hasattr(found, "__get__") or inspect.ismemberdescriptor(found))


class _SeenObjects:
    """All objects that the examples were given, while it is seen what they have become: what has changed is `found`."""

    def __init__(self) -> None:
        self.found: list[_Changes] = []
        self._objects: list[Any] = []
        self._examples: list[int] = []
        self._set: list[Sequence[str]] = []
        self._places: dict[Token, dict[int, int]] = {}

    def more(self, given: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[int, int]:
        """A list of objects, example after example, of which some attributes were set: the places that they have."""
        begin = len(self._objects)
        self._objects += chain.from_iterable(given)
        self._examples += np.repeat(np.arange(len(given)), list(map(len, given))).tolist()
        self._set += [names] * (len(self._objects) - begin)
        return begin, len(self._objects)

    def numbers(self, name: str, after: np.ndarray[Any, Any], begin: int, end: int) -> None:
        """An attribute that holds numbers, of the objects of one list."""
        after = after[: end - begin]
        self._see(name, range(begin, end), after.tolist() if after.ndim == 1 else list(after))

    def in_memory(self, common: Common, token: Token, places: dict[int, int], inside: Sequence[str]) -> None:
        """Objects that lie in memory, as rows of a store. `places`: by their rows; `inside`: attributes whose lists
        were changed."""
        places = self._places[token] = {**self._places.get(token, {}), **places}
        names = {*inside, *chain.from_iterable(self._set[k] for k in places.values())}
        by_row = {row: self._objects[k] for row, k in places.items()}
        common.given[token] = GivenObjects(by_row, names, partial(self._note, places))

    def _note(self, places: Mapping[int, int], name: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        """What an attribute is of the objects of some rows."""
        self._see(name, [places[row] for row in rows], values)

    def _see(self, name: str, places: Sequence[int], values: Sequence[Any]) -> None:
        objects = [self._objects[k] for k in places]
        before = _values_of(objects, name)
        at, inside = _differing(before, values), list[int]()
        if not _SCALARS.issuperset(map(type, values)):
            inside = [k for k in at if type(before[k]) is list and name not in self._set[places[k]]]
            at = [k for k in at if k not in inside]
        for which in filter(None, (at, inside)):
            new = [_with_digits(before[k], values[k]) for k in which]
            examples = [self._examples[places[k]] for k in which]
            self.found.append(_Changes(name, [objects[k] for k in which], new, examples, which is inside))


def _differing(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Where values are others than they were."""
    kinds = set(map(type, old))
    if kinds == set(map(type, new)) and len(kinds) == 1 and not kinds.isdisjoint(_SCALARS):
        if kinds != {float}:
            return [k for k, (x, y) in enumerate(zip(old, new, strict=True)) if x != y]
        a, b = np.asarray(old, float_dtype()), np.asarray(new, float_dtype())
        held: list[int] = np.flatnonzero((a != b) & ~((a != a) & (b != b))).tolist()
        return held
    return [k for k, (x, y) in enumerate(zip(old, new, strict=True)) if x is not y and not _same(x, y)]


def _changed(after: Sequence[Sequence[tuple[Any]]], given: Sequence[Sequence[Any]]) -> Iterator[_Changes]:
    """The containers of each example that are others afterwards."""
    for example, held in enumerate(given):
        if held:
            new = [_with_digits(x, y) for x, (y,) in zip(held, after[example], strict=True)]
            for k in _differing(held, new):
                yield _Changes("", [held[k]], [new[k]], [example])


def _with_digits(old: Any, new: Any) -> Any:
    """A container in which what has not changed has all its digits."""
    if type(old) is list and type(new) is list:
        return [x if _same(x, y) else y for x, y in zip(old, new, strict=False)] + new[len(old) :]
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: old[k] if k in old and _same(old[k], x) else x for k, x in new.items()}
    return new


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
