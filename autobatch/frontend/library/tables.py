"""Dicts and sets whose keys the function makes: a list of keys and one of values, in the order of insertion.

    d[k] = y        %1: int32* = find(%keys, %k)          where the key is; -1: nowhere
                    %2: int32* = where(%1 < 0, len, %1)   the place that it has, or gets
                    put(%keys, %2, %k), put(%values, %2, %y)

A dict whose keys are constants has none of that: it is a value for each key, until a key comes that is none. A table is
a record of kind "table", whose class is that of the dict or set that it stands for; sets have no values.
"""

from __future__ import annotations

import copy
import inspect
import operator
import types
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from typing import Any, NoReturn

import jax.numpy as jnp

from autobatch.data.columns import UNKNOWN
from autobatch.errors import TypeConflictError
from autobatch.frontend.library.equality import compares_fields
from autobatch.frontend.lowering.attributes import alternatives, class_list, classes_of, fields_of, is_none
from autobatch.frontend.lowering.joins import as_listing, conditional, convert, stored
from autobatch.frontend.lowering.numbers import operand_of, present, traced
from autobatch.frontend.lowering.sequences import (
    arithmetic,
    is_tuple,
    item,
    length,
    list_item,
    listing_item,
    maximum,
    reverse,
    sequence,
    sliced,
    zipped,
)
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.lowering.unions import by_type
from autobatch.frontend.memory import list_heap
from autobatch.frontend.memory.heap import is_set_value, refused_without_memory
from autobatch.frontend.memory.list_heap import hold
from autobatch.frontend.memory.rebinding import take_out
from autobatch.frontend.syntax.sources import WRITTEN, source_of
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import LayoutConflict, as_table, constant, type_conflict, unify
from autobatch.frontend.types.values import (
    ChoiceLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    RecordLayout,
    describe,
    is_python,
    layout_of,
)
from autobatch.ir.core import INT, Array, List, Operand, Ref, Tag
from autobatch.ir.ops import own

# ---- joined
#
# Lists put behind one another: `a + b`, `[*a, x]`, several `for` in one comprehension.
#
# xs + [f(c) for c in t.kids]        %4: list<..> = flatten(pack_list(%xs, %3))
#
# No element is copied: the host makes the joined list when something reads it.


EMPTY = v.Record("list", (), ())


def concatenate(s: LoweringState, *parts: v.Abstract) -> v.Abstract:
    """The elements of several lists (or tuples) in one list."""
    found = [_stored(s, p) for p in parts]
    if all(isinstance(x, v.Record) for x in found):
        items = tuple(x for p in found if isinstance(p, v.Record) for x in p.items)
        return v.Record("tuple" if is_tuple(parts[0]) else "list", tuple(range(len(items))), items)
    found = [x for x in found if not isinstance(x, v.Record) or x.items]
    if len(found) == 1 and isinstance(found[0], v.Listing):
        own_list = replace(found[0], is_tuple=is_tuple(parts[0]))
        s.context.identities.joined(own_list, found[0])
        return own_list
    if len(found) == 1 and not is_tuple(parts[0]):
        return found[0] if isinstance(found[0], v.Leaf) else replace(found[0])
    elements = [k for x in found for k in _elements(x)]
    layout = _common(s, elements)
    columns = zip(*(convert(s, x, ListingLayout(layout)) for x in found), strict=True)
    made = v.Listing(tuple(_joined(s, column) for column in columns), layout, is_tuple=is_tuple(parts[0]))
    s.context.identities.joined(made, *found)
    return made


def _stored(s: LoweringState, part: v.Abstract) -> v.Record | v.Listing | v.Leaf:
    """A list whose elements stand somewhere: ranges, slices and the like are made lists of."""
    if isinstance(part, v.Listing):
        return part
    found = sequence(s, part)
    if isinstance(found, v.Record) or isinstance(part, v.Leaf):
        return found if isinstance(found, v.Record) else part  # type: ignore[return-value]
    made = s.context.rules.materialise(s, found)
    assert isinstance(made, v.Record | v.Listing)
    return made


def _elements(part: v.Record | v.Listing | v.Leaf) -> list[Layout]:
    """The layouts of the elements of a list."""
    match part:
        case v.Listing(elem=elem):
            return [elem]
        case v.Record(items=items):
            return [layout_of(x) for x in items]
        case v.Leaf(operand=operand):
            assert isinstance(operand.type, List)
            return [LeafLayout(operand.type.elem)]


def _common(s: LoweringState, elements: Sequence[Layout]) -> Layout:
    try:
        return reduce(unify, elements)
    except LayoutConflict as conflict:
        message = f"the elements of a list have different types: {conflict}"
        raise type_conflict(conflict, message, s.span, "make all elements of one type, dtype and shape") from None


def _joined(s: LoweringState, lists: tuple[Operand, ...]) -> Operand:
    type = lists[0].type
    assert isinstance(type, List)
    outer = s.apply(own("pack_list"), lists, List(type))
    result = s.apply(own("flatten"), (outer,), type)
    s.block.memo["joined", result] = v.Record("tuple", tuple(range(len(lists))), tuple(map(v.Leaf, lists)))
    return result


def flatten(s: LoweringState, value: v.Record | v.Listing) -> v.Abstract:
    """The elements of the lists in a list."""
    if isinstance(value, v.Record):
        return concatenate(s, EMPTY, *value.items)
    if isinstance(value.elem, RecordLayout) and value.elem.kind == "list":
        if not value.elem.items:
            return EMPTY
        value = _rows_as_lists(s, value, value.elem)
    if isinstance(value.elem, ListingLayout) and not value.elem.array:
        return v.Listing(tuple(_flattened(s, x) for x in value.lists), value.elem.elem)
    if isinstance(value.elem, LeafLayout) and isinstance(value.elem.type, List):
        layout = ListingLayout(LeafLayout(value.elem.type.elem))
        return flatten(s, v.Listing(tuple(convert(s, value, ListingLayout(layout))), layout))
    s.refuse("these are no lists", "flatten lists of lists")


def _rows_as_lists(s: LoweringState, value: v.Listing, row: RecordLayout) -> v.Listing:
    """A list of lists of one fixed length, as a list of lists of any length."""
    layout = ListingLayout(_common(s, row.items))
    return v.Listing(tuple(convert(s, value, ListingLayout(layout))), layout)


def _flattened(s: LoweringState, lists: Operand) -> Operand:
    outer = lists.type
    assert isinstance(outer, List) and isinstance(outer.elem, List)
    return s.apply(own("flatten"), (lists,), List(outer.elem.elem))


def is_table(value: v.Abstract) -> bool:
    """Is it a dict or set whose keys the function makes?"""
    return isinstance(value, v.Record) and value.kind == "table"


def table_of(s: LoweringState, value: v.Abstract) -> v.Record | None:
    """A dict as a table, also one of constant keys; None for other values."""
    found = expand(s, list_heap.copied(s, value) if list_heap.is_dict_row(value) else value)
    return as_table(found) if is_dict(found) else None


def is_dict(value: v.Abstract) -> bool:
    """Is it a dict that the function builds, of any keys?"""
    return isinstance(value, v.Record) and (value.kind == "dict" or "values" in value.keys)


def copied(value: v.Abstract) -> v.Record:
    """The same dict or set as an object of its own."""
    assert isinstance(value, v.Record)
    return replace(value)


def keys_of(table: v.Record) -> v.Abstract:
    """The list of the keys."""
    return table.items[0]


def values_of(table: v.Record) -> v.Abstract:
    """The list of the values, those of the keys in their order."""
    return table.items[1]


# ---- reading


def position(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Leaf | None:
    """Where a key is, -1 where it is not there; None where it cannot be there."""
    key, keys = hashable(s, key), _listed(s, keys_of(table))
    by_equality = isinstance(keys_of(table), v.Leaf) or isinstance(key, v.Choice)
    if keys is not None and (by_equality or isinstance(keys.elem, ChoiceLayout)):
        found = s.call(v.Static(_place_of), [keys, key])
        return found if isinstance(found, v.Leaf) else None  # of another type than all keys
    if keys is None:
        return None
    try:
        layout = unify(keys.elem, layout_of(key))
    except LayoutConflict:
        return None
    if isinstance(layout, ChoiceLayout):  # it is of another type than all keys
        return None
    lists, parts = convert(s, keys, ListingLayout(layout)), convert(s, key, layout) or [s.scalar(0)]
    return v.Leaf(s.apply(own("find"), (*lists, *parts), INT))


def _place_of(keys: Any, key: Any) -> Any:
    """In a dict of the examples, as a function of one example."""
    for k in range(len(keys)):
        if keys[k] == key:
            return k
    return -1


def holds(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Abstract:
    """`key in table`"""
    found = position(s, table, key)
    return v.Static(False) if found is None else traced(s, operator.ge, found, v.Static(0))


def load(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Abstract:
    """`table[key]`; KeyError where it is not there."""
    if table.cls is Counter:
        return get(s, table, key, v.Static(0))
    found = position(s, table, key)
    if not check_found(s, found, key):
        return v.Static(None)
    assert found is not None
    return _value_at(s, table, found)


def check_found(s: LoweringState, found: v.Leaf | None, key: v.Abstract) -> bool:
    """KeyError where a key is not there. False where that is always so."""
    there = s.scalar(False) if found is None else traced(s, operator.ge, found, v.Static(0)).operand
    s.check(there, "KeyError", *_shown(key))
    s.dead = s.dead or found is None
    return found is not None


def get(s: LoweringState, table: v.Record, key: v.Abstract, default: v.Abstract) -> v.Abstract:
    """`table.get(key, default)`"""
    found = position(s, table, key)
    if found is None:
        return default
    there = traced(s, operator.ge, found, v.Static(0)).operand
    return conditional(s, there, lambda t: _value_at(t, table, found), lambda t: default)


def has_default(value: v.Abstract) -> bool:
    """Is it a `defaultdict`, which makes the values of keys that are asked for?"""
    if not isinstance(value, v.Record) or value.kind != "table" or "factory" not in value.keys:
        return False
    return value.get("factory") != v.Static(None)


def get_or_make(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Abstract:
    """`table[key]` of a `defaultdict`, without the key in it."""
    factory = table.get("factory")
    assert factory is not None
    return get_else(s, table, key, lambda t: made(t, factory))


def get_else(
    s: LoweringState, table: v.Record, key: v.Abstract, default: Callable[[LoweringState], v.Abstract]
) -> v.Abstract:
    """`table[key]`, or what is made where the key is not there."""
    found = position(s, table, key)
    if found is None:
        return default(s)
    there = traced(s, operator.ge, found, v.Static(0)).operand
    return conditional(s, there, lambda t: _value_at(t, table, found), default)


def made(s: LoweringState, factory: v.Abstract) -> v.Abstract:
    """A new value of a `defaultdict`."""
    value = s.call(factory, [])
    site: object = (
        ("defaultdict", value.cls or dict) if is_dict(value) and isinstance(value, v.Record) else "defaultdict"
    )
    if is_set_value(value):
        site = ("defaultdict", set)
    return hold(s, s.context.rules.made_by(s, value, site))


def first_of(s: LoweringState, items: v.Abstract, count: v.Abstract) -> v.Abstract:
    """The first elements of a list."""
    return s.context.rules.materialise(s, sliced(s, items, [v.Static(None), count, v.Static(None)]))


def _value_at(s: LoweringState, table: v.Record, place: v.Leaf) -> v.Abstract:
    values = values_of(table)
    if isinstance(values, v.Leaf):
        return list_item(s, values.operand, place)
    listed = _listed(s, values)
    assert listed is not None
    return listing_item(s, listed, place)


def _shown(key: v.Abstract) -> tuple[str, list[Operand]]:
    """A key in the words of an error."""
    if isinstance(key, v.Static):
        return repr(key.value).replace("{", "{{").replace("}", "}}"), []
    if isinstance(key, v.Record):
        parts = [_shown(x) for x in key.items]
        return f"({', '.join(words for words, _ in parts)})", [x for _, xs in parts for x in xs]
    return ("{}", [key.operand]) if isinstance(key, v.Leaf) and isinstance(key.type, Array | Tag) else ("...", [])


# ---- changing


def with_item(s: LoweringState, table: v.Record, key: v.Abstract, value: v.Abstract) -> v.Record:
    """The dict with `table[key] = value`. One of constant keys stays such where this is one."""
    key = constant(key)
    if table.kind != "dict" or not isinstance(key, v.Static):
        return store(s, as_table(table), key, value)
    hashable(s, key)
    known = dict(zip(table.keys, table.items, strict=True)) | {key.value: value}
    return v.Record("dict", tuple(known), tuple(known.values()))


def of_pairs(s: LoweringState, pairs: v.Abstract) -> v.Record:
    """The dict that pairs of keys and values are."""
    return updated(s, v.Record("dict", (), ()), pairs)


def updated(s: LoweringState, table: v.Record, more: v.Abstract) -> v.Record:
    """The dict with the items of another one, or of a sequence of pairs."""
    more = present(s, more)
    more = list_heap.copied(s, more) if list_heap.is_dict_row(more) else more
    found = expand(s, more)
    if isinstance(found, v.Record) and found.kind == "dict":
        for key, value in zip(found.keys, found.items, strict=True):
            table = with_item(s, table, v.Static(key), value)
        return table
    pairs = pairs_of(s, found) if isinstance(found, v.Record) and is_table(found) else more
    rows = sequence(s, pairs)
    if isinstance(rows, v.Record):
        for pair in rows.items:
            table = with_item(s, table, *_pair(s, pair))
        return table
    made = s.call(v.Static(_all_stored), [as_table(table), pairs])
    assert isinstance(made, v.Record)
    return made


def pairs_of(s: LoweringState, table: v.Record) -> v.Abstract:
    """The pairs of keys and values of a dict; of a set, the values are constants."""
    if table.kind == "table" and table.cls is set:
        found = sequence(s, table.items[0])
        if isinstance(found, v.Record):
            made = tuple(v.Record("tuple", (0, 1), (x, v.Static(True))) for x in found.items)
            return v.Record("list", tuple(range(len(made))), made)
        return v.Lazy(found.length, lambda t, i: v.Record("tuple", (0, 1), (found.item(t, i), v.Static(True))))
    if table.kind == "dict":
        items = tuple(v.Record("tuple", (0, 1), (v.Static(k), x)) for k, x in zip(table.keys, table.items, strict=True))
        return v.Record("list", tuple(range(len(items))), items)
    return zipped(s, table.items[:2], strict=False)


def _all_stored(table: Any, pairs: Any) -> Any:
    """Lowered like a function of the user."""
    made = table.copy()
    for key, value in pairs:
        made[key] = value
    return made


def _pair(s: LoweringState, value: v.Abstract) -> tuple[v.Abstract, v.Abstract]:
    found = sequence(s, value)
    if not isinstance(found, v.Record) or len(found.items) != 2:
        s.refuse("a dict is made of pairs", "give a key and a value for each item")
    return found.items[0], found.items[1]


def store(s: LoweringState, table: v.Record, key: v.Abstract, value: v.Abstract | None = None) -> v.Record:
    """The table with `table[key] = value`; of a set, with a key."""
    found = position(s, table, key)
    place = _place(s, table, found)
    given = [hashable(s, key)] if value is None else [hashable(s, key), stored(s, value)]
    items = [put(s, x, place, y, what) for x, y, what in zip(table.items, given, ("keys", "values"), strict=False)]
    return v.Record("table", table.keys, (*items, *table.items[len(items) :]), table.cls)


def _place(s: LoweringState, table: v.Record, found: v.Leaf | None) -> v.Abstract:
    """The place of a key, or the one behind all others."""
    count = length(s, keys_of(table))
    return count if found is None else traced(s, or_behind, found, count)


def or_behind(found: Any, count: Any) -> Any:
    return jnp.where(found < 0, count, found)


def put(s: LoweringState, items: v.Abstract, place: v.Abstract, element: v.Abstract, what: str) -> v.Listing:
    """A list with an element at a place, or behind it."""
    known = _listed(s, items)
    if known is None:
        return as_listing(s, v.Record("list", (0,), (element,)))
    try:
        layout = unify(known.elem, layout_of(element))
    except LayoutConflict as conflict:
        raise TypeConflictError(
            f"the {what} have different types: {conflict}", s.span, f"give all {what} one type"
        ) from None
    lists, parts = convert(s, known, ListingLayout(layout)), convert(s, element, layout) or [s.scalar(0)]
    index = operand_of(s, place)
    made = tuple(s.apply(own("put"), (x, index, y), x.type) for x, y in zip(lists, parts, strict=True))
    result = v.Listing(made, layout)
    s.context.identities.joined(result, known)
    s.context.identities.collected(result, [element])
    return result


def without(s: LoweringState, table: v.Record, place: v.Abstract) -> v.Record:
    """The table without the key at a place."""
    behind = traced(s, operator.add, place, v.Static(1))
    none = v.Static(None)

    def cut(items: v.Abstract) -> v.Abstract:
        known = _listed(s, items)
        assert known is not None
        return concatenate(s, EMPTY, sliced(s, known, [none, place, none]), sliced(s, known, [behind, none, none]))

    lists = 1 if "values" not in table.keys else 2
    return v.Record("table", table.keys, (*map(cut, table.items[:lists]), *table.items[lists:]), table.cls)


def delete(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Record | None:
    """The table without a key; KeyError where it is not there, None where it cannot be."""
    found = position(s, table, key)
    there = s.scalar(False) if found is None else traced(s, operator.ge, found, v.Static(0)).operand
    s.check(there, "KeyError", *_shown(key))
    return None if found is None else without(s, table, found)


def popped(
    s: LoweringState, table: v.Record, key: v.Abstract, default: v.Abstract | None
) -> tuple[v.Abstract, v.Abstract]:
    """`table.pop(key, default)`, and the table without the key."""
    found = position(s, table, key)
    if default is None or found is None:
        value = load(s, table, key) if default is None else default
        return value, table if found is None else without(s, table, found)
    return get(s, table, key, default), without(s, table, _place(s, table, found))


def dropped(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Record:
    """The table without a key, which need not be there."""
    found = position(s, table, key)
    return table if found is None else without(s, table, _place(s, table, found))


def item_popped(s: LoweringState, table: v.Record, last: v.Abstract, words: str) -> tuple[v.Abstract, v.Abstract]:
    """`table.popitem(last)`, and the table without that key; KeyError with these words of an empty one."""
    count = length(s, keys_of(table))
    s.check(traced(s, operator.gt, count, v.Static(0)).operand, "KeyError", words)
    lists = [_listed(s, x) for x in table.items[:2]]
    if None in lists:  # it never holds anything
        s.dead = True
        return v.Static(None), table
    place = traced(s, _place_popped, count, last)
    found = tuple(listing_item(s, x, place) for x in lists if x is not None)
    return v.Record("tuple", (0, 1), found), without(s, table, place)


def _place_popped(count: Any, last: Any) -> Any:
    return jnp.where(last, count - 1, 0)


# ---- keys


def hashable(s: LoweringState, key: v.Abstract) -> v.Abstract:
    """A key; refused where Python has no hash of it."""
    if isinstance(key, v.Optional) and not key.unset:
        inner = key.value
        return conditional(s, key.missing, lambda t: v.Static(None), lambda t: hashable(t, inner))
    key = expand(s, present(s, key))
    match key:
        case v.Static(value=held):
            try:
                hash(held)
            except TypeError as error:
                _refuse_key(s, str(error))
            return key
        case v.Leaf(type=Array() as type, numpy=numpy) if type.is_scalar and (is_python(type) or type.is_bool or numpy):
            return key
        case v.Leaf(type=Tag()):
            return key
        case v.Leaf(type=Ref()) if alternatives(s, key):
            return hashable(s, by_type(s, key, hashable, v.Static(None)))
        case v.Leaf(type=Ref(), operand=operand) if _is_tuple(s, key):
            none = is_none(s, operand)
            return conditional(s, none, lambda t: v.Static(None), lambda t: hashable(t, fields_of(t, key) or key))
        case v.Leaf(type=Ref() as type):
            found = class_list(s, type)
            _refuse_hashes(s, [found[k].cls for k in sorted(classes_of(s, key))])
            return key
        case v.MemoryRow(heap=heap):
            _refuse_hashes(s, list(heap.members))
            return key
        case v.Record(kind="object", keys=keys, items=items, cls=cls) if _has_hash_of_fields(cls):
            return v.Record(key.kind, keys, tuple(hashable(s, x) for x in items), cls)
        case v.Record(kind="object", cls=cls) if cls in s.context.built and _is_identity(cls):
            words = f"an object of {cls.__name__} is a key of a dict or set, by identity"
            raise refused_without_memory([cls], words, s.span, "use a number that stands for it as the key")
        case v.Record(kind="tuple" | "namedtuple", keys=keys, items=items, cls=cls):
            return v.Record(key.kind, keys, tuple(hashable(s, x) for x in items), cls)
        case v.Choice(alternatives=options):
            return replace(key, alternatives=tuple(hashable(s, x) for x in options))
        case v.Leaf(type=Array()):
            _refuse_key(s, "an array has no hash", "make a number of Python of it: int(x)")
        case v.Listing() | v.Record(kind="list"):
            _refuse_key(s, "a list has no hash")
        case v.Record(kind="dict" | "table"):
            _refuse_key(s, "a dict or set has no hash")
        case _:
            _refuse_key(s, f"{describe(layout_of(stored(s, key)))} has no hash")


def _is_tuple(s: LoweringState, key: v.Leaf) -> bool:
    """Is it a tuple or NamedTuple of the examples, of one form?"""
    assert isinstance(key.type, Ref)
    kinds = [class_list(s, key.type)[k].kind for k in classes_of(s, key)]
    return len(kinds) == 1 and kinds[0] in ("tuple", "namedtuple")


def _refuse_hashes(s: LoweringState, classes: Sequence[type | None]) -> None:
    """Refuse objects as keys, but for those that are keys by identity."""
    for cls in classes:
        if cls is None or _is_identity(cls):
            continue
        if inspect.getattr_static(cls, "__hash__") is None:
            _refuse_key(s, f"unhashable type: {cls.__name__!r}", "declare the class with eq=False or frozen=True")
        why = f"objects of {cls.__name__}, whose place in memory is what is known here, are equal by what they hold"
        _refuse_key(s, why, "take a tuple of what makes them equal as the key")


def _is_identity(cls: type) -> bool:
    """Are its objects equal to themselves alone?"""
    return all(inspect.getattr_static(cls, n) is getattr(object, n) for n in ("__hash__", "__eq__"))


def _has_hash_of_fields(cls: type | None) -> bool:
    """Has `dataclass` made its `__hash__` and its `__eq__`, of all fields?"""
    if cls is None or not compares_fields(cls) or not all(f.compare and f.hash is not False for f in fields(cls)):
        return False
    made = inspect.getattr_static(cls, "__hash__", None)
    return isinstance(made, types.FunctionType) and made.__code__.co_filename == "<string>"


def _refuse_key(s: LoweringState, why: str, cure: str = "use numbers, strings, or tuples of them") -> NoReturn:
    s.refuse(f"this cannot be a key of a dict or set: {why}", cure)


def _listed(s: LoweringState, items: v.Abstract) -> v.Listing | None:
    """A list of keys or values as one of the program; None for an empty one."""
    if isinstance(items, v.Record):
        return as_listing(s, items) if items.items else None
    if isinstance(items, v.Leaf):
        return _given_items(s, items)
    assert isinstance(items, v.Listing)
    return items


def _given_items(s: LoweringState, items: v.Leaf) -> v.Listing | None:
    """The list of the keys, or of the values, of a dict of the examples: tuples as their elements."""
    assert isinstance(items.type, List)
    if items.type.elem == UNKNOWN:
        return None
    if not isinstance(items.type.elem, Ref):
        return v.Listing((items.operand,), LeafLayout(items.type.elem))
    known = s.block.recall(("items", items.operand))
    if known is None:
        whole = sequence(s, items)
        assert isinstance(whole, v.Lazy)
        opened = replace(whole, item=lambda t, i: _opened_key(t, whole.item(t, i)))
        known = s.block.memo["items", items.operand] = s.context.rules.materialise(s, opened)
    assert isinstance(known, v.Listing)
    return known


def _opened_key(s: LoweringState, key: v.Abstract) -> v.Abstract:
    """A tuple of the examples as one of its elements, whatever tuples are in it."""
    found = s.context.rules.parts(s, key) if isinstance(key, v.Leaf) and isinstance(key.type, Ref) else None
    if found is None or found.kind not in ("tuple", "namedtuple"):
        return key
    return replace(found, items=tuple(_opened_key(s, x) for x in found.items))


# ---- deques
#
# `collections.deque`: a list, and how long it may be at most. What changes it is what changes a list.
#
# d.append(x)         put(%items, length(%items), %x)
# d.popleft()         the elements from the second one on
#
# Deques that objects and lists hold, or that several variables and functions share, and that are changed, have memory:
# there they are objects of a class in Python, which is lowered as a class of the user is. Each call of `deque` has a
# class of its own, so that the lists of two of them may hold elements of different types.
#
# q.append(x)         items = [.., .., a, b, x]
# q.popleft()                      ^ head: one more; what stands before it is gone


Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
Change = Callable[[LoweringState, v.Abstract, Arguments, Named], tuple[v.Abstract, v.Abstract]]
NONE = v.Static(None)


class Deque:
    """`head`: the place of the first element."""

    def __init__(self, given: Any, maxlen: Any) -> None:
        self.items: list[Any] = []
        self.head = 0
        self.maxlen = maxlen
        self.extend(given)

    def __len__(self) -> Any:
        return len(self.items) - self.head

    def __iter__(self) -> Any:
        return iter(self.items[self.head :])

    def __reversed__(self) -> Any:
        return reversed(self.items[self.head :])

    def __contains__(self, value: Any) -> Any:
        return value in self.items[self.head :]

    def __eq__(self, other: Any) -> Any:
        return self.items[self.head :] == other.items[other.head :]

    def place(self, index: Any) -> Any:
        if index < -len(self) or index >= len(self):
            raise IndexError("deque index out of range")
        return self.head + index if index >= 0 else len(self.items) + index

    def __getitem__(self, index: Any) -> Any:
        return self.items[self.place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.items[self.place(index)] = value

    def __delitem__(self, index: Any) -> None:
        del self.items[self.place(index)]

    def append(self, value: Any) -> None:
        self.items.append(value)
        if self.maxlen is not None and len(self.items) - self.head > self.maxlen:
            self.head += 1

    def appendleft(self, value: Any) -> None:
        if self.head > 0:
            self.head -= 1
            self.items[self.head] = value
        else:
            self.items.insert(0, value)
        if self.maxlen is not None and len(self.items) - self.head > self.maxlen:
            self.items.pop()

    def extend(self, values: Any) -> None:
        for value in list(values):
            self.append(value)

    def extendleft(self, values: Any) -> None:
        for value in list(values):
            self.appendleft(value)

    def pop(self) -> Any:
        if self.head == len(self.items):
            raise IndexError("pop from an empty deque")
        return self.items.pop()

    def popleft(self) -> Any:
        if self.head == len(self.items):
            raise IndexError("pop from an empty deque")
        self.head += 1
        return self.items[self.head - 1]

    def clear(self) -> None:
        self.items.clear()
        self.head = 0

    def rotate(self, steps: Any = 1) -> None:
        if len(self) > 1:
            for _ in range(steps % len(self)):
                self.appendleft(self.pop())

    def insert(self, index: Any, value: Any) -> None:
        if self.maxlen is not None and len(self) == self.maxlen:
            raise IndexError("deque already at its maximum size")
        first = max(index + len(self), 0) if index < 0 else min(index, len(self))
        self.items.insert(self.head + first, value)

    def remove(self, value: Any) -> None:
        del self.items[self.head + self.index(value)]

    def index(self, value: Any) -> Any:
        return self.items[self.head :].index(value)

    def count(self, value: Any) -> Any:
        return self.items[self.head :].count(value)

    def reverse(self) -> None:
        self.items = self.items[self.head :][::-1]
        self.head = 0

    def copy(self) -> Any:
        return type(self)(self, self.maxlen)

    def __add__(self, other: Any) -> Any:
        made = self.copy()
        made.extend(other)
        return made

    def __iadd__(self, other: Any) -> Any:
        self.extend(other)
        return self


def class_of_its_own(cls: type, name: str) -> type:
    """A copy of a class of this package, whose methods have syntax trees of their own: what the expressions in them
    make is told from what those of another copy make."""
    return type(name, (cls,), {k: _own(f) if isinstance(f, types.FunctionType) else f for k, f in _members_of(cls)})


def _members_of(cls: type) -> Sequence[tuple[str, Any]]:
    return [(k, f) for k, f in vars(cls).items() if k not in ("__dict__", "__weakref__")]


def _own(function: types.FunctionType) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    setattr(made, WRITTEN, copy.deepcopy(source_of(function).node))
    return made


def is_deque(value: v.Abstract) -> bool:
    """Is it a deque that the function builds?"""
    return isinstance(value, v.Record) and value.kind == "table" and value.cls is deque


def make_deque(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`collections.deque(items, maxlen)`"""
    maxlen = args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)
    if not isinstance(maxlen, v.Static):
        s.refuse("the maxlen of a deque must be a constant", "name the argument that decides it in static=(...)")
    if s.context.memory.deques:
        known, key = s.context.memory.rewritten, (deque, s.frame.source, s.span)
        cls = known[key] = known.get(key) or class_of_its_own(Deque, "deque")
        return s.call(v.Static(cls), [args[0] if args else v.Record("tuple", (), ()), maxlen])
    items = _elements_listed(s, args[0]) if args else v.Record("list", (), ())
    made = v.Record("table", ("items", "maxlen"), (items, maxlen), deque)
    return with_items(s, made, items)


def items_of(value: v.Abstract) -> v.Abstract:
    """The list of the elements."""
    assert isinstance(value, v.Record)
    return value.items[0]


def with_items(s: LoweringState, old: v.Abstract, items: v.Abstract, from_left: bool = False) -> v.Record:
    """The deque with other elements; those too many are dropped, which stand at the other end than the new ones."""
    assert isinstance(old, v.Record)
    most = old.items[1]
    assert isinstance(most, v.Static)
    if most.value is not None:
        count = length(s, items)
        first = maximum(s, arithmetic(s, operator.sub, count, most), v.Static(0))
        bounds = [NONE, most, NONE] if from_left else [first, NONE, NONE]
        items = s.context.rules.materialise(s, sliced(s, items, bounds))
    return replace(old, items=(items, most))


def _elements_listed(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A sequence as a list of its own."""
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return v.Record("list", tuple(range(len(found.items))), found.items)
    return s.context.rules.materialise(s, found)


def _append(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = items_of(whole)
    if isinstance(items, v.Record):
        items = concatenate(s, items, v.Record("list", (0,), tuple(args)))
    else:
        items = put(s, items, length(s, items), args[0], "elements")
    return NONE, with_items(s, whole, items)


def _append_left(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = concatenate(s, v.Record("list", (0,), tuple(args)), items_of(whole))
    return NONE, with_items(s, whole, items, from_left=True)


def _extend(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, with_items(s, whole, concatenate(s, items_of(whole), _elements_listed(s, args[0])))


def _extend_left(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = concatenate(s, _elements_listed(s, reverse(s, args[0])), items_of(whole))
    return NONE, with_items(s, whole, items, from_left=True)


def _check_some(s: LoweringState, items: v.Abstract) -> None:
    """IndexError where there is no element."""
    count = length(s, items)
    some = (
        s.scalar(count.value > 0) if isinstance(count, v.Static) else traced(s, operator.gt, count, v.Static(0)).operand
    )
    s.check(some, "IndexError", "pop from an empty deque")
    s.dead = s.dead or count == v.Static(0)


def _pop(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return _taken(s, whole, v.Static(-1), [NONE, v.Static(-1), NONE])


def _pop_left(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return _taken(s, whole, v.Static(0), [v.Static(1), NONE, NONE])


def _taken(
    s: LoweringState, whole: v.Abstract, place: v.Static, rest: Sequence[v.Abstract]
) -> tuple[v.Abstract, v.Abstract]:
    items = items_of(whole)
    _check_some(s, items)
    if s.dead:
        return NONE, whole
    found = item(s, items, place)
    take_out(s, found, whole, items)
    return found, with_items(s, whole, s.context.rules.materialise(s, sliced(s, items, rest)))


def _rotate(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items, steps = items_of(whole), args[0] if args else v.Static(1)
    if isinstance(items, v.Record) and isinstance(steps, v.Static):
        held = deque(items.items)
        held.rotate(steps.value)
        return NONE, with_items(s, whole, replace(items, items=tuple(held)))
    if isinstance(items, v.Record) and not items.items:
        return NONE, whole
    return NONE, with_items(s, whole, s.call(v.Static(_rotated), [items, steps]))


def _rotated(items: Any, steps: Any) -> Any:
    """Lowered like a function of the user."""
    count = len(items)
    return [items[(k - steps) % count] for k in range(count)]


def _clear(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, with_items(s, whole, v.Record("list", (), ()))


def _as_list(change: Change) -> Change:
    """A method that changes a deque as it changes a list."""

    def changed(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
        result, items = change(s, items_of(whole), args, named)
        return result, with_items(s, whole, items)

    return changed


def changes(of_lists: Mapping[Any, Change]) -> dict[Any, Change]:
    """The methods that change a deque, by those that change a list."""
    return {
        deque.append: _append,
        deque.appendleft: _append_left,
        deque.extend: _extend,
        deque.extendleft: _extend_left,
        deque.pop: _pop,
        deque.popleft: _pop_left,
        deque.rotate: _rotate,
        deque.clear: _clear,
        deque.insert: _as_list(of_lists[list.insert]),
        deque.remove: _as_list(of_lists[list.remove]),
        deque.reverse: _as_list(of_lists[list.reverse]),
    }
