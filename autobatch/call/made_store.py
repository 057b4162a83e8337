"""The store of the objects that a call has made: one row an object, whatever its class.

    make[of='Node'](x, left)     ->     Node.#tag    of which class each object is
    make[of='Leaf'](x)                  Node.x       of both classes
                                        Node.left    rows of this store, of class Node

Objects of the examples that stand beside them are rows of it too: their store is *adopted*, and what refers to its rows
refers to their new places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax.numpy as jnp

from autobatch.call import transfer
from autobatch.call.outcome import ClassKind, Outcome, ResultCell, ResultLevel, class_kind
from autobatch.data.columns import has_mask
from autobatch.data.schema import UNKNOWN, Class, Field, Schema, Store
from autobatch.ir.template import MadeTemplate, Template
from autobatch.ir.types import BuiltObject, List, Ref, Type


class BuiltColumns(Protocol):
    """The batch under construction (`assembly.py`)."""

    outcome: Outcome
    stores: list[Store]
    columns: dict[str, Any]
    reads_input: bool

    @property
    def input(self) -> Mapping[str, Any]: ...

    def name(self, wanted: str) -> str: ...

    def cell(self, template: Template, level: ResultLevel) -> ResultCell: ...


def is_made(type: Type, adopted: Sequence[str]) -> bool:
    """Are values of this type, or the elements of its lists, objects that were made or stand beside such?"""
    match type:
        case BuiltObject():
            return True
        case Ref(store=store):
            return store in adopted
        case List(elem=elem):
            return is_made(elem, adopted)
        case _:
            return False


@dataclass
class _BuiltColumn:
    """A field under construction, for the classes at some positions. `missing`: where it is None."""

    name: str
    cell: ResultCell
    classes: list[int]

    def merge(self, cell: ResultCell, mine: Any) -> None:
        """Other rows of this field: those of another class that has it too."""
        old, new = (_filled(c, (cell if c is self.cell else self.cell)) for c in (self.cell, cell))
        missing = None
        if not isinstance(new.type, Ref | List) and (old.missing is not None or new.missing is not None):
            before, after = (jnp.zeros(mine.shape, bool) if c.missing is None else c.missing for c in (old, new))
            missing = jnp.where(mine, after, before)
        mask = mine.reshape(mine.shape + (1,) * (new.values.ndim - 1))
        null = old.has_none or new.has_none
        self.cell = ResultCell(new.type, jnp.where(mask, new.values, old.values), missing, null)


def _filled(cell: ResultCell, other: ResultCell) -> ResultCell:
    """A field that is always None, as one of the type that it has elsewhere."""
    if cell.type != UNKNOWN or other.type == UNKNOWN:
        return cell
    empty = -1 if isinstance(other.type, Ref | List) else 0
    return ResultCell(other.type, jnp.full_like(other.values, empty), jnp.ones(other.values.shape[0], bool), True)


@dataclass
class Adopted:
    """The input without the stores whose rows have moved to that of the made objects."""

    schema: Schema
    moved: dict[str, Any]
    gone: frozenset[str]

    def leaves(self, held: Mapping[str, Any]) -> dict[str, Any]:
        return {n: x for n, x in held.items() if n not in self.gone} | self.moved


class MadeStore:
    """One store for all objects that a call has made, and for those of the examples that stand beside them: the rows of
    an adopted store come first in each example."""

    def __init__(self, batch: BuiltColumns) -> None:
        assert batch.outcome.made is not None
        self.batch, self.rows = batch, batch.outcome.made
        names = [t.name for t, _ in self.rows.classes]
        self.name = batch.name("|".join(dict.fromkeys(sorted([*names, *self.rows.adopted]))))
        self.position = len(batch.stores)
        batch.stores.append(Store(self.name, (), ()))  # reserves the name while the fields are built
        self.fields: list[_BuiltColumn] = []
        self.classes: list[Class] = []

    def cell(self, type: Type, rows: Any) -> ResultCell:
        if isinstance(type, List):
            self.batch.reads_input = True
            return ResultCell(self.moved(type), rows, nullable=True)
        return ResultCell(
            Ref(self.name), rows if isinstance(type, BuiltObject) else self.place(type, rows), nullable=True
        )

    def moved(self, type: Type) -> Type:
        """A type of the examples as it is when adopted objects are rows of this store."""
        match type:
            case Ref(store=store) if store in self.rows.adopted:
                return Ref(self.name)
            case List(elem=elem, store=store):
                return List(self.moved(elem), store)
            case _:
                return type

    def place(self, type: Type, rows: Any) -> Any:
        """Rows of an adopted store as rows of this one; of other types as they are."""
        if not isinstance(type, Ref) or type.store not in self.rows.adopted:
            return rows
        starts = self.batch.input[transfer.STARTS + type.store]
        example = jnp.maximum(jnp.searchsorted(starts, rows, side="right") - 1, 0)
        first = jnp.asarray(self.rows.starts)[:-1]
        for store in self.rows.adopted[: self.rows.adopted.index(type.store)]:
            first = first + jnp.diff(self.batch.input[transfer.STARTS + store])
        example = jnp.minimum(example, max(first.shape[0] - 1, 0))
        moved = rows - jnp.asarray(starts)[example] + first[example] if first.shape[0] else rows
        return jnp.where(jnp.asarray(rows) >= 0, moved, -1)

    def assemble(self) -> Adopted | None:
        """Build the store; returns what is left of the input where objects of it were adopted."""
        kinds = jnp.asarray(self.rows.rows(self.rows.kinds))
        tags = kinds
        for k, (template, first) in enumerate(self.rows.classes):
            self.made_class(template, first, kinds == k)
        for k, store in enumerate(self.rows.adopted, 1):
            tags = self.adopt(store, jnp.asarray(self.rows.rows(self.rows.kinds + k)), tags)
        tags = self.joined_classes(tags)
        columns = self.batch.columns
        fields = []
        for number, held in enumerate(self.fields):
            twin = any(f.name == held.name for f in self.fields[:number])
            column = f"{self.name}.{held.name}" + (f".{number}" if twin else "")
            columns[column] = held.cell.values
            if held.cell.missing is not None:
                columns[f"{column}?"] = held.cell.missing
            optional, unknown = held.cell.missing is not None, held.cell.type == UNKNOWN
            kind, null = held.cell.type, held.cell.has_none
            fields.append(Field(held.name, kind, column, tuple(held.classes), optional, unknown, null))
        columns[f"{self.name}.#tag"] = tags
        columns[transfer.STARTS + self.name] = self.rows.starts
        self.batch.stores[self.position] = Store(self.name, tuple(self.classes), tuple(fields))
        return self.rest() if self.rows.adopted else None

    def joined_classes(self, tags: Any) -> Any:
        """Classes of one form are one: objects that were made, and those of the examples beside them. Returns the
        classes of all rows."""
        forms: dict[Any, int] = {}
        kept: list[Class] = []
        position = []
        for k, cls in enumerate(self.classes):
            form = (cls.cls, cls.kind, cls.keys, *(n for n, held in enumerate(self.fields) if k in held.classes))
            if form not in forms:
                forms[form] = len(kept)
                kept.append(cls)
            position.append(forms[form])
        for held in self.fields:
            held.classes = sorted({position[k] for k in held.classes})
        self.classes = kept
        return jnp.asarray(position, jnp.int32)[jnp.maximum(tags, 0)]

    def class_of(self, name: str, kind: ClassKind, cls: type | None, keys: tuple[str, ...] = ()) -> int:
        taken = {c.name for c in self.classes}
        number, made = 1, name
        while made in taken:
            number += 1
            made = f"{name}_{number}"
        self.classes.append(Class(made, kind, cls, keys))
        return len(self.classes) - 1

    def made_class(self, template: MadeTemplate, first: int, mine: Any) -> None:
        form = template.fields
        position = self.class_of(template.name, class_kind(form), form.cls, form.keys if form.kind == "dict" else ())
        outcome = replace(
            self.batch.outcome, count=int(mine.shape[0]), results=self.rows.results[first:], live=self.rows.starts[-1]
        )
        level = ResultLevel(outcome, jnp.asarray(self.rows.starts))
        for key, child in zip(form.keys, form.children, strict=True):
            self.add(str(key), self.batch.cell(child, level), mine, [position])

    def adopt(self, store: str, rows: Any, tags: Any) -> Any:
        """The classes and fields of a store of the examples; returns the classes of all rows."""
        self.batch.reads_input = True
        held, leaves = self.batch.outcome.schema.store(store), self.batch.input
        position = {k: self.class_of(c.name, c.kind, c.cls, c.keys) for k, c in enumerate(held.classes)}
        mine, at = rows >= 0, jnp.maximum(rows, 0)
        first = min(position.values())
        for f in held.fields:
            values = self.place(f.type, jnp.asarray(leaves[f.column])[at])
            missing = jnp.asarray(leaves[f"{f.column}?"])[at] if has_mask(f) else None
            cell = ResultCell(self.moved(f.type), values, missing, f.nullable)
            self.add(f.name, cell, mine, [position[k] for k in f.classes])
        return jnp.where(mine, first + jnp.asarray(leaves[f"{store}.#tag"])[at], tags)

    def add(self, name: str, cell: ResultCell, mine: Any, classes: list[int]) -> None:
        for held in self.fields:
            if held.name == name and (held.cell.type == cell.type or UNKNOWN in (held.cell.type, cell.type)):
                held.merge(cell, mine)
                held.classes += classes
                return
        self.fields.append(_BuiltColumn(name, cell, classes))

    def rest(self) -> Adopted:
        """The other stores of the examples, their references to adopted objects moved."""
        known, leaves = self.batch.outcome.schema, self.batch.input
        moved: dict[str, Any] = {}
        gone = {transfer.STARTS + s for s in self.rows.adopted}
        stores, lists = [], []
        for store in known.stores:
            if store.name in self.rows.adopted:
                gone |= {f"{store.name}.#tag", *(n for f in store.fields for n in (f.column, f"{f.column}?"))}
                continue
            fields = []
            for f in store.fields:
                fields.append(replace(f, type=self.moved(f.type)))
                moved[f.column] = self.place(f.type, leaves[f.column])
            stores.append(replace(store, fields=tuple(fields)))
        for items in known.lists:
            lists.append(replace(items, elem=self.moved(items.elem)))
            column = f"{items.name}.#values"
            moved[column] = self.place(items.elem, leaves[column])
        return Adopted(replace(known, stores=tuple(stores), lists=tuple(lists)), moved, frozenset(gone))
