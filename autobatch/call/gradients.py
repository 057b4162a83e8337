"""Derivatives in the structure of what they belong to: shared arguments, packed examples, results.

    p = {"W": array, "n": 3}      ->   {"W": gradient, "n": None}
    Batch of Node(x, word, left)  ->   Batch of Node(gradient of x, None, left)     one row for each object

What has no derivative is None. A Batch of derivatives has the columns of the examples; those of floats hold
derivatives, and those that hold no floats hold None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.cuda.device import DeviceArray
from autobatch.call import packed
from autobatch.call.arguments import (
    PLAIN,
    ArgumentNode,
    ArgumentSlot,
    BoundArguments,
    Form,
    Raw,
    Sharing,
    describe,
    fill,
    is_array,
    one_level,
    parts,
)
from autobatch.call.batch import Batch, GroupedBatch
from autobatch.call.packed import BatchForm, BatchLeaves, with_rows
from autobatch.call.results import Objects
from autobatch.compiler.executables import moves
from autobatch.data.columns import ROOT, UNKNOWN, Field, ListStore, Schema, Store, columns_of
from autobatch.data.leaves import STRUCTURE, is_graph_class
from autobatch.data.ragged import Ragged
from autobatch.data.unpack import Common
from autobatch.errors import BatchError
from autobatch.ir.core import FLOAT, Array, BuiltObject, List, Ref, Type


class SharedStructure(Sharing):
    """The structure of shared values with `make(k, value)` in the place of run-time value k, Python integers apart,
    and None in the place of all that has no derivative. Counts as `Sharing` does. `again`: something was met that
    stands elsewhere too."""

    def __init__(self, function: str, make: Callable[[int, Any], Any]) -> None:
        super().__init__(function)
        self.make, self.again = make, False

    def raw(self, form: Raw) -> Any:
        return None if form.static else self.share(form.value, form.name)[0]

    def share(self, value: Any, name: str) -> tuple[Any, Any]:
        if isinstance(value, PLAIN) or is_integer(value):
            return None, None
        if is_array(value) or isinstance(value, (float, complex)):
            self.leaves.append(value)
            return self.make(len(self.leaves) - 1, value), None
        self.again |= id(value) in self._seen
        made, key = super().share(value, name)
        held = made is not value or one_level(value)[0] is not None
        return (made if held else None), key


def is_integer(value: Any) -> bool:
    """Is it an integer or bool of Python or NumPy?"""
    return isinstance(value, (int, np.integer, np.bool_))


def has_derivative(value: Any) -> bool:
    """Is it a number or array of floats?"""
    return isinstance(value, (float, complex)) or (is_array(value) and moves(value))


# ---- packed examples


def without_derivative(schema: Schema) -> Schema:
    """The schema of derivatives: None in the place of what has none, but for nodes, edges and keys of dicts."""
    fields, lists = _of_structure(schema)
    arrays = {s.name for s in schema.lists if s.from_array and not is_float(s.elem)}

    def is_none(type: Type) -> bool:
        return _is_none(type) or (isinstance(type, List) and type.store in arrays)

    def field(f: Field) -> Field:
        if f.column in fields or not is_none(f.type):
            return f
        return replace(f, type=UNKNOWN, optional=True, always_none=True, nullable=True)

    def items(s: ListStore) -> ListStore:
        if s.name in lists or not is_none(s.elem):
            return s
        return replace(s, elem=UNKNOWN, optional=True, from_array=False)

    def store(s: Store) -> Store:
        return replace(s, fields=tuple(map(field, s.fields)))

    made = replace(schema, stores=tuple(map(store, schema.stores)), lists=tuple(map(items, schema.lists)))
    return replace(made, root=UNKNOWN, root_optional=True) if is_none(schema.root) else made


def _of_structure(schema: Schema) -> tuple[set[str], set[str]]:
    """The columns and lists that say which nodes and edges graphs have, and which keys dicts and sets: those of
    derivatives have the same ones."""
    columns, lists, todo = set[str](), set[str](), list[Field]()
    for store in schema.stores:
        if any(c.cls is not None and is_graph_class(c.cls) for c in store.classes):
            todo += [f for f in store.fields if f.name in STRUCTURE or f.name.startswith("without_")]
        if any(c.kind == "table" and c.cls is not deque for c in store.classes):
            todo.append(store.fields[0])
    while todo:
        f = todo.pop()
        if f.column in columns:
            continue
        columns.add(f.column)
        type = f.type
        while isinstance(type, List) and type.store is not None:
            lists.add(type.store)
            type = schema.list(type.store).elem
        if isinstance(type, Ref):
            todo += schema.store(type.store).fields
    return columns, lists


def _kept(schema: Schema) -> set[str]:
    """The columns that derivatives have from their examples."""
    columns, lists = _of_structure(schema)
    return columns | {f"{name}.#values" for name in lists}


def _is_none(type: Type) -> bool:
    """Is a value of this type no float, and nothing that may hold any?"""
    return not isinstance(type, (Ref, List, BuiltObject)) and not is_float(type)


def is_float(type: Type | None) -> bool:
    """Does a column of this type hold floats?"""
    return isinstance(type, Array) and (type.dtype.startswith(("float", "complex", "bfloat")))


def batch_of(leaves: Mapping[str, Any], form: BatchForm, derivatives: Mapping[str, Any]) -> Batch:
    """A Batch of derivatives of examples that are `leaves`: those of some columns are given, of others zero."""
    schema, kept, columns = without_derivative(form.schema), _kept(form.schema), dict(leaves)
    for column in columns_of(schema):
        name, held = column.name, leaves.get(column.name)
        if column.type == UNKNOWN:
            rows = leaves[name].shape[0]
            columns[name], columns[f"{name}?"] = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
        elif held is not None and moves(held) and name not in kept:
            found = derivatives.get(name)
            columns[name] = jnp.zeros(held.shape, held.dtype) if found is None else with_rows(found, held.shape[0])
    return Batch.from_leaves(BatchLeaves(columns), replace(form, schema=schema, plans=(), planners=(), like=None))


def derivatives_like(batch: Batch, derivatives: Mapping[str, Any]) -> Batch:
    """A Batch of derivatives with as many rows as the batch that they belong to has. What is missing is zero."""
    if batch.on_host is None:
        leaves, form = batch.parts()
        return batch_of(leaves.columns, form, derivatives)
    group = batch.on_host
    columns = group.columns
    held = packed.to_leaves(columns, {space: int(starts[-1]) for space, starts in columns.starts.items()})
    enums = tuple((n, type(v[0])) for n, v in columns.vocabularies.items() if n != "str" and v)
    form = BatchForm(group.schema, group.count, group.width, enums=enums, component=batch.component)
    return batch_of(held, form, derivatives)


def float_columns(batch: Batch) -> dict[str, Any]:
    """The columns of floats among the leaves of a batch, padded as these are."""
    leaves, form = batch.parts()
    return {c.name: leaves.columns[c.name] for c in columns_of(form.schema) if moves(leaves.columns[c.name])}


def derivative_of(value: Any, derivatives: Iterator[Any], has: Callable[[Any], bool] = moves) -> Any:
    """A result or an argument with derivatives in the place of what `has` one, in their order, and None elsewhere."""

    def made(x: Any) -> Any:
        match x:
            case GroupedBatch(groups=groups, order=order):
                return GroupedBatch([made(g) for g in groups], order)
            case Batch():
                columns = x.parts()[0].columns
                return derivatives_like(x, {n: next(derivatives) for n, c in sorted(columns.items()) if moves(c)})
            case Ragged(values=values):
                return replace(x, values=derivative_of(values, derivatives, has))
            case _:
                return next(derivatives) if has(x) else None

    return jax.tree.map(made, value, is_leaf=lambda x: isinstance(x, (Batch, Ragged)))


# ---- cotangents
#
# Cotangents and tangents as users give them, brought into the structure of what they belong to.
#
#     of a result          (H[B, n], Ragged)  <-  the same structure; None or anything where there are no floats
#     of each example      (H[B, n], Ragged)  <-  [(h, [r, ...]), ...]: B of what one example returns
#     of packed examples   Batch              <-  a Batch of derivatives, or B objects of their classes
#
# `fit` gives the floats of the result in the order in which `jax.tree.leaves` has them.


class Misfit(Exception):
    """What was given does not fit at a place."""


def fit(result: Any, given: Any, what: str, missing: bool = False) -> list[Any]:
    """The floats of `given` for those of a result that it has the structure of. `missing`: None stands for zeros."""
    try:
        return list(_Fit(missing).of(result, given, ""))
    except Misfit as error:
        raise BatchError(f"{what}{error}") from None


def fit_examples(result: Any, given: Sequence[Any], size: int, what: str, missing: bool = False) -> list[Any]:
    """The same, of a list with what belongs to each example. Arrays of the result have their examples on axis 0."""
    if len(given) != size:
        raise BatchError(f"{what}: {len(given)} were given for {size} examples")
    try:
        return list(_Fit(missing).rows(result, list(given), ""))
    except Misfit as error:
        raise BatchError(f"{what}{error}") from None


class _Fit:
    def __init__(self, missing: bool) -> None:
        self.missing = missing
        self.common, self.seen = Common(), Seen()  # an object that stands in several parts of a result counts once

    # ---- the structure of the whole result

    def of(self, result: Any, given: Any, place: str) -> Iterator[Any]:
        if not any(moves(x) for x in jax.tree.leaves(result)):
            return
        if given is None and self.missing:
            yield from (jnp.zeros(x.shape, x.dtype) for x in jax.tree.leaves(result) if moves(x))
            return
        match result:
            case GroupedBatch(groups=groups):
                parts = given.groups if isinstance(given, GroupedBatch) else ()
                if len(parts) != len(groups):
                    raise Misfit(f"{place}: {describe(given)} was given for a Batch in {len(groups)} groups by shape")
                for k, (a, b) in enumerate(zip(groups, parts, strict=True)):
                    yield from self.of(a, b, f"{place}.groups[{k}]")
            case Batch():
                yield from self.columns(result, given, place)
            case Ragged(values=values):
                if not isinstance(given, Ragged):
                    raise Misfit(f"{place}: {describe(given)} was given for a Ragged; give one with the same offsets")
                yield from self.of(values, given.values, f"{place}.values")
            case _ if is_array(result):
                yield self.number(given, result.shape, result.dtype, place)
            case _:
                children = _in_order(result)
                for (name, child), (_, part) in zip(children, _parts(children, result, given, place), strict=True):
                    yield from self.of(child, part, place + name)

    def columns(self, result: Batch, given: Any, place: str) -> Iterator[Any]:
        """The columns of floats of a Batch, in the order of its leaves."""
        if not isinstance(given, Batch) or isinstance(given, GroupedBatch):
            raise Misfit(f"{place}: {describe(given)} was given for a Batch; give a Batch with the same columns")
        if not same_rows(result, given):
            raise Misfit(f"{place}: the Batch that was given has objects in other places; give a list of objects")
        known = float_columns(given)
        for name, column in sorted(float_columns(result).items()):
            if name not in known:
                raise Misfit(f"{place}: the Batch that was given has no floats in column {name}")
            yield self.number(with_rows(known[name], column.shape[0]), column.shape, column.dtype, f"{place}.{name}")

    def number(self, given: Any, shape: tuple[int, ...], dtype: Any, place: str) -> Any:
        """One array, of a number or an array."""
        if given is None and self.missing:
            return jnp.zeros(shape, dtype)
        if not _is_number(given):
            raise Misfit(f"{place}: {_words(given)} was given for floats of shape {shape}")
        found = jnp.asarray(given)
        if found.shape not in ((), shape):
            raise Misfit(f"{place}: floats of shape {found.shape} were given where there are some of shape {shape}")
        return jnp.broadcast_to(found.astype(dtype), shape)

    # ---- one entry for each example

    def rows(self, result: Any, given: list[Any], place: str) -> Iterator[Any]:
        if not any(moves(x) for x in jax.tree.leaves(result)):
            return
        match result:
            case Batch():
                yield from self.objects(result, given, place)
            case Objects():
                yield from self.any_structure(result, given, place)
            case Ragged(values=values, offsets=offsets):
                if isinstance(offsets, jax.core.Tracer):
                    raise Misfit(f"{place}: under jax.jit the lengths of lists are not known; give a Ragged")
                flat: list[Any] = []
                lengths = np.diff(np.asarray(offsets))[: len(given)].tolist()  # inner lists have capacity for more
                entry = "list" if place.endswith("[...]") else "example"
                for k, (row, length) in enumerate(zip(given, lengths, strict=True)):
                    if not isinstance(row, (list, tuple, np.ndarray, jax.Array)) or len(row) != length:
                        raise Misfit(f"{place}: {entry} {k}: {describe(row)} was given for a list of {length}")
                    flat += list(row)
                yield from self.rows(values, flat, f"{place}[...]")
            case _ if is_array(result):
                rows = [self.number(x, result.shape[1:], result.dtype, place) for x in given]
                stacked = jnp.stack(rows) if rows else jnp.zeros((0, *result.shape[1:]), result.dtype)
                yield with_rows(stacked, result.shape[0])
            case _:
                children = _in_order(result)
                parts = [_parts(children, result, x, place) for x in given]
                for k, (name, child) in enumerate(children):
                    yield from self.rows(child, [p[k][1] for p in parts], place + name)

    def objects(self, result: Batch, given: list[Any], place: str) -> Iterator[Any]:
        """The columns of floats of a Batch, from objects like its examples: each float of a column is found by the
        object that has its number in its place."""
        if result.is_traced:
            raise Misfit(f"{place}: under jax.jit the examples of a Batch are not known; give a Batch")
        if isinstance(result, GroupedBatch):
            held: list[Any] = [None] * sum(map(len, result.groups))
            for k, x in zip(np.asarray(result.order).tolist(), given, strict=True):
                held[k] = x
            for group in result.groups:
                mine, held = held[: len(group)], held[len(group) :]
                yield from self.objects(group, mine, place)
            return
        yield from map(jnp.asarray, self.walked(result, given, place)[0].values())

    def any_structure(self, result: Objects, given: list[Any], place: str) -> Iterator[Any]:
        """The floats of objects whose structure differs, in columns by shape and dtype."""
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(result)):
            raise Misfit(f"{place}: under jax.jit the structure of results is not known; give a result that has it")
        columns: list[tuple[int, np.ndarray[Any, Any]]] = []
        rows: list[list[Any]] = []
        base = 0
        for values in (group.values for group in result.numbers):
            moving, end = moves(values), base + len(values)
            if moving:
                columns.append((base, np.zeros(values.shape, values.dtype)))
            rows.append([_Row(n) if moving else None for n in range(base, end)])
            base = end
        walk = _Walk(columns, self.missing, self.seen, _Row)
        for k, (numbers, x) in enumerate(zip(result.with_numbers(rows), given, strict=False)):
            if x is not None or not self.missing:
                walk.run(numbers, x, f"{place}[{k}]")
        yield from (jnp.asarray(column) for _, column in columns)

    def walked(self, result: Batch, given: list[Any], place: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of floats, in order, and for each whether somebody gave a row."""
        columns = dict(sorted(float_columns(result).items()))
        found = {n: np.zeros(c.shape, c.dtype) for n, c in columns.items()}
        bases = dict(zip(columns, np.cumsum([0, *(c.shape[0] for c in columns.values())]).tolist(), strict=False))
        walk = _Walk([(base, found[n]) for n, base in bases.items()], self.missing, self.seen)
        for k, (numbers, x) in enumerate(zip(_numbered(result, columns, bases, self.common), given, strict=False)):
            if x is not None or not self.missing:
                walk.run(numbers, x, f"{place}[{k}]")
        written = {n: np.array([r + bases[n] in walk.written for r in range(c.shape[0])]) for n, c in columns.items()}
        return found, written


def same_rows(a: Batch, b: Batch) -> bool:
    """Have two batches as many rows of everything in each example, as far as that is known?"""
    own, other = a.parts()[0].columns, b.parts()[0].columns
    for name in (n for n in own if n.startswith(packed.STARTS)):
        if name not in other:
            return False
        if not isinstance(own[name], jax.core.Tracer) and not isinstance(other[name], jax.core.Tracer):
            x, y = np.asarray(own[name]), np.asarray(other[name])
            if not np.array_equal(x, y):
                return False
    return a.parts()[1].count == b.parts()[1].count


def tangents_of_objects(batch: Batch, given: Sequence[Any], what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tangents of the columns of a batch, from objects like its examples, and which rows of each were given."""
    if len(given) != len(batch):
        raise BatchError(f"{what}: {len(given)} were given for {len(batch)} examples")
    try:
        if batch.is_traced:
            raise Misfit(": under jax.jit the examples of a Batch are not known; give a Batch")
        return _Fit(missing=True).walked(batch, list(given), "")
    except Misfit as error:
        raise BatchError(f"{what}{error}") from None


def _is_number(given: Any) -> bool:
    return is_array(given) or (isinstance(given, (int, float, complex)) and not isinstance(given, bool))


def _words(given: Any) -> str:
    return "nothing" if given is None or given is ABSENT else describe(given)


def _in_order(container: Any) -> list[tuple[str, Any]]:
    """The children of a container in the order in which JAX has them: dicts by their keys."""
    return one_level(container)[0] or []


def _parts(children: Sequence[tuple[str, Any]], container: Any, given: Any, place: str) -> list[tuple[str, Any]]:
    """The children of what was given for a container, in the order of its own."""
    found = one_level(given)
    if found[0] is None or found[1] != one_level(container)[1]:
        wanted = ", ".join(name for name, _ in children)
        raise Misfit(f"{place}: {_words(given)} was given for a container of {wanted}")
    return _in_order(given) if isinstance(given, dict) else found[0]


@dataclass(frozen=True)
class Numbered:
    """A value in the place of which a number stands, or what else tells it from others."""

    place: Any
    value: Any


def paired(numbered: Any, given: Any, what: str) -> Iterator[tuple[Any, Any]]:
    """What was given for each numbered place in a structure. None stands for nothing, also in the place of a part."""
    try:
        for place, value, x, where in _pairs(numbered, given, ""):
            if is_array(value) or isinstance(value, (int, float, complex)):
                x = _Fit(missing=False).number(x, jnp.shape(value), jnp.result_type(value), where)
            yield place, x
    except Misfit as error:
        raise BatchError(f"{what}{error}") from None


def _pairs(numbered: Any, given: Any, place: str) -> Iterator[tuple[Any, Any, Any, str]]:
    if numbered is None or given is None:
        return
    if isinstance(numbered, Numbered):
        yield numbered.place, numbered.value, given, place
        return
    children = one_level(numbered)
    if children[0] is not None:
        own = _in_order(numbered)
        for (name, child), (_, part) in zip(own, _parts(own, numbered, given, place), strict=True):
            yield from _pairs(child, part, place + name)
        return
    for name, key, child in _children(numbered):
        yield from _pairs(child, _child(given, key), place + name)


# ---- objects


def _numbered(batch: Batch, columns: Mapping[str, Any], bases: Mapping[str, int], common: Common) -> list[Any]:
    """The examples of a batch with the number of its row in the place of every float, counted over all columns."""
    leaves, form = batch.parts()
    kept = _kept(form.schema)
    rows = {n: np.arange(c.shape[0], dtype=np.float64) + bases[n] for n, c in columns.items() if n not in kept}

    def kind(name: str, type: Any) -> Any:
        return FLOAT if name in rows and isinstance(type, Array) else type

    schema: Schema = form.schema
    stores = tuple(
        replace(s, fields=tuple(replace(f, type=kind(f.column, f.type)) for f in s.fields)) for s in schema.stores
    )
    lists = tuple(replace(s, elem=kind(f"{s.name}.#values", s.elem)) for s in schema.lists)
    numbered = replace(schema, root=kind(ROOT, schema.root), stores=stores, lists=lists)
    held = BatchLeaves({**leaves.columns, **rows})
    made = Batch.from_leaves(held, replace(form, schema=numbered, plans=(), planners=(), like=None))
    return made.to_list_with(common, batch.tokens())


class Seen:
    """Pairs of objects, each of which is added once."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], tuple[Any, Any]] = {}

    def add(self, a: Any, b: Any) -> bool:
        """Add a pair. Is it new?"""
        return self._pairs.setdefault((id(a), id(b)), pair := (a, b)) is pair


class _Row(float):
    """The number of a row, among floats that are constants."""


class _Walk:
    """Puts the floats of objects into columns, found by the numbers in objects of the same structure. Cotangents of one
    place add up; of tangents of one place (`missing`: None is none) the first counts. `kind`: of numbers of rows."""

    def __init__(
        self, columns: Sequence[tuple[int, np.ndarray[Any, Any]]], missing: bool, seen: Seen, kind: type[float] = float
    ) -> None:
        self.columns, self.missing, self.seen, self.kind = columns, missing, seen, kind
        self.written: set[int] = set()

    def run(self, numbers: Any, given: Any, place: str) -> None:
        todo = [(numbers, given, place)]
        while todo:
            number, x, where = todo.pop()
            if isinstance(number, float) and type(number) is self.kind:
                self.add(int(number), x, where)
            elif isinstance(number, np.ndarray) and number.dtype.kind == "f" and self.kind is float:
                if not hasattr(x, "__len__") or len(x) != len(number):
                    raise Misfit(f"{where}: {describe(x)} was given for an array of {len(number)} rows")
                todo += [(float(n), x[k], f"{where}[{k}]") for k, n in enumerate(number.tolist())]
            elif (children := _children(number)) and self.seen.add(number, x):
                if x is None and self.missing:
                    continue
                todo += [(child, _child(x, key), f"{where}{name}") for name, key, child in children]

    def add(self, number: int, given: Any, place: str) -> None:
        if given is None and self.missing:
            return
        if not _is_number(given):
            raise Misfit(f"{place}: {_words(given)} was given for a float")
        base, column = next((b, c) for b, c in reversed(self.columns) if b <= number)
        held = np.asarray(given)
        if held.shape not in ((), column.shape[1:]):
            raise Misfit(f"{place}: floats of shape {held.shape} were given for some of shape {column.shape[1:]}")
        if self.missing and number in self.written:
            return
        self.written.add(number)
        column[number - base] += held


def _children(value: Any) -> list[tuple[str, Any, Any]]:
    """The parts of a container or object that may hold floats: how an error names each, its key, the part."""
    if isinstance(value, dict):
        return [(f"[{k!r}]", ("item", k), v) for k, v in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{k}", ("attribute", k), getattr(value, k)) for k in value._fields]
    if isinstance(value, (list, tuple, deque)):
        return [(f"[{k}]", ("item", k), v) for k, v in enumerate(value)]
    names = list(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    held = [n for n in names if n not in ("__dict__", "__weakref__") and hasattr(value, n)]
    return [(f".{n}", ("attribute", n), getattr(value, n)) for n in held]


class Absent:
    """Nothing was given at a place."""


ABSENT = Absent()


def _child(value: Any, key: tuple[str, Any]) -> Any:
    try:
        return getattr(value, key[1]) if key[0] == "attribute" else value[key[1]]
    except (AttributeError, KeyError, IndexError, TypeError):
        return ABSENT  # an error where there are floats


# ---- selection
#
# Which arguments of a call move, and their derivatives in the structure of the arguments.
#
# Shared values are counted as `gradients.Structure` counts them, batched leaves as `arguments.bind` does.


@dataclass(frozen=True)
class Selection:
    """Some arguments of a call: `shared`, the numbers of their run-time values; `slots`, their batched leaves."""

    bound: BoundArguments
    forms: tuple[Form, ...]
    shared: tuple[int, ...]
    slots: tuple[int, ...]
    numbers: Mapping[int, Sequence[int]]

    def shared_in(self, form: Form) -> bool:
        """Has a shared part of an argument a derivative?"""
        return any(self.numbers[id(raw)] for raw in parts(form, Raw))

    def entries(self, shared: Mapping[int, Any], slots: Mapping[int, Any]) -> list[Any]:
        """Derivatives in the structure of the arguments: of shared values by number, of batched leaves by index."""

        wanted = set(self.shared)

        def held(number: int, value: Any) -> Any:
            if number not in wanted or not has_derivative(value):
                return None
            found = shared.get(number)
            return jnp.zeros_like(jnp.asarray(value)) if found is None else found

        structure = SharedStructure("", held)
        made = {id(raw): structure.raw(raw) for raw in self.bound.shared}

        def of_slot(slot: ArgumentSlot) -> Any:
            found = slots.get(slot.index)
            if slot.kind != "array" or found is None or slot.axis == 0:
                return found
            if isinstance(found, DeviceArray):
                return found.with_axis(0, slot.axis)
            return jnp.moveaxis(found, 0, slot.axis)

        return [fill(form, of_slot, lambda raw: made[id(raw)]) for form in self.forms]


def select(bound: BoundArguments, forms: Callable[[BoundArguments], Sequence[Form]]) -> Selection:
    """The arguments that `forms` takes of a call. A container that stands twice becomes two, as in JAX: each place has
    a derivative of its own."""
    numbers, again = _numbers(bound)
    if again:
        bound = _apart(bound)
        numbers, again = _numbers(bound)
    chosen = tuple(forms(bound))
    shared = [id(raw) for form in chosen for raw in parts(form, Raw)]
    every = [k for ks in numbers.values() for k in ks]  # an object that no copy is made of may stand elsewhere too
    wanted = every if again else [k for raw in shared for k in numbers[raw]]
    slots = tuple(s.index for form in chosen for s in parts(form, ArgumentSlot))
    return Selection(bound, chosen, tuple(sorted(set(wanted))), slots, numbers)


def _numbers(bound: BoundArguments) -> tuple[dict[int, list[int]], bool]:
    """The numbers of the values in each shared part that have a derivative; does anything stand twice?"""
    found: list[int] = []

    def note(number: int, value: Any) -> None:
        if has_derivative(value):
            found.append(number)

    structure, numbers = SharedStructure("", note), {}
    for raw in bound.shared:
        before = len(found)
        structure.raw(raw)
        numbers[id(raw)] = found[before:]
    return numbers, structure.again


def count_floats(raw: Raw) -> int:
    """How many values of a shared part have a derivative."""
    found: list[int] = []
    SharedStructure("", lambda k, value: found.append(k) if has_derivative(value) else None).raw(raw)
    return len(found)


def _apart(bound: BoundArguments) -> BoundArguments:
    def copied(value: Any) -> Any:
        children, _, rebuild = one_level(value)
        return value if children is None else rebuild([copied(x) for _, x in children])

    def replaced(form: Form) -> Form:
        if isinstance(form, ArgumentNode):
            return replace(form, children=tuple(map(replaced, form.children)))
        return replace(form, value=copied(form.value)) if isinstance(form, Raw) and not form.static else form

    return replace(bound, forms={name: replaced(form) for name, form in bound.forms.items()})
