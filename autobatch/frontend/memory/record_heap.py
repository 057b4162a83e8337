"""Dicts of constant string keys that have memory: rows of a class whose fields the keys are (`heaps.py`).

    rows.append({"n": 0, "s": w * x})       n[32], s[32];  the dict is the row `count`
    rows[i]["s"] += y                       s[row] = s[row] + y, under all names of the dict

The values of each key have a type of their own, as fields have. Dicts of different keys that may stand in one place are
of different classes (`row_classes.py`). Where a computed or a new key is set, or one is taken out, all is lowered again
with dicts that are lists of pairs (`dict_heap.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, NoReturn, TypeGuard

from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import operand_of, present
from autobatch.frontend.lowering.selection import select
from autobatch.frontend.lowering.state import LoweringState, MemoryChanged
from autobatch.frontend.memory import heaps, row_classes
from autobatch.frontend.memory.heap import DictRecord, Heap, record_class
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import constant
from autobatch.ir.core import Operand


def is_record_row(value: v.Abstract) -> TypeGuard[v.MemoryRow]:
    """Is it a dict in memory whose keys are fields?"""
    return isinstance(value, v.MemoryRow) and value.heap.is_record


def give_up(s: LoweringState, row: v.MemoryRow, why: str) -> NoReturn:
    """Lower everything again with dicts that are lists of pairs where these stand."""
    row.heap.whole.give_up_record(f"{why} in line {s.span.line}")
    raise MemoryChanged


def allocate(s: LoweringState, heap: Heap, table: v.Record) -> v.MemoryRow:
    """A new dict in memory, of one that is a value."""
    if table.kind != "dict" or not all(type(k) is str for k in table.keys):
        heap.give_up_record("they are made with keys that are no constant strings")
        raise MemoryChanged
    cls = record_class(table.keys)
    if cls not in heap.members:
        heap.members.append(cls)
        heap.forget()
        raise MemoryChanged
    return heaps.allocate(s, heap, v.Record("object", table.keys, table.items, cls))


# ---- reading


def opened(s: LoweringState, row: v.MemoryRow) -> v.Abstract:
    """The dict as a value, a copy."""
    return row_classes.by_class(s, row, _opened)


def as_value(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """The same, of a dict in memory; other values as they are."""
    return opened(s, heaps.there(s, value, "None where a dict is needed")) if is_record_row(value) else value


def for_key(s: LoweringState, value: v.Abstract, key: v.Abstract) -> v.Abstract:
    """What a key is looked up in: a dict in memory, or a copy of it where the key is computed; other values as they
    are."""
    return as_value(s, value) if _constant(s, key) is None else value


def _opened(s: LoweringState, row: v.MemoryRow, cls: type) -> v.Abstract:
    keys = _keys(cls)
    return v.Record("dict", keys, tuple(_field(s, row, k) for k in keys))


def _keys(cls: type) -> tuple[str, ...]:
    assert issubclass(cls, DictRecord)
    return cls.record_keys


def _field(s: LoweringState, row: v.MemoryRow, key: str) -> v.Abstract:
    found = heaps.field(s, row, key)
    assert found is not None
    return found


def _constant(s: LoweringState, key: v.Abstract) -> object:
    """The key, where it is constant; None where it is computed."""
    found = constant(present(s, key))
    return found.value if isinstance(found, v.Static) else None


def _owners(s: LoweringState, row: v.MemoryRow, key: object) -> tuple[frozenset[int], bool]:
    """The classes of those that the dict may be of which have the key; and is it always one of them?"""
    possible = heaps.positions(s, row)
    found = frozenset(k for k in possible if key in _keys(row.heap.members[k]))
    return found, found == possible


def load(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`row[key]`; KeyError where it is not there."""
    name = _constant(s, key)
    if name is None:
        give_up(s, row, "a computed key is asked for")
    owners, _ = _owners(s, row, name)
    s.check(row_classes.is_class(s, row, owners), "KeyError", repr(name).replace("{", "{{").replace("}", "}}"))
    if not owners:
        s.dead = True
        return v.Static(None)
    assert isinstance(name, str)
    return _field(s, replace(row, classes=owners), name)


def holds(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`key in row`"""
    name = _constant(s, key)
    owners, always = _owners(s, row, name)
    return v.Static(always) if always or not owners else v.Leaf(row_classes.is_class(s, row, owners))


def has_keys(s: LoweringState, row: v.MemoryRow, keys: Iterable[v.Abstract]) -> Operand:
    """Is it a dict, and not None, with all these keys?"""
    names = [_constant(s, k) for k in keys]
    fitting = [k for k, cls in enumerate(row.heap.members) if all(n in _keys(cls) for n in names)]
    return row_classes.is_class(s, row, frozenset(fitting))


def get(s: LoweringState, row: v.MemoryRow, key: v.Abstract, default: v.Abstract) -> v.Abstract:
    """`row.get(key, default)`"""
    name = _constant(s, key)
    owners, always = _owners(s, row, name)
    if not owners:
        return default
    assert isinstance(name, str)
    narrowed = replace(row, classes=owners)
    if always:
        return _field(s, narrowed, name)
    here = row_classes.is_class(s, row, owners)
    return conditional(s, here, lambda t: _field(t, narrowed, name), lambda t: default)


# ---- views


Part = Callable[[LoweringState, v.MemoryRow, str], v.Abstract]


def key(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    return v.Static(name)


def value(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    return _field(s, row, name)


def pair(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    return v.Record("tuple", (0, 1), (v.Static(name), _field(s, row, name)))


def view(s: LoweringState, row: v.MemoryRow, part: Part) -> v.Record | v.Lazy:
    """The keys, values or items, as they are when each is read."""
    if len(heaps.positions(s, row)) > 1:
        count = row_classes.by_class(s, row, lambda t, one, cls: v.Static(len(_keys(cls))))
        return v.Lazy(count, lambda t, i: _of_any(t, row, part, i), None, (row,))
    names = _keys(heaps.classes_of(s, row)[0])
    if part is key:
        return v.Record("tuple", tuple(range(len(names))), tuple(map(v.Static, names)))
    return v.Lazy(v.Static(len(names)), lambda t, i: part(t, row, _named(names, i)), None, (row,))


def _named(names: tuple[str, ...], index: v.Abstract) -> str:
    assert isinstance(index, v.Static) and isinstance(index.value, int)
    return names[index.value]


def _of_any(s: LoweringState, row: v.MemoryRow, part: Part, index: v.Abstract) -> v.Abstract:
    """An item of a view of a dict whose keys depend on the row."""

    def one(t: LoweringState, narrowed: v.MemoryRow, cls: type) -> v.Abstract:
        return select(t, operand_of(t, index), [part(t, narrowed, k) for k in _keys(cls)])

    return row_classes.by_class(s, row, one)


def is_view(value: v.Abstract) -> TypeGuard[v.Lazy]:
    """Does it show what a dict whose keys are known holds? Such a view has items of several types, one by one."""
    if not isinstance(value, v.Lazy) or not isinstance(value.length, v.Static):
        return False
    return any(row.heap.is_record for row in value.dicts)


def as_it_is(s: LoweringState, shown: v.Lazy, kind: Literal["tuple", "list"] = "tuple") -> v.Record:
    """What a view shows now."""
    assert isinstance(shown.length, v.Static)
    places = tuple(range(shown.length.value))
    return v.Record(kind, places, tuple(shown.item(s, v.Static(k)) for k in places))


# ---- changing


def store(s: LoweringState, row: v.MemoryRow, key: v.Abstract, value: v.Abstract) -> None:
    """`row[key] = value`"""
    name = _constant(s, key)
    if name is None:
        give_up(s, row, "a computed key is set")
    if not isinstance(name, str) or not _owners(s, row, name)[1]:
        give_up(s, row, f"the key {name!r} is added")
    heaps.set_field(s, row, name, value)


def set_default(
    s: LoweringState, row: v.MemoryRow, key: v.Abstract, default: Callable[[LoweringState], v.Abstract]
) -> v.Abstract:
    """`row.setdefault(key, default(s))`"""
    name = _constant(s, key)
    if not isinstance(name, str) or not _owners(s, row, name)[1]:
        give_up(s, row, "a key is added by setdefault()")
    return _field(s, row, name)


def assign(s: LoweringState, row: v.MemoryRow, table: v.Record) -> None:
    """Let it hold what another dict holds, and nothing else."""
    classes = heaps.classes_of(s, row)
    if table.kind != "dict" or any(_keys(c) != table.keys for c in classes):
        give_up(s, row, "keys are added or taken out")
    for key, value in zip(table.keys, table.items, strict=True):
        heaps.set_field(s, row, key, value)
