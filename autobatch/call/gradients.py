"""Derivatives in the structure of what they belong to: shared arguments, packed examples, results.

    p = {"W": array, "n": 3}      ->   {"W": gradient, "n": None}
    Batch of Node(x, word, left)  ->   Batch of Node(gradient of x, None, left)     one row for each object

What has no derivative is None. A Batch of derivatives has the columns of the examples; those of floats hold
derivatives, and those that hold no floats hold None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import transfer
from autobatch.call.arguments import Raw, is_array, one_level
from autobatch.call.batches.batch import Batch
from autobatch.call.batches.groups import BatchForm, BatchLeaves, with_rows
from autobatch.call.grouped import GroupedBatch
from autobatch.call.sharing import PLAIN, Sharing
from autobatch.compiler.differentials import moves
from autobatch.data.columns import columns_of
from autobatch.data.libraries import STRUCTURE, is_graph_class
from autobatch.data.ragged import Ragged
from autobatch.data.schema import UNKNOWN, Field, ListStore, Schema, Store
from autobatch.ir.types import Array, BuiltObject, List, Ref, Type


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
    """The schema of derivatives: None in the place of what has none, but for the nodes and edges of graphs."""
    fields, lists = _of_graphs(schema)
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


def _of_graphs(schema: Schema) -> tuple[set[str], set[str]]:
    """The columns and lists that say which nodes and edges graphs have: a graph of derivatives has the same ones."""
    columns, lists, todo = set[str](), set[str](), list[Field]()
    for store in schema.stores:
        if any(c.cls is not None and is_graph_class(c.cls) for c in store.classes):
            todo += [f for f in store.fields if f.name in STRUCTURE or f.name.startswith("without_")]
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


def _is_none(type: Type) -> bool:
    """Is a value of this type no float, and nothing that may hold any?"""
    return not isinstance(type, (Ref, List, BuiltObject)) and not is_float(type)


def is_float(type: Type | None) -> bool:
    """Does a column of this type hold floats?"""
    return isinstance(type, Array) and (type.dtype.startswith(("float", "complex", "bfloat")))


def batch_of(leaves: Mapping[str, Any], form: BatchForm, derivatives: Mapping[str, Any]) -> Batch:
    """A Batch of derivatives of examples that are `leaves`: those of some columns are given, of others zero."""
    schema = without_derivative(form.schema)
    columns = dict(leaves)
    for column in columns_of(schema):
        name, held = column.name, leaves.get(column.name)
        if column.type == UNKNOWN:
            rows = leaves[name].shape[0]
            columns[name], columns[f"{name}?"] = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
        elif held is not None and moves(held):
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
    held = transfer.to_leaves(columns, {space: int(starts[-1]) for space, starts in columns.starts.items()})
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
