"""Results that are structure: the columns of one object an example.

Container("object", (Output(0), Output(1)), ("node", "value"), Found)   ->   a store `Found` of one row an example
                                                                             Found.node   rows of the input's store
                                                                             Found.value  the array of result 1
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

import jax.numpy as jnp

from autobatch import transfer
from autobatch.batch import Batch
from autobatch.errors import BatchError
from autobatch.groups import Form, Leaves
from autobatch.ir.jax_compat import type_of
from autobatch.ir.template import Container, Fixed, Output, Template
from autobatch.ir.types import STR, Array, List, Ref, Tag, Type
from autobatch.pipeline import ArrayResult, RaggedResult, StructureResult
from autobatch.runtime.columns import ROOT, ROOT_MISSING
from autobatch.runtime.schema import Class, Field, ListStore, Schema, Store

Result = ArrayResult | RaggedResult | StructureResult


@dataclass(frozen=True)
class Outcome:
    """What a call has computed, and what its structure refers to: `leaves` gives the columns of the examples, for
    results that are nodes of the input. `uniform(k)`: does no batched argument reach result k?"""

    function: str
    count: int
    results: Sequence[Result]
    schema: Schema
    leaves: Callable[[], dict[str, Any]]
    enums: tuple[tuple[str, type], ...]
    words: Mapping[str, Any]
    uniform: Callable[[int], bool]


@dataclass
class _Cell:
    """A column under construction: one entry an example. `missing`: where it is None."""

    type: Type
    values: Any
    missing: Any = None


@dataclass
class Assembler:
    """Columns of results that are structure: nodes of the input keep their stores, new objects get stores of their
    own with one row an example."""

    outcome: Outcome
    stores: list[Store] = field(default_factory=list)
    lists: list[ListStore] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    words: dict[str, list[Any]] = field(default_factory=dict)
    enums: dict[str, type] = field(default_factory=dict)
    reads_input: bool = False

    def batch(self, template: Template) -> Batch:
        """A Batch of one object an example."""
        return self.finish(self.cell(template), self.outcome.count)

    def rows(self, held: StructureResult) -> Batch:
        """A Batch of the rows that a result names."""
        self.reads_input = True
        return self.finish(_Cell(held.type, held.rows), int(held.rows.shape[0]))

    def finish(self, root: _Cell, count: int) -> Batch:
        leaves: dict[str, Any] = {}
        stores, lists = tuple(self.stores), tuple(self.lists)
        if self.reads_input:
            leaves |= {k: v for k, v in self.outcome.leaves().items() if k not in (ROOT, ROOT_MISSING)}
            stores, lists = (*self.outcome.schema.stores, *stores), (*self.outcome.schema.lists, *lists)
            self.enums |= dict(self.outcome.enums)
        leaves |= self.columns
        leaves[ROOT] = root.values
        if root.missing is not None:
            leaves[ROOT_MISSING] = root.missing
        for name, words in self.words.items():
            leaves[transfer.VOCABULARY + name] = transfer.encode(words)
        schema = Schema(root.type, stores, lists, root.missing is not None)
        return Batch.from_leaves(Leaves(leaves), Form(schema, count, 1, enums=tuple(self.enums.items())))

    def cell(self, template: Template) -> _Cell:
        match template:
            case Output():
                return self.output(template)
            case Fixed(value=value):
                return self.fixed(value)
            case Container(kind="list"):
                return self.listed(template)
            case Container(kind="rows"):
                return self.rows_of(template)
            case Container():
                return self.record(template)
            case _:
                assert_never(template)

    def output(self, template: Output) -> _Cell:
        held = self.outcome.results[template.index]
        missing = None
        if template.optional is not None:
            flag = self.outcome.results[template.optional]
            assert isinstance(flag, ArrayResult)
            missing = flag.values
        match held:
            case ArrayResult(values=values):
                return _Cell(template.type, values, missing)
            case StructureResult(rows=rows, type=type):
                if isinstance(type, Tag):
                    self.vocabulary(type)
                else:
                    self.reads_input = True
                return _Cell(type, rows, missing)
            case RaggedResult():
                return self.ragged(held, template.type)
            case _:
                assert_never(held)

    def vocabulary(self, type: Tag) -> None:
        """Tags are positions in the vocabulary of the input, and behind it the constants of the program."""
        name = transfer.VOCABULARY + type.vocabulary
        self.columns[name] = self.outcome.words[name]
        self.enums |= {n: c for n, c in self.outcome.enums if n == type.vocabulary}

    def fixed(self, value: Any) -> _Cell:
        count = self.outcome.count
        if value is None:
            return _Cell(Array("bool"), jnp.zeros(count, bool), jnp.ones(count, bool))
        if isinstance(value, (str, enum.Enum)):
            # a constant gets a vocabulary of its own: tags of the input need not contain it
            kind = Tag(f"{STR.vocabulary}:{len(self.words)}") if type(value) is str else Tag(_enum_name(type(value)))
            words = self.words.setdefault(kind.vocabulary, [])
            if isinstance(value, enum.Enum):
                self.enums[kind.vocabulary] = type(value)
            if value not in words:
                words.append(value)
            return _Cell(kind, jnp.full(count, words.index(value), jnp.int32))
        whole = jnp.asarray(value)
        return _Cell(type_of(value), jnp.broadcast_to(whole, (count, *whole.shape)))

    def name(self, wanted: str) -> str:
        taken = {s.name for s in (*self.outcome.schema.stores, *self.stores)}
        taken |= {s.name for s in (*self.outcome.schema.lists, *self.lists)}
        number, made = 1, wanted
        while made in taken:
            number += 1
            made = f"{wanted}_{number}"
        return made

    def record(self, template: Container) -> _Cell:
        """An object of every example, in a store of its own."""
        kind: Literal["object", "namedtuple", "tuple", "dict"]
        kind = template.kind if template.kind in ("tuple", "dict", "namedtuple") else "object"  # type: ignore[assignment]
        name = self.name(template.cls.__name__ if template.cls is not None else f"{template.kind}{len(template.keys)}")
        position = len(self.stores)
        self.stores.append(Store(name, (), ()))  # reserves the name while the children are built
        fields = []
        for key, child in zip(template.keys, template.children, strict=True):
            cell, column = self.cell(child), f"{name}.{key}"
            self.columns[column] = cell.values
            if cell.missing is not None:
                self.columns[f"{column}?"] = cell.missing
            fields.append(Field(str(key), cell.type, column, (0,), cell.missing is not None))
        self.stores[position] = Store(name, (Class(name, kind, template.cls),), tuple(fields))
        count = self.outcome.count
        self.columns[f"{name}.#tag"] = jnp.zeros(count, jnp.int32)
        self.columns[transfer.STARTS + name] = jnp.arange(count + 1, dtype=jnp.int32)
        return _Cell(Ref(name), jnp.arange(count, dtype=jnp.int32))

    def listed(self, template: Container) -> _Cell:
        """A list written out, whose elements may be objects."""
        cells = [self.cell(c) for c in template.children]
        if any(c.type != cells[0].type for c in cells):
            raise BatchError(
                f"{self.outcome.function}: the result holds a list whose elements differ in type: "
                f"{', '.join(str(c.type) for c in cells)}; return a tuple"
            )
        elem = cells[0].type if cells else Array("bool")
        count, length = self.outcome.count, len(cells)
        offsets = jnp.arange(count + 1, dtype=jnp.int32) * length
        values = jnp.stack([c.values for c in cells], 1) if cells else jnp.zeros((count, 0), bool)
        return self.list_store(elem, values.reshape(count * length, *values.shape[2:]), offsets, offsets)

    def rows_of(self, template: Container) -> _Cell:
        """A comprehension that an object holds."""
        child = template.children[0]
        if not isinstance(child, Output):
            raise BatchError(
                f"{self.outcome.function}: an object of the result holds a list of containers; return the list beside "
                "the object, in a tuple"
            )
        held = self.outcome.results[child.index]
        assert isinstance(held, RaggedResult)
        return self.ragged(held, child.type)

    def ragged(self, held: RaggedResult, type: Type) -> _Cell:
        assert isinstance(type, List)
        inner: Any = held.values
        match inner:
            case ArrayResult(values=values):
                return self.list_store(type.elem, values, held.offsets, held.offsets)
            case StructureResult(rows=rows):
                self.reads_input = True
                return self.list_store(inner.type, rows, held.offsets, held.offsets)
            case RaggedResult():
                raise BatchError(
                    f"{self.outcome.function}: an object of the result holds lists of lists; return them "
                    "beside the object, in a tuple"
                )
            case _:
                assert_never(inner)

    def list_store(self, elem: Type, values: Any, offsets: Any, starts: Any) -> _Cell:
        name = self.name("list")
        self.lists.append(ListStore(name, elem))
        count = self.outcome.count
        self.columns[f"{name}.#values"] = values
        self.columns[f"{name}.#offsets"] = offsets
        self.columns[transfer.STARTS + name] = jnp.arange(count + 1, dtype=jnp.int32)
        self.columns[transfer.STARTS + f"{name}.#values"] = starts
        return _Cell(List(elem, name), jnp.arange(count, dtype=jnp.int32))


def _enum_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
