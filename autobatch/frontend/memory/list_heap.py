"""Lists that have memory (`ir/buffers.py`), because other containers hold them and they are changed in place.

    grid[i][j] = y          %row: a number, as objects in memory are (`heaps.py`)
                            columns = dynamic_update_slice(columns, y, place(table, row, j))
    grid[i].append(y)       the same at its length, which is one more; a new segment where it is full

Such a list is a `Row` of the memory of all lists that may stand where it does, so two names of a list are two equal
numbers. What only reads it as a whole (`sum`, a slice, `sorted`) reads a copy, a list as values are.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, NoReturn, TypeGuard

from autobatch.errors import UnsupportedError
from autobatch.frontend.lowering.joins import conditional, convert
from autobatch.frontend.lowering.numbers import combine, negate, operand_of, present, traced
from autobatch.frontend.lowering.selection import select, telling
from autobatch.frontend.lowering.state import LoweringState, MemoryChanged
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.heap import Heap, Tag, dicts_have_memory, record_class
from autobatch.frontend.memory.heaps import as_read, as_stored, classes_of, column_type
from autobatch.frontend.memory.rebinding import list_change
from autobatch.frontend.syntax.sources import describe
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import MISSING
from autobatch.frontend.types.unify import constant
from autobatch.frontend.types.values import Layout, layout_of, leaf_types, rebuild
from autobatch.ir import buffers
from autobatch.ir.buffers import NO_ROOM, out_of_room
from autobatch.ir.core import Operand, Type, Value
from autobatch.ir.core import Tag as IrTag

# ---- row classes
#
# Objects of several classes in one memory: of which class a row is, and what its attributes are.
#
#     isinstance(node, Leaf)      and(ge(%node, 0), eq(%class[%node], 0))
#     node.area()                 a chain of such tests, where the classes define it each in its own way
#
# What tests have shown of a row is a fact about its number, as it is of references to objects of the examples.


_FIELD = object()
"""Stands for a field, where else what a class defines stands."""

Bind = Callable[[LoweringState, Any, v.Abstract, type, str], v.Abstract]
Group = tuple[Any, frozenset[int]]


def is_instance(s: LoweringState, row: v.MemoryRow, classes: tuple[type, ...]) -> v.Abstract:
    """`isinstance(row, classes)`"""
    fit = frozenset(k for k, c in enumerate(row.heap.members) if issubclass(c, classes))
    if type(None) in classes:
        return conditional(
            s,
            heaps.missing(s, row),
            lambda t: v.Static(True),
            lambda t: is_instance(t, replace(row, null=False), tuple(c for c in classes if c is not type(None))),
        )
    found = heaps.is_class(s, row, fit)
    known = s.block.truth(found)
    return v.Leaf(found) if known is None else v.Static(known)


def read(s: LoweringState, row: v.MemoryRow, name: str, bind: Bind) -> v.Abstract:
    """`row.name`: a field, method, property or class attribute of an object that is not None."""
    groups = _groups(s, row, name)
    if not s.positions(row):  # tests have ruled out all classes
        s.check(s.scalar(False), "AttributeError", f"'NoneType' object has no attribute {name!r}")
        s.dead = True
        return v.Static(None)
    if not groups:
        _refuse_unknown(s, row, name)
    row = _of_owners(s, row, name, groups)
    if len(groups) > 1 and all(callable(found) and found is not _FIELD for found, _ in groups):
        return v.Method(v.Static(None), row, name)
    return _by_class(s, row, groups, lambda t, r, found: _read_one(t, r, name, found, bind))


def _read_one(s: LoweringState, row: v.MemoryRow, name: str, found: Any, bind: Bind) -> v.Abstract:
    if found is not _FIELD:
        return bind(s, found, row, classes_of(s, row)[0], name)
    held = heaps.field(s, row, name)
    assert held is not None
    if isinstance(held, v.Optional) and held.unset:
        return by_class(s, row, lambda t, r, cls: set_or_of_class(t, r, name, cls, held, bind))
    return held


def set_or_of_class(
    s: LoweringState, row: v.MemoryRow | v.Record, name: str, cls: type | None, held: v.Optional, bind: Bind
) -> v.Abstract:
    """A field that objects of the class are made without, on some paths, and that is set later: what the class has of
    that name where it is not set, and else a failure."""
    assert cls is not None
    default = inspect.getattr_static(cls, name, _FIELD)
    if default is _FIELD or _is_slot(cls, name):
        s.check(negate(s, held.missing), "AttributeError", f"{cls.__name__!r} object has no attribute {name!r}")
        return held.value
    return conditional(s, held.missing, lambda t: bind(t, default, row, cls, name), lambda t: held.value)


def has(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    """`hasattr(row, name)`"""
    there = replace(row, null=False)
    absent = lambda t: v.Static(hasattr(None, name))
    return conditional(s, heaps.missing(s, row), absent, lambda t: v.Leaf(_is_set(t, there, name)))


def _is_set(s: LoweringState, row: v.MemoryRow, name: str) -> Operand:
    members = row.heap.members
    always = frozenset(k for k, c in enumerate(members) if hasattr(c, name) and not _is_slot(c, name))
    fields = frozenset(k for k, c in enumerate(members) if name in row.heap.forms.get(c, ())) - always
    held = heaps.field(s, row, name) if fields else None
    if not isinstance(held, v.Optional) or not held.unset:
        return heaps.is_class(s, row, always | fields)
    is_set = combine(s, "and", heaps.is_class(s, row, fields), negate(s, held.missing))
    return combine(s, "or", heaps.is_class(s, row, always), is_set)


def _is_slot(cls: type, name: str) -> bool:
    return inspect.ismemberdescriptor(inspect.getattr_static(cls, name, None))


def called(
    s: LoweringState, method: v.Method, bind: Bind, args: Iterable[v.Abstract], kwargs: dict[str, Any]
) -> v.Abstract:
    """A call of a method that classes define each in its own way."""
    row, given = method.receiver, list(args)
    assert isinstance(row, v.MemoryRow)
    if s.frame.trying:
        return s.call(_tests(s, row, method.name), [row, *given], kwargs)

    def one(t: LoweringState, narrowed: v.MemoryRow, found: Any) -> v.Abstract:
        return t.call(_read_one(t, narrowed, method.name, found, bind), given, kwargs)

    return _by_class(s, row, _groups(s, row, method.name), one)


def _tests(s: LoweringState, row: v.MemoryRow, name: str) -> v.LocalFunction:
    """The chain as a function, whose statements may fail in a `try`."""
    classes = sorted((row.heap.members[k] for k in s.positions(row)), key=lambda c: len(c.__mro__), reverse=True)
    known, key = s.context.memory.rewritten, (name, *classes)
    if key not in known:
        load = ast.Load()
        given = ast.arguments([], [ast.arg("row")], ast.arg("args"), [], [], ast.arg("kwargs"), [])
        method = ast.Attribute(ast.Name("row", load), name, load)
        starred = ast.Starred(ast.Name("args", load), load)
        call = ast.Return(ast.Call(method, [starred], [ast.keyword(None, ast.Name("kwargs", load))]))
        body: list[ast.stmt] = [call]
        for cls in reversed(classes[:-1]):
            is_one = [ast.Name("row", load), ast.Constant(cls)]  # type: ignore[arg-type]
            body = [ast.If(ast.Call(ast.Constant(isinstance), is_one, []), [copy.deepcopy(call)], body)]  # type: ignore[arg-type]
        made = ast.FunctionDef(name, given, body, [])
        for part in ast.walk(made):
            if isinstance(part, ast.stmt | ast.expr | ast.arg):
                part.lineno = part.end_lineno = s.span.line
                part.col_offset = part.end_col_offset = s.span.column - 1
        known[key] = describe(made, s.span.file, name, {})
    return v.LocalFunction(known[key], ())


def by_class(
    s: LoweringState, row: v.MemoryRow, each: Callable[[LoweringState, v.MemoryRow, type], v.Abstract]
) -> v.Abstract:
    """What is done with an object that is not None, for each class that it may have."""
    groups = [(row.heap.members[k], frozenset({k})) for k in sorted(s.positions(row))]
    return _by_class(s, row, groups, each)


def _groups(s: LoweringState, row: v.MemoryRow, name: str) -> list[Group]:
    """What a name is of the classes that an object may have: those of which it is the same form one group."""
    groups: list[Group] = []
    for k in sorted(s.positions(row)):
        cls = row.heap.members[k]
        found = _FIELD if name in row.heap.forms.get(cls, ()) else inspect.getattr_static(cls, name, MISSING)
        same = next((n for n, (other, _) in enumerate(groups) if other is found), None)
        if found is not MISSING and same is None:
            groups.append((found, frozenset({k})))
        elif same is not None:
            groups[same] = (found, groups[same][1] | {k})
    return groups


def _of_owners(s: LoweringState, row: v.MemoryRow, name: str, groups: list[Group]) -> v.MemoryRow:
    """The object, which is of a class that has the attribute; a check fails where it is not."""
    owners = frozenset(k for _, classes in groups for k in classes)
    if others := s.positions(row) - owners:
        without = row.heap.members[min(others)].__name__
        s.check(heaps.is_class(s, row, owners), "AttributeError", f"{without!r} object has no attribute {name!r}")
    return replace(row, classes=owners)


def _by_class(
    s: LoweringState,
    row: v.MemoryRow,
    groups: list[Group],
    each: Callable[[LoweringState, v.MemoryRow, Any], v.Abstract],
) -> v.Abstract:
    """A chain of class tests."""
    (found, classes), *rest = groups
    narrowed = replace(row, classes=classes)
    if not rest:
        return each(s, narrowed, found)
    return conditional(
        s,
        heaps.is_class(s, row, classes),
        lambda t: each(t, narrowed, found),
        lambda t: _by_class(t, row, rest, each),
    )


def _refuse_unknown(s: LoweringState, row: v.MemoryRow, name: str) -> NoReturn:
    names = " or ".join(c.__name__ for c in classes_of(s, row)) or row.heap.name
    if s.context.memory.sets_attribute(name):
        if row.heap.whole.given:
            s.guess()
        heaps.wait(s, row.heap)  # the text that sets it stands further on
    s.refuse(f"{names} has no attribute {name!r}", "check the spelling")


# ---- record heap
#
# Dicts of constant string keys that have memory, and lists of fixed length whose elements are of several types: rows of
# a class whose fields the keys, or the places, are (`heaps.py`).
#
#     rows.append({"n": 0, "s": w * x})       n[32], s[32];  the dict is the row `count`
#     rows[i]["s"] += y                       s[row] = s[row] + y, under all names of the dict
#     heappush(queue, [cost, 0, True])        the same with fields 0, 1, 2
#
# The values of each key have a type of their own, as fields have. Dicts of different keys, and lists of different
# lengths, that may stand in one place are of different classes. Where a computed or a new key is set, or one is taken
# out, all is lowered again with dicts that are lists of pairs (`container_heap.py`), and lists of elements of one type.


def is_record_row(value: v.Abstract) -> TypeGuard[v.MemoryRow]:
    """Is it a dict in memory whose keys are fields, or a list whose places are?"""
    return isinstance(value, v.MemoryRow) and value.heap.is_record


def give_up(s: LoweringState, row: v.MemoryRow, why: str) -> NoReturn:
    """Lower everything again without records where these stand."""
    _give_up(s, row.heap.whole, why)


def _give_up(s: LoweringState, heap: Heap, why: str) -> NoReturn:
    heap.give_up_record(f"{why} in line {s.span.line}")
    raise MemoryChanged


MANY_TAGS = 32
"""Classes of records from which on constants in them tell none apart: they are data."""


def allocate(s: LoweringState, heap: Heap, value: v.Abstract, origin: v.Abstract = heaps.NO_ORIGIN) -> v.MemoryRow:
    """A new dict or list in memory, of one that is a value. `origin`: the number of that of the examples that it stands
    for."""
    cls: type
    tag: Tag | None = None
    match value:
        case v.Record(kind=kind, keys=keys) if kind == heap.python_class.__name__ and (
            heap.is_list or all(type(k) is str for k in keys)
        ):
            tag = None if heap.untagged or heap.given else _tag(s, value)
            cls = record_class(heap.python_class, keys, tag if heap.tagged else None)
        case _:
            _give_up(s, heap, "they are made with keys that are no constant strings, or of a length that is not fixed")
    if cls not in heap.members:
        heap.members.append(cls)
        if len(heap.members) > MANY_TAGS and heap.tagged:
            heap.tag(False)
            raise MemoryChanged
        if len(heap.members) == 2:  # from here on each row says of which class it is
            heap.forget()
            raise MemoryChanged
        s.context.again = True
    if tag is not None and not heap.tagged and cls in heap.forms:
        known = heap.field_layouts(cls)
        if any(heaps.differ(known[k], layout_of(heaps.as_field(s, x))) for k, x in zip(keys, value.items, strict=True)):
            heap.tag(True)
            raise MemoryChanged
    _note_tag(s, heap, cls, tag)
    return heaps.allocate(s, heap, v.Record("object", value.keys, value.items, cls), origin)


def _note_tag(s: LoweringState, heap: Heap, cls: type, tag: Tag | None) -> None:
    """Note what a record of a class holds. Where that is more than was known, all is lowered again."""
    known = heap.tags.get(cls, tag)
    is_one = known is not None and tag is not None and known[0] == tag[0]
    both = (tag[0], known[1] | tag[1]) if is_one and known is not None and tag is not None else None
    if cls not in heap.tags or both != known:
        heap.tags[cls] = both
        s.context.again = True


def _tag(s: LoweringState, value: v.Record) -> Tag | None:
    """The first part of a record that is a string or a member of an enum, or an integer that comes first, and what it
    may be, where that is known: it is constant, or is that of another record whose class is known."""
    for n, (key, x) in enumerate(zip(value.keys, value.items, strict=True)):
        if isinstance(x, v.Static) and (isinstance(x.value, str | Enum) or (n == 0 and type(x.value) is int)):
            return key, frozenset({x.value})
        if isinstance(x, v.Leaf) and isinstance(x.type, IrTag):
            words = s.one_of(x.operand)
            match s.context.meanings.get(x.operand) if isinstance(x.operand, Value) else None:
                case ("of_class", row, by_class, _):  # of which it may be of fewer by now
                    may_be = [by_class[k] for k in s.positions(row)]
                    words = None if None in may_be else frozenset().union(*may_be)
            return None if words is None else (key, words)
    return None


def become_record(s: LoweringState, heap: Heap, value: v.Abstract) -> None:
    """Lower everything again with lists that are records, where the elements of one of fixed length have types that
    would not stay what they are in one column."""
    if not heap.whole.may_be_record or not isinstance(value, v.Record):
        return
    sorts = {heaps.sort_of_element(layout_of(heaps.as_field(s, x))) for x in value.items}
    if len(sorts - {None}) > 1 or (None in sorts and sorts & {"b", "i"}):
        heap.whole.become_record()
        raise MemoryChanged


# ---- reading


def opened(s: LoweringState, row: v.MemoryRow) -> v.Abstract:
    """The dict or list as a value, a copy."""
    return by_class(s, row, _opened)


def as_value(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """The same, of a dict in memory; other values as they are."""
    return opened(s, heaps.there(s, value, "None where a dict is needed")) if is_record_row(value) else value


def for_key(s: LoweringState, value: v.Abstract, key: v.Abstract) -> v.Abstract:
    """What a key is looked up in: a dict in memory, or a copy of it where the key is computed; other values as they
    are."""
    return as_value(s, value) if is_dict_row(value) and _constant(s, key) is None else value


def _opened(s: LoweringState, row: v.MemoryRow, cls: type) -> v.Abstract:
    keys = _keys(cls)
    kind: Any = row.heap.python_class.__name__
    return v.Record(kind, keys, tuple(heaps.present_field(s, row, k) for k in keys))


def _keys(cls: type) -> tuple[Any, ...]:
    found: tuple[Any, ...] = cls.record_keys  # type: ignore[attr-defined]
    return found


def _constant(s: LoweringState, key: v.Abstract) -> object:
    """The key, where it is constant; None where it is computed."""
    found = constant(present(s, key))
    return found.value if isinstance(found, v.Static) else None


def _owners(s: LoweringState, row: v.MemoryRow, key: object) -> tuple[frozenset[int], bool]:
    """The classes of those that the dict may be of which have the key; and is it always one of them?"""
    possible = s.positions(row)
    found = frozenset(k for k in possible if key in _keys(row.heap.members[k]))
    return found, found == possible


def load(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`row[key]`; KeyError where it is not there."""
    name = _place(s, row, key)
    if name is None:
        give_up(s, row, "a computed key is asked for")
    owners, _ = _owners(s, row, name)
    error = ("KeyError", repr(name).replace("{", "{{").replace("}", "}}"))
    s.check(heaps.is_class(s, row, owners), *(error if row.heap.is_dict else ("IndexError", "list index out of range")))
    if not owners:
        s.dead = True
        return v.Static(None)
    return heaps.present_field(s, replace(row, classes=owners), name)


def _place(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> Any:
    """The field that a key or an index stands for, where it is constant; None where it is computed, or where lists of
    several lengths would have others."""
    name = _constant(s, key)
    if row.heap.is_dict or not isinstance(name, int) or name >= 0:
        return name
    counts = {len(_keys(row.heap.members[k])) for k in s.positions(row)}
    return name + counts.pop() if len(counts) == 1 else None


def holds(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`key in row`"""
    name = _constant(s, key)
    owners, always = _owners(s, row, name)
    return v.Static(always) if always or not owners else v.Leaf(heaps.is_class(s, row, owners))


def has_keys(s: LoweringState, row: v.MemoryRow, keys: Iterable[v.Abstract]) -> Operand:
    """Is it a dict, and not None, with all these keys?"""
    names = [_constant(s, k) for k in keys]
    fitting = [k for k, cls in enumerate(row.heap.members) if all(n in _keys(cls) for n in names)]
    return heaps.is_class(s, row, frozenset(fitting))


def get(s: LoweringState, row: v.MemoryRow, key: v.Abstract, default: v.Abstract) -> v.Abstract:
    """`row.get(key, default)`"""
    name = _constant(s, key)
    owners, always = _owners(s, row, name)
    if not owners:
        return default
    assert isinstance(name, str)
    narrowed = replace(row, classes=owners)
    if always:
        return heaps.present_field(s, narrowed, name)
    here = heaps.is_class(s, row, owners)
    return conditional(s, here, lambda t: heaps.present_field(t, narrowed, name), lambda t: default)


# ---- views


Part = Callable[[LoweringState, v.MemoryRow, str], v.Abstract]


def key(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    return v.Static(name)


def value(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    return heaps.present_field(s, row, name)


def pair(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    return v.Record("tuple", (0, 1), (v.Static(name), heaps.present_field(s, row, name)))


WHOLE = slice(None)


def count(s: LoweringState, row: v.MemoryRow, of: slice = WHOLE) -> v.Abstract:
    """How many keys or elements it has, or a part of it."""
    counts = {k: frozenset({len(_keys(row.heap.members[k])[of])}) for k in s.positions(row)}
    return telling(s, by_class(s, row, lambda t, one, cls: v.Static(len(_keys(cls)[of]))), row, counts, f"len {of}")


def view(s: LoweringState, row: v.MemoryRow, part: Part, of: slice = WHOLE) -> v.Record | v.Lazy:
    """The keys, values or items, as they are when each is read; of a list its elements, or some of them."""
    if len(s.positions(row)) > 1:
        is_tuple, is_list = (part is value and row.heap.python_class is x for x in (tuple, list))
        item = lambda t, i: _of_any(t, row, part, i, of)
        return v.Lazy(count(s, row, of), item, None, (row,), is_tuple, is_list and of is not WHOLE)
    names = _keys(heaps.classes_of(s, row)[0])[of]
    if part is key:
        return v.Record("tuple", tuple(range(len(names))), tuple(map(v.Static, names)))
    return v.Lazy(v.Static(len(names)), lambda t, i: part(t, row, _named(names, i)), None, (row,))


def _named(names: tuple[str, ...], index: v.Abstract) -> str:
    assert isinstance(index, v.Static) and isinstance(index.value, int)
    return names[index.value]


def _of_any(s: LoweringState, row: v.MemoryRow, part: Part, index: v.Abstract, of: slice) -> v.Abstract:
    """An item of a view of a record whose keys depend on the row; it is there."""
    named = {k: _keys(row.heap.members[k])[of] for k in s.positions(row)}
    at = index.value if isinstance(index, v.Static) else 0
    row = replace(row, classes=frozenset(k for k, names in named.items() if len(names) > at))
    if isinstance(index, v.Static):
        names = {named[k][at] for k in s.positions(row)}
        if len(names) == 1:
            return part(s, row, names.pop())
        return by_class(s, row, lambda t, one, cls: part(t, one, _keys(cls)[of][at]))
    return by_class(
        s, row, lambda t, one, cls: select(t, operand_of(t, index), [part(t, one, k) for k in _keys(cls)[of]])
    )


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
    name = _place(s, row, key)
    if name is None:
        give_up(s, row, "a computed key is set")
    owners, always = _owners(s, row, name)
    if not always and row.heap.is_dict:
        give_up(s, row, f"the key {name!r} is added")
    s.check(heaps.is_class(s, row, owners), "IndexError", "list assignment index out of range")
    if not owners:
        s.dead = True
        return
    heaps.set_field(s, replace(row, classes=owners), name, value)


def set_default(
    s: LoweringState, row: v.MemoryRow, key: v.Abstract, default: Callable[[LoweringState], v.Abstract]
) -> v.Abstract:
    """`row.setdefault(key, default(s))`"""
    name = _constant(s, key)
    if not isinstance(name, str) or not _owners(s, row, name)[1]:
        give_up(s, row, "a key is added by setdefault()")
    return heaps.present_field(s, row, name)


def assign(s: LoweringState, row: v.MemoryRow, table: v.Record) -> None:
    """Let it hold what another dict holds, and nothing else."""
    classes = heaps.classes_of(s, row)
    if table.kind != "dict" or any(_keys(c) != table.keys for c in classes):
        give_up(s, row, "keys are added or taken out")
    for key, value in zip(table.keys, table.items, strict=True):
        heaps.set_field(s, row, key, value)


NONE = v.Static(None)


@dataclass(frozen=True)
class _Memory:
    """The memory of lists that are no records: how many there are, how many elements have a place; the rest is in
    columns."""

    count: v.Abstract
    used: v.Abstract
    lengths: v.Abstract
    table: v.Abstract
    columns: tuple[v.Abstract, ...]


def _memory(s: LoweringState, heap: Heap, write: bool = False) -> _Memory:
    _no_records(s, heap)
    count, used, lengths, table, *columns = heaps.memory_of(s, heap, write)
    return _Memory(count, used, lengths, table, tuple(columns))


def _no_records(s: LoweringState, heap: Heap) -> None:
    if heap.is_record:
        _give_up(s, heap.whole, "their length changes, or a place is computed,")


def _bind(s: LoweringState, heap: Heap, m: _Memory) -> None:
    heaps.bind_memory(s, heap, (m.count, m.used, m.lengths, m.table, *m.columns))


def _width(s: LoweringState) -> int:
    return buffers.segments(s.context.memory.capacity)


def _element(heap: Heap) -> Layout | None:
    """The layout of the elements; None where none is known."""
    return heap.layout.items[0] if heap.layout is not None and heap.layout.items else None


def is_row(value: v.Abstract) -> bool:
    """Is it a list or dict that has memory?"""
    return isinstance(value, v.MemoryRow) and (value.heap.in_segments or value.heap.is_record)


def is_dict_row(value: v.Abstract) -> bool:
    """Is it a dict that has memory?"""
    return isinstance(value, v.MemoryRow) and value.heap.is_dict


def there(s: LoweringState, row: v.Abstract) -> v.MemoryRow:
    """The list, which is not None."""
    assert isinstance(row, v.MemoryRow)
    return heaps.there(s, row, f"None where a {row.heap.kind} is needed")


# ---- making


def hold(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """Note that a container holds a value from here on; the value. Where such lists have memory, all have."""
    held = s.context.sites.hold(value)
    known = s.context.memory.sites
    if held and known:
        s.context.memory.add_sites(s.context.sites.of(held, known, dicts_have_memory(known)))
    return value


def refuse_view(s: LoweringState, value: v.Abstract) -> None:
    """Refuse to keep a view of a dict in memory, which would have to show what becomes of the dict."""
    if isinstance(value, v.Lazy) and value.dicts:
        s.refuse(
            "a view of a dict that is changed is kept: keys(), values() or items()", "keep a list: list(d.values())"
        )


def new_list(s: LoweringState, heap: Heap) -> v.MemoryRow:
    """A new list without elements."""
    _no_records(s, heap)
    heaps.grow(s, heap, (), [])
    m = _memory(s, heap, write=True)
    capacity = s.context.memory.capacity
    room = traced(s, operator.lt, m.count, v.Static(capacity))
    s.check(room.operand, NO_ROOM, out_of_room(capacity, heap.kind))
    _bind(s, heap, replace(m, count=traced(s, operator.add, m.count, v.Static(1))))
    return v.MemoryRow(operand_of(s, m.count), heap, own=True)


def lay_out(s: LoweringState, row: v.MemoryRow, length: v.Abstract) -> v.Abstract:
    """Give a new list a length; where its elements begin, which are to be set then."""
    m, at = _memory(s, row.heap, write=True), v.Leaf(row.operand)
    size = traced(s, buffers.room_for, length)
    used = traced(s, operator.add, m.used, size)
    _check_used(s, used)
    laid_out = replace(
        m,
        used=used,
        lengths=traced(s, buffers.write, m.lengths, length, at),
        table=traced(s, buffers.laid_out(_width(s)), m.table, at, length, m.used),
    )
    _bind(s, row.heap, laid_out)
    return m.used


def _check_used(s: LoweringState, used: v.Abstract) -> None:
    capacity = s.context.memory.capacity
    enough = traced(s, operator.le, used, v.Static(buffers.elements(capacity)))
    s.check(enough.operand, NO_ROOM, out_of_room(capacity, "element in lists"))


def as_element(s: LoweringState, heap: Heap, value: v.Abstract) -> v.Abstract:
    """A value as an element; where none like it was known, all is lowered again."""
    _no_records(s, heap)
    hold(s, value)
    value = heaps.as_field(s, value)
    heaps.grow(s, heap, ("item",), [layout_of(value)])
    return value


def put(s: LoweringState, heap: Heap, value: v.Abstract, place: v.Abstract) -> None:
    """Set an element that has a place."""
    value = as_element(s, heap, value)
    layout = _element(heap)
    assert layout is not None
    parts = [as_stored(s, x) for x in convert(s, heaps.in_memory(s, value, layout), layout)]
    m = _memory(s, heap, write=True)
    columns = [traced(s, buffers.write, c, v.Leaf(x), place) for c, x in zip(m.columns, parts, strict=True)]
    _bind(s, heap, replace(m, columns=tuple(columns)))


def tell_apart(s: LoweringState, heap: Heap) -> None:
    """Note that it matters which list in memory is which: one is changed, or compared by `is`."""
    heap.whole.told_apart = True
    refuse_copies(s, heap)


def change(s: LoweringState, row: v.MemoryRow) -> None:
    """Note that a list in memory is changed."""
    s.context.fields_set[row.heap.whole][""] = None
    if not row.own:
        tell_apart(s, row.heap)


def refuse_copies(s: LoweringState, heap: Heap) -> None:
    """Refuse copies of lists of the examples where they would not do for these."""
    if not heap.whole.copies or not heap.whole.told_apart:
        return
    words = "a list of the examples may stand where lists are changed in place, or compared by `is`"
    error = UnsupportedError(words, s.span, "put a copy there: [y for y in x]")
    for name in sorted(heap.whole.copies):
        raise list_change(s, name, error) or error


# ---- reading


def length(s: LoweringState, row: v.MemoryRow) -> v.Leaf:
    """`len(row)`"""
    return traced(s, buffers.read_weak, _memory(s, row.heap).lengths, v.Leaf(row.operand))


def element(s: LoweringState, row: v.MemoryRow, index: v.Abstract) -> v.Abstract:
    """The element at an index that is in range."""
    if row.heap.is_record:
        return load(s, row, index)
    layout = _element(row.heap)
    if layout is None:
        s.check(s.scalar(False), "IndexError", "list index out of range")
        s.dead = True
        return NONE
    at, columns = place(s, row, index), _memory(s, row.heap).columns
    read = [_read(s, c, at, t) for c, t in zip(columns, leaf_types(layout), strict=True)]
    found = heaps.out_of_memory(s, rebuild(layout, iter(read)))
    s.context.identities.stored(found)
    return found


def _read(s: LoweringState, column: v.Abstract, at: v.Abstract, type: Type) -> Operand:
    kind = column_type(type)
    weak = kind is not None and kind.weak
    return as_read(s, traced(s, buffers.read_weak if weak else buffers.read, column, at).operand, type)


def place(s: LoweringState, row: v.MemoryRow, index: v.Abstract) -> v.Leaf:
    """Where an element stands in the columns."""
    slot = traced(s, buffers.slot(_width(s)), v.Leaf(row.operand), index)
    return traced(s, buffers.place, traced(s, buffers.read_weak, _memory(s, row.heap).table, slot), index)


def tuple_of(made: v.Abstract) -> v.Abstract:
    """A list that nobody else holds as a tuple."""
    if isinstance(made, v.Listing):
        return replace(made, is_tuple=True)
    assert isinstance(made, v.Record)
    return replace(made, kind="tuple")


def elements(s: LoweringState, row: v.MemoryRow) -> v.Record | v.Lazy:
    """The elements, of a dict its pairs, one after the other, as they are when each is read."""
    if row.heap.is_record:
        return view(s, row, pair if row.heap.is_dict else value)
    if _element(row.heap) is None:
        return v.Record("list", (), ())
    dicts = (row,) if row.heap.is_dict else ()
    return v.Lazy(length(s, row), lambda t, i: element(t, row, i), lambda t: length(t, row), dicts)


def column(s: LoweringState, row: v.MemoryRow, part: int) -> v.Abstract:
    """The keys of a dict (`part` 0) or its values (1) as a list, which is a value."""
    return s.context.rules.materialise(s, parts(s, row, part))


def parts(s: LoweringState, row: v.MemoryRow, part: int) -> v.Record | v.Lazy:
    """The keys of a dict (`part` 0) or its values (1), as they are when each is read."""
    if row.heap.is_record:
        return view(s, row, value if part else key)
    found = elements(s, row)
    if isinstance(found, v.Record):
        return found

    def item(t: LoweringState, i: v.Abstract) -> v.Abstract:
        pair = found.item(t, i)
        assert isinstance(pair, v.Record)
        return pair.items[part]

    return replace(found, item=item)


def copied(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A list or dict in memory as one of its own, which is a value; other values as they are."""
    if not is_row(value):
        return value
    row = there(s, value)
    if row.heap.is_record:
        return opened(s, row)
    if not row.heap.is_dict:
        made = s.context.rules.materialise(s, elements(s, row))
        if row.heap.cls is tuple:
            return tuple_of(made)
        return made
    if row.heap.is_set:
        return v.Record("table", ("keys",), (column(s, row, 0),), set)
    items = {"keys": column(s, row, 0), "values": column(s, row, 1)}
    if row.heap.factory is not None:
        items["factory"] = row.heap.factory
    return v.Record("table", tuple(items), tuple(items.values()), row.heap.cls)


# ---- changing


def append(s: LoweringState, row: v.MemoryRow, value: v.Abstract) -> None:
    """`row.append(value)`"""
    as_element(s, row.heap, value)
    count = length(s, row)
    put_at(s, row, value, count, traced(s, operator.add, count, v.Static(1)))


def put_at(
    s: LoweringState, row: v.MemoryRow, value: v.Abstract, index: v.Abstract, after: v.Abstract | None = None
) -> None:
    """Set the element at an index, or behind the last one. `after`: how long the list is then, where that is known."""
    change(s, row)
    as_element(s, row.heap, value)
    m, at = _memory(s, row.heap, write=True), v.Leaf(row.operand)
    after = after or traced(s, buffers.length_with, length(s, row), index)
    slot = traced(s, buffers.slot(_width(s)), at, index)
    begin = traced(s, buffers.read_weak, m.table, slot)
    full = traced(s, operator.eq, begin, v.Static(0))
    behind = traced(s, operator.add, m.used, v.Static(1))
    begin = traced(s, buffers.choose, full, behind, begin)
    more = traced(s, buffers.choose, full, traced(s, buffers.size, index), v.Static(0))
    used = traced(s, operator.add, m.used, more)
    _check_used(s, used)
    grown = replace(
        m,
        used=used,
        lengths=traced(s, buffers.write, m.lengths, after, at),
        table=traced(s, buffers.write, m.table, begin, slot),
    )
    _bind(s, row.heap, grown)
    put(s, row.heap, value, traced(s, buffers.place, begin, index))


def pop(s: LoweringState, row: v.MemoryRow) -> v.Abstract:
    """`row.pop()`"""
    count = length(s, row)
    s.check(traced(s, operator.gt, count, v.Static(0)).operand, "IndexError", "pop from empty list")
    last = traced(s, operator.sub, count, v.Static(1))
    found = element(s, row, last)
    if not s.dead:
        shorten(s, row, last)
    return found


def shorten(s: LoweringState, row: v.MemoryRow, count: v.Abstract) -> None:
    """Keep the first elements."""
    change(s, row)
    m = _memory(s, row.heap, write=True)
    _bind(s, row.heap, replace(m, lengths=traced(s, buffers.write, m.lengths, count, v.Leaf(row.operand))))
