"""Columns -> objects of the classes that were packed, made without calling `__init__`, sharing restored.

Objects that can change (instances, lists, dicts, graphs) are made first, empty; then tuples and NamedTuples, which must
be complete when they are made, each after the tuples that it holds; then the former are filled. No recursion.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from itertools import pairwise, repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from autobatch.data.columns import (
    ROOT,
    ROOT_MISSING,
    Class,
    Columns,
    Field,
    ListStore,
    Schema,
    Store,
    has_mask,
    wrap_keys,
)
from autobatch.data.leaves import fill_graph, is_graph_class, is_sparse_class, rebuild_sparse
from autobatch.errors import BatchError
from autobatch.ir.core import Array, List, Ref, Tag, Type

# ---- common
#
# What several batches of one result have in common: objects that one of them made are those of the others too.
#
# A store is the same in two batches where all columns that its objects are made of, and those of all that they lead to,
# lie at the same places in memory: `return first, last` gives two batches, and one object for each row of their memory.


Token = Hashable


class Common:
    """Objects and lists that were made, by what tells their store from others. `given`: of stores some of whose objects
    are there already."""

    def __init__(self) -> None:
        self.made: dict[Token, list[Any]] = {}
        self.given: dict[Token, GivenObjects] = {}


@dataclass(frozen=True)
class GivenObjects:
    """The objects that are there for some rows of a store, which are left as they are. `note(name, rows, values)` is
    told what some of their fields, `names`, are in the columns."""

    by_row: Mapping[int, Any]
    names: Collection[str]
    note: Callable[[str, Sequence[int], Sequence[Any]], None]


def tokens_of(schema: Schema, places: Mapping[str, int]) -> dict[str, Token]:
    """What tells each store and list store from others. `places`: where each column lies."""
    held: dict[str, tuple[Sequence[str], tuple[int, ...]]] = {}
    for store in schema.stores:
        names = [f"{store.name}.#tag", *(n for f in store.fields for n in (f.column, f"{f.column}?"))]
        held[store.name] = [n for f in store.fields for n in _names(f.type)], _places(names, places)
    for items in schema.lists:
        names = [f"{items.name}.#{part}" for part in ("offsets", "values", "values?")]
        held[items.name] = _names(items.elem), _places(names, places)
    return {name: tuple(held[n][1] for n in _reached(name, held)) for name in held}


def _places(names: list[str], places: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(places.get(n, 0) for n in names)


def _names(type: Type) -> tuple[str, ...]:
    """The store that values of a type are rows of, and that of its elements."""
    match type:
        case Ref(store=store):
            return (store,)
        case List(elem=elem, store=str(store)):
            return (store, *_names(elem))
        case _:
            return ()


def _reached(name: str, held: Mapping[str, tuple[Sequence[str], Any]]) -> list[str]:
    """A store, first, and all that its objects lead to."""
    found = {name: None}
    todo = [name]
    while todo:
        for other in held[todo.pop()][0]:
            if other in held and other not in found:
                found[other] = None
                todo.append(other)
    return list(found)


AnyArray = np.ndarray[Any, Any]
NO_TOKENS: Mapping[str, Token] = MappingProxyType({})


class NumberUnpacker:
    """What numbers of columns become: Python numbers as they were packed, arrays of NumPy (copies), typed random keys
    of JAX."""

    def each(self, type: Array, column: str, array: AnyArray, rows: AnyArray | None) -> list[Any]:
        """The entries `array` of a column, which are its `rows`; None: all."""
        return python_values(type, array)

    def slices(self, type: Array, column: str, array: AnyArray, offsets: Sequence[int]) -> list[Any]:
        """Arrays that are rows of a column, one behind the other."""
        flat = array.copy()
        rows = wrap_keys(flat, type.dtype) if type.dtype.startswith("key<") else flat
        return [rows[a:b] for a, b in pairwise(offsets)]


def unpack(
    columns: Columns,
    numbers: NumberUnpacker | None = None,
    common: Common | None = None,
    tokens: Mapping[str, Token] = NO_TOKENS,
) -> list[Any]:
    """The examples that were packed. `numbers`: what becomes of their numbers. `common`: objects that other batches
    have made, by the tokens of their stores."""
    return Unpacker(columns, numbers, common, tokens).run()


@dataclass(eq=False)
class _Form:
    """The rows of one class of a store, and the values of its fields: a list each, references still rows. `given`:
    where their objects are there already."""

    store: str
    cls: Class
    rows: list[int]
    fields: list[tuple[Field, list[Any]]]
    given: GivenObjects | None = None

    @property
    def is_complete_when_made(self) -> bool:
        """Must it be made with its values, as tuples are?"""
        if self.cls.kind in ("tuple", "namedtuple", "value"):
            return True
        return self.cls.cls is not None and is_sparse_class(self.cls.cls)


class _Complete(NamedTuple):
    """What is made with all that it holds, of one class or list store: `held` are the objects of the store, `rows`
    those that are made, `parts` what each is made of by `make`. `leads_to`: the references among these, as objects of
    their stores and the rows there, and `owners`: which of `rows` each of them belongs to."""

    held: list[Any]
    rows: list[int]
    parts: list[Any]
    make: Callable[[Any], Any]
    leads_to: list[tuple[list[Any], AnyArray]]
    owners: AnyArray


class Unpacker:
    """See `unpack`. `objects`, `lists`: what was made, by store."""

    def __init__(
        self,
        columns: Columns,
        numbers: NumberUnpacker | None = None,
        common: Common | None = None,
        tokens: Mapping[str, Token] = NO_TOKENS,
    ) -> None:
        self.columns, self.tokens = columns, tokens
        self.numbers, self.common = numbers or NumberUnpacker(), common or Common()
        self.objects: dict[str, list[Any]] = {}
        self.lists: dict[str, list[Any]] = {}

    def run(self) -> list[Any]:
        schema, arrays = self.columns.schema, self.columns.arrays
        stores = [s for s in schema.stores if not self.is_known(s.name, self.objects)]
        lists = [s for s in schema.lists if not self.is_known(s.name, self.lists)]
        for store in stores:
            self.made(store.name, self.objects, [None] * len(arrays[f"{store.name}.#tag"]))
        found = [form for store in stores for form in self.forms(store)]
        forms = [form for form in found if form.given is None]
        for items in lists:
            self.made(items.name, self.lists, self.empty_lists(items))
        for form in forms:
            if not form.is_complete_when_made:
                held = self.objects[form.store]
                make = _maker(form.cls)
                for row in form.rows:
                    held[row] = make()
        self.complete([f for f in forms if f.is_complete_when_made], [x for x in lists if x.is_tuple])
        for items in lists:
            if not items.from_array and not items.is_tuple:
                self.fill_lists(items)
        for form in sorted(forms, key=lambda f: f.cls.kind == "table"):  # what keys hold decides their hashes
            if not form.is_complete_when_made:
                self.fill(form)
        for form in found:
            if form.given is not None:
                for field, raw in form.fields:
                    form.given.note(field.name, form.rows, self.values(field, raw))
        return self.column(schema.root, ROOT, ROOT_MISSING if schema.root_optional else None, None)

    def is_known(self, name: str, held: dict[str, list[Any]]) -> bool:
        """Has another batch made the objects of a store?"""
        if name not in self.tokens or self.tokens[name] not in self.common.made:
            return False
        held[name] = self.common.made[self.tokens[name]]
        return True

    def made(self, name: str, held: dict[str, list[Any]], objects: list[Any]) -> None:
        """Note the objects of a store, for other batches too."""
        held[name] = objects
        if name in self.tokens:
            self.common.made[self.tokens[name]] = objects

    def forms(self, store: Store) -> list[_Form]:
        """The classes of a store with their rows and raw values."""
        tags = self.columns.arrays[f"{store.name}.#tag"]
        parts: list[tuple[GivenObjects | None, AnyArray]] = [(None, np.ones(len(tags), bool))]
        made = []
        given = self.common.given.get(self.tokens.get(store.name))
        if given is not None:
            objects = self.objects[store.name]
            for row, x in given.by_row.items():
                objects[row] = x
            is_given = np.isin(np.arange(len(tags)), list(given.by_row))
            parts = [(given, is_given), (None, ~is_given)]
        for k, cls in enumerate(store.classes):
            fields = [f for f in store.fields if k in f.classes]
            if cls.kind in ("tuple", "list"):
                fields.sort(key=lambda f: int(f.name))
            elif cls.kind == "namedtuple":
                assert cls.cls is not None
                fields.sort(key=lambda f: _names_of_unpack(cls).index(f.name))
            for of, are in parts:
                rows = np.flatnonzero((tags == k) & are)
                held = [(f, self.raw(f, rows)) for f in fields if of is None or f.name in of.names]
                made.append(_Form(store.name, cls, rows.tolist(), held, of))
        return made

    def raw(self, field: Field, rows: AnyArray) -> list[Any]:
        """The values of a field, with rows for references and lists."""
        if isinstance(field.type, (Ref, List)):
            held: list[Any] = self.columns.arrays[field.column][rows].tolist()
            return held
        return self.column(field.type, field.column, f"{field.column}?" if has_mask(field) else None, rows)

    def column(self, type: Type, column: str, mask: str | None, rows: AnyArray | None) -> list[Any]:
        """Values as Python objects; every object that they refer to must have been made."""
        array = self.columns.arrays[column] if rows is None else self.columns.arrays[column][rows]
        match type:
            case Ref() | List():
                held = self.made_of(type)
                made = [held[row] if row >= 0 else None for row in array.tolist()]
            case Tag(vocabulary=vocabulary):
                words = self.columns.vocabularies.get(vocabulary, ())
                missing = None if mask is None else self.columns.arrays[mask]
                if missing is not None:
                    array = np.where(missing if rows is None else missing[rows], -1, array)
                return [words[tag] if 0 <= tag < len(words) else None for tag in array.tolist()]
            case Array():
                made = self.numbers.each(type, column, array, rows)
        if mask is not None:
            missing = self.columns.arrays[mask] if rows is None else self.columns.arrays[mask][rows]
            return [None if none else value for value, none in zip(made, missing.tolist(), strict=True)]
        return made

    def finder(self, type: Ref | List) -> Callable[[int], Any]:
        """From the row of a reference to its object."""
        made = self.made_of(type)
        return lambda row: made[row] if row >= 0 else None

    def made_of(self, type: Ref | List) -> list[Any]:
        """The objects that references of a type are rows of."""
        if isinstance(type, Ref):
            return self.objects[type.store]
        assert type.store is not None
        return self.lists[type.store]

    def empty_lists(self, items: ListStore) -> list[Any]:
        """Lists still empty; arrays whole."""
        offsets = self.columns.arrays[f"{items.name}.#offsets"].tolist()
        if items.is_tuple:
            return [None] * (len(offsets) - 1)
        if not items.from_array:
            return [[] for _ in offsets[1:]]
        assert isinstance(items.elem, Array)
        column = f"{items.name}.#values"
        return self.numbers.slices(items.elem, column, self.columns.arrays[column], offsets)

    def fill_lists(self, items: ListStore) -> None:
        column = f"{items.name}.#values"
        values = self.column(items.elem, column, f"{column}?" if has_mask(items) else None, None)
        offsets = self.columns.arrays[f"{items.name}.#offsets"].tolist()
        for held, a, b in zip(self.lists[items.name], offsets[:-1], offsets[1:], strict=True):
            held.extend(values[a:b])

    def complete(self, forms: Sequence[_Form], tuples: Sequence[ListStore]) -> None:
        """Make tuples, after the tuples that they hold."""
        found = [*map(self.whole, forms), *map(self.tuples, tuples)]
        counts = np.cumsum([0, *(len(x.rows) for x in found)])
        waiting = [p for x in found for p in zip(repeat(x.held), x.rows, x.parts, repeat(x.make))]
        for k in _inner_first(found, counts):
            held, row, parts, make = waiting[k]
            held[row] = make(parts)

    def whole(self, form: _Form) -> _Complete:
        """The tuples of fields, or objects that are made with all they hold, of one class."""
        raw = [held for _, held in form.fields]
        made = [self.made_of(f.type) if isinstance(f.type, (Ref, List)) else None for f, _ in form.fields]
        rows = np.arange(len(form.rows))
        leads_to = [(x, np.array(held, np.int64)) for x, held in zip(made, raw, strict=True) if x is not None]
        parts = list(zip(*raw, strict=True)) if raw else [()] * len(form.rows)
        return _Complete(self.objects[form.store], form.rows, parts, _whole_maker(form, made), leads_to, rows)

    def tuples(self, items: ListStore) -> _Complete:
        """The tuples of any length of a list store."""
        offsets, found = self.columns.arrays[f"{items.name}.#offsets"], self.elements(items)
        parts = [found[a:b] for a, b in pairwise(offsets.tolist())]
        owners = np.repeat(np.arange(len(parts)), np.diff(offsets))
        make: Callable[[Any], Any] = tuple
        leads_to = []
        if isinstance(items.elem, (Ref, List)):
            make, made = (lambda rows: tuple(map(find, rows))), self.made_of(items.elem)
            find = self.finder(items.elem)
            leads_to = [(made, np.array(found[: len(owners)], np.int64))]
        return _Complete(self.lists[items.name], list(range(len(parts))), parts, make, leads_to, owners)

    def elements(self, items: ListStore) -> list[Any]:
        """The elements of all lists, one after another: rows where they are references, as they are elsewhere."""
        column = f"{items.name}.#values"
        if isinstance(items.elem, (Ref, List)):
            held: list[Any] = self.columns.arrays[column].tolist()
            return held
        return self.column(items.elem, column, f"{column}?" if has_mask(items) else None, None)

    def values_of(self, form: _Form, i: int) -> dict[str, Any]:
        return {
            f.name: self.finder(f.type)(held[i]) if isinstance(f.type, (Ref, List)) else held[i]
            for f, held in form.fields
        }

    def fill(self, form: _Form) -> None:
        """Set the fields of objects that were made empty."""
        objects = self.objects[form.store]
        held = [objects[row] for row in form.rows]
        cls = form.cls.cls
        if cls is not None and is_graph_class(cls):
            for i, graph in enumerate(held):
                fill_graph(graph, self.values_of(form, i))
            return
        if form.cls.kind == "table":
            for i, table in enumerate(held):
                _fill_table(table, *self.values_of(form, i).values())
            return
        for field, raw in form.fields:
            put = _setter(form.cls, field.name)
            for x, value in zip(held, self.values(field, raw), strict=True):
                put(x, value)

    def values(self, field: Field, raw: list[Any]) -> list[Any]:
        """The values of a field: of a reference the object."""
        if not isinstance(field.type, (Ref, List)):
            return raw
        made = self.made_of(field.type)
        return [made[row] if row >= 0 else None for row in raw]


def python_values(type: Array, array: AnyArray) -> list[Any]:
    """The entries of a column of arrays: Python numbers where it was packed from them, else NumPy scalars or arrays."""
    if type.dtype.startswith("key<"):
        return list(wrap_keys(array, type.dtype)) if len(array) else []
    if type.shape == () and (type.weak or type.dtype == "bool"):
        held: list[Any] = array.tolist()
        return held
    return list(array.copy())


def _names_of_unpack(cls: Class) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(cls.cls, "_fields", ())
    return names


def _maker(cls: Class) -> Callable[[], Any]:
    """A function that makes an empty object of a class."""
    if cls.cls is None:
        return list if cls.kind == "list" else partial(dict.fromkeys, cls.keys)
    if cls.kind == "table":
        return partial(cls.cls, *cls.given)
    return cls.cls if is_graph_class(cls.cls) else partial(bare, cls.cls)


def _fill_table(table: Any, keys: list[Any], values: list[Any] | None = None) -> None:
    """Give a dict its items, a set or deque its elements."""
    if values is not None:
        update = table.update if isinstance(table, OrderedDict) else partial(dict.update, table)  # no count of others
        update(zip(keys, values, strict=True))
    elif isinstance(table, set):
        table.update(keys)
    else:
        table.extend(keys)


def _setter(cls: Class, name: str) -> Callable[[Any, Any], None]:
    """A function that gives an object the value of a field; those of a list come in order."""
    match cls.kind:
        case "dict":
            return lambda x, value: operator.setitem(x, name, value)
        case "list":
            return list.append
        case _:
            return lambda x, value: object.__setattr__(x, name, value)


def bare(cls: type) -> Any:
    """An empty object of a class, made without calling it. Raises BatchError where that cannot be."""
    try:
        return object.__new__(cls)
    except TypeError as error:
        raise BatchError(f"{cls.__qualname__} cannot be rebuilt without calling it: {error}") from None


def _whole_maker(form: _Form, held: Sequence[list[Any] | None]) -> Callable[[Any], Any]:
    """What makes a tuple, NamedTuple or sparse matrix of its fields, of which some are rows of what is made; what is
    no record is its one value."""
    cls = form.cls.cls
    if form.cls.kind == "value":
        build: Callable[[Any], Any] = operator.itemgetter(0)
    elif cls is None:
        build = tuple
    elif is_sparse_class(cls):
        names = [f.name for f, _ in form.fields]
        build = lambda values: rebuild_sparse(cls, dict(zip(names, values, strict=True)))
    else:
        build = partial(tuple.__new__, cls)
    if not any(x is not None for x in held):
        return build

    def make(parts: tuple[Any, ...]) -> Any:
        pairs = zip(held, parts, strict=True)
        return build([x if made is None else made[x] if x >= 0 else None for made, x in pairs])

    return make


def _inner_first(found: Sequence[_Complete], counts: AnyArray) -> Iterable[int]:
    """An order of all that is made, counted through, in which each is behind what it holds: mostly that of the rows,
    forwards or backwards, with what the store of a later class has first."""
    numbers: dict[int, AnyArray] = {}
    for x, first in zip(found, counts, strict=False):
        known = numbers.setdefault(id(x.held), np.full(len(x.held), -1))
        known[x.rows] = np.arange(first, first + len(x.rows))
    places = np.concatenate([np.array(x.rows, np.int64) for x in found]) if found else np.zeros(0, np.int64)
    outer, inner = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for x, first in zip(found, counts, strict=False):
        for held, rows in x.leads_to:
            if id(held) in numbers:
                to = numbers[id(held)][rows]
                here = (rows >= 0) & (to >= 0)
                outer.append(first + x.owners[here])
                inner.append(to[here])
    above, below = np.concatenate(outer), np.concatenate(inner)
    stores = {held: k for k, held in enumerate(numbers)}
    behind = np.repeat([len(stores) - stores[id(x.held)] for x in found], np.diff(counts))
    for key in (places, -places):
        order = key * (len(stores) + 1) + behind
        if (order[below] < order[above]).all():
            forwards: list[int] = np.argsort(order, kind="stable").tolist()
            return forwards
    graph: dict[int, list[int]] = {k: [] for k in range(len(places))}
    for a, b in zip(above.tolist(), below.tolist(), strict=True):
        graph[a].append(b)
    return TopologicalSorter(graph).static_order()
