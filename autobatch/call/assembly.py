"""Results that are structure: the columns of one object an example.

Container("object", (Output(0), Output(1)), ("node", "value"), Found)   ->   a store `Found` of one row an example
                                                                             Found.node   rows of the input's store
                                                                             Found.value  the array of result 1

A list in an object is a list store; its elements are rows of their own, with the results that lie in the list.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import packed
from autobatch.call.batch import Batch
from autobatch.call.packed import LIVE, BatchForm, BatchLeaves
from autobatch.compiler.executables import (
    ArrayResult,
    CutBuffers,
    RaggedResult,
    Segments,
    StructureResult,
    array_of,
    with_chosen,
)
from autobatch.data.columns import ROOT, ROOT_MISSING, UNKNOWN, VALUE, Class, Field, ListStore, Schema, Store, has_mask
from autobatch.data.infer import class_of_leaf, names_of_table
from autobatch.data.spec import element_type
from autobatch.errors import BatchError, Span
from autobatch.ir import strings
from autobatch.ir.core import (
    CLASS,
    STR,
    Array,
    BuiltObject,
    ChoiceTemplate,
    Container,
    Fixed,
    HeapTemplate,
    List,
    ListTemplate,
    MadeTemplate,
    OptionalTemplate,
    Output,
    OwnField,
    Pointer,
    Ref,
    Tag,
    Template,
    Type,
    outputs,
)
from autobatch.ir.jax_compat import taken, type_of, xp

# ---- outcome
#
# What a call has computed, row by row, and columns that are made of it.
#
# Rows are those of the examples, of the elements of the lists of a result, or of the objects that the program has made.


ClassKind = Literal["object", "namedtuple", "tuple", "list", "dict", "table", "value"]
Result = ArrayResult | RaggedResult | StructureResult


@dataclass(frozen=True)
class MadeRows:
    """The objects that a call has made. `results` are all outputs of the program: those of class k begin at
    `classes[k][1]`; the one at `kinds` says of which class each object is, the ones behind it which rows of the stores
    `adopted` they are; the last one where the objects of each example begin."""

    classes: tuple[tuple[MadeTemplate, int], ...]
    adopted: tuple[str, ...]
    kinds: int
    results: Sequence[Result]

    def rows(self, output: int) -> Any:
        held = self.results[output]
        assert isinstance(held, StructureResult)
        return held.rows

    @property
    def starts(self) -> Any:
        """int32[B + 1]"""
        return self.rows(-1)


@dataclass(frozen=True)
class Outcome:
    """What a call has computed, and what its structure refers to: `leaves` gives the columns of the examples, for
    results that are nodes of the input. `reached(k)`: where a batched argument reaches result k.

    `results` have one row for each of `count` entries: the examples, or the elements of all lists of a result; then
    `live` of them are elements, and the others capacity. `heaps`: the memory of objects, whose columns are among
    `whole`, the results with a row for each example; `owners`: the example that each entry belongs to, where these are
    not the examples themselves; `common`: what has been made for some part of the result and serves others. `placed`:
    in memory words are places in a vocabulary, and objects of the examples rows of the batch, not numbers of their own
    (`ir.texts.number`) and of rows of their example."""

    function: str
    count: int
    results: Sequence[Result]
    schema: Schema
    leaves: Callable[[], dict[str, Any]]
    enums: tuple[tuple[str, type], ...]
    words: Mapping[str, Any]
    reached: Callable[[int], Span | None]
    live: Any = None
    made: MadeRows | None = None
    heaps: tuple[HeapTemplate, ...] = ()
    whole: Sequence[Result] = ()
    owners: Any = None
    placed: bool = False
    common: dict[str, Any] = field(default_factory=dict)

    def inside(self, held: RaggedResult) -> Outcome:
        """The same, one row for each element of the lists of a result."""
        inner = [r.values if isinstance(r, RaggedResult) else r for r in self.results]
        count = capacity(held.values)
        owners = None
        if self.heaps or _is_of_example(held):
            rows = xp.searchsorted(held.offsets, xp.arange(count, dtype=xp.int32), side="right") - 1
            owners = self.examples_of(xp.clip(rows, 0, max(self.count - 1, 0)))
        return replace(self, count=count, results=inner, live=held.offsets[-1], owners=owners)

    def examples_of(self, entries: Any) -> Any:
        """The examples that entries belong to."""
        return entries if self.owners is None else taken(self.owners, entries)

    @property
    def firsts(self) -> Any:
        """int32[count + 1]: the number of entries before each one; capacity adds none."""
        whole = xp.arange(self.count + 1, dtype=xp.int32)
        return whole if self.live is None else xp.minimum(whole, self.live)


def _is_of_example(held: Result) -> bool:
    """Are its innermost elements rows that are numbered in their examples?"""
    while isinstance(held, RaggedResult):
        held = held.values
    return isinstance(held, StructureResult) and held.of_example


def capacity(values: Result) -> int:
    """The number of rows of a result."""
    match values:
        case ArrayResult(values=array):
            return int(array.shape[0])
        case StructureResult(rows=rows):
            return int(rows.shape[0])
        case RaggedResult(offsets=offsets):
            return int(offsets.shape[0]) - 1
        case _:
            assert_never(values)


@dataclass
class ResultCell:
    """A column under construction. `missing`: where it is None. A reference or list that is `nullable` is -1 there."""

    type: Type
    values: Any
    missing: Any = None
    nullable: bool = False

    @property
    def has_none(self) -> bool:
        """Is it None in some row, as far as types tell?"""
        return self.missing is not None or self.nullable


@dataclass(frozen=True)
class ResultLevel:
    """Rows of results: those of the entries of the Batch themselves, or of the elements of a list in each of them.
    `starts`: where the rows of each entry begin."""

    outcome: Outcome
    starts: Any

    @property
    def count(self) -> int:
        return self.outcome.count

    def inside(self, held: RaggedResult) -> ResultLevel:
        return ResultLevel(self.outcome.inside(held), held.offsets[self.starts])


def class_kind(template: Container) -> ClassKind:
    """What sort of record a container is."""
    match template.kind:
        case "tuple" | "dict" | "namedtuple" | "table":
            return template.kind
        case "mixture" | "list":
            return "list"
        case _:
            return "object"


# ---- made store
#
# The store of the objects that a call has made: one row an object, whatever its class.
#
#     make[of='Node'](x, left)     ->     Node.#tag    of which class each object is
#     make[of='Leaf'](x)                  Node.x       of both classes
#                                         Node.left    rows of this store, of class Node
#
# Objects of the examples that stand beside them are rows of it too: their store is *adopted*, and what refers to its
# rows refers to their new places.


class BuiltColumns(Protocol):
    """The batch under construction."""

    outcome: Outcome
    stores: list[Store]
    columns: dict[str, Any]
    reads_input: bool

    @property
    def input(self) -> Mapping[str, Any]: ...

    def name(self, wanted: str) -> str: ...

    def cell(self, template: Template, level: ResultLevel) -> ResultCell: ...

    def field(self, name: str, cell: ResultCell, column: str, classes: tuple[int, ...]) -> Field: ...


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
            before, after = (xp.zeros(mine.shape, bool) if c.missing is None else c.missing for c in (old, new))
            missing = xp.where(mine, after, before)
        mask = mine.reshape(mine.shape + (1,) * (new.values.ndim - 1))
        null = old.has_none or new.has_none
        self.cell = ResultCell(new.type, xp.where(mask, new.values, old.values), missing, null)


def _filled(cell: ResultCell, other: ResultCell) -> ResultCell:
    """A field that is always None, as one of the type that it has elsewhere."""
    if cell.type != UNKNOWN or other.type == UNKNOWN:
        return cell
    empty = -1 if isinstance(other.type, Ref | List) else 0
    return ResultCell(other.type, xp.full_like(other.values, empty), xp.ones(other.values.shape[0], bool), True)


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
        starts = self.batch.input[packed.STARTS + type.store]
        example = xp.maximum(xp.searchsorted(starts, rows, side="right") - 1, 0)
        first = xp.asarray(self.rows.starts)[:-1]
        for store in self.rows.adopted[: self.rows.adopted.index(type.store)]:
            first = first + xp.diff(self.batch.input[packed.STARTS + store])
        example = xp.minimum(example, max(first.shape[0] - 1, 0))
        moved = rows - taken(starts, example) + taken(first, example) if first.shape[0] else rows
        return xp.where(xp.asarray(rows) >= 0, moved, -1).astype(xp.int32)

    def assemble(self) -> Adopted | None:
        """Build the store; returns what is left of the input where objects of it were adopted."""
        kinds = xp.asarray(self.rows.rows(self.rows.kinds))
        tags = kinds
        for k, (template, first) in enumerate(self.rows.classes):
            self.made_class(template, first, kinds == k)
        for k, store in enumerate(self.rows.adopted, 1):
            tags = self.adopt(store, xp.asarray(self.rows.rows(self.rows.kinds + k)), tags)
        tags = self.joined_classes(tags)
        columns = self.batch.columns
        fields = []
        for number, held in enumerate(self.fields):
            twin = any(f.name == held.name for f in self.fields[:number])
            column = f"{self.name}.{held.name}" + (f".{number}" if twin else "")
            fields.append(self.batch.field(held.name, held.cell, column, tuple(held.classes)))
        columns[f"{self.name}.#tag"] = tags
        columns[packed.STARTS + self.name] = self.rows.starts
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
        return taken(xp.asarray(position, xp.int32), xp.maximum(tags, 0))

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
        level = ResultLevel(outcome, xp.asarray(self.rows.starts))
        for key, child in zip(form.keys, form.children, strict=True):
            self.add(str(key), self.batch.cell(child, level), mine, [position])

    def adopt(self, store: str, rows: Any, tags: Any) -> Any:
        """The classes and fields of a store of the examples; returns the classes of all rows."""
        self.batch.reads_input = True
        held, leaves = self.batch.outcome.schema.store(store), self.batch.input
        position = {k: self.class_of(c.name, c.kind, c.cls, c.keys) for k, c in enumerate(held.classes)}
        mine, at = rows >= 0, xp.maximum(rows, 0)
        first = min(position.values())
        for f in held.fields:
            values = self.place(f.type, taken(leaves[f.column], at))
            missing = taken(leaves[f"{f.column}?"], at) if has_mask(f) else None
            cell = ResultCell(self.moved(f.type), values, missing, f.nullable)
            self.add(f.name, cell, mine, [position[k] for k in f.classes])
        return xp.where(mine, first + taken(leaves[f"{store}.#tag"], at), tags)

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
        gone = {packed.STARTS + s for s in self.rows.adopted}
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


def _classes(name: str, template: Container, members: Sequence[Container]) -> tuple[Class, ...]:
    """The classes of a store of objects of one class, or of several."""
    if not members:
        return (_class(name, template),)
    named = [m.cls.__name__ if m.cls is not None else m.kind for m in members]
    names = [n if named.count(n) == 1 else f"{n}_{k}" for k, n in enumerate(named)]
    return tuple(_class(n, m) for n, m in zip(names, members, strict=True))


def _class(name: str, template: Container) -> Class:
    keys = template.keys if template.kind == "dict" else ()
    return Class(name, class_kind(template), template.cls, keys, template.given)


@dataclass
class Assembler:
    """Columns of results that are structure: nodes of the input keep their stores, new objects get stores of their
    own with one row an entry."""

    outcome: Outcome
    stores: list[Store] = field(default_factory=list)
    lists: list[ListStore] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    enums: dict[str, type] = field(default_factory=dict)
    reads_input: bool = False
    made: MadeStore | None = None
    heaps: dict[str, tuple[Type, Any]] = field(default_factory=dict)
    strings: dict[str, Any] = field(default_factory=dict)
    points: bool = False
    objects_of: dict[tuple[int, int], tuple[Container, ResultLevel, ResultCell]] = field(default_factory=dict)

    def batch(self, template: Template) -> Batch:
        """A Batch of one object an entry."""
        count = self.outcome.count
        if self.outcome.heaps:
            self.memory  # noqa: B018  its stores have their names first
        root = self.cell(template, ResultLevel(self.outcome, xp.arange(count + 1, dtype=xp.int32)))
        leaves: dict[str, Any] = {}
        self.add_memory()
        adopted = self.made.assemble() if self.made is not None else None
        stores, lists = tuple(self.stores), tuple(self.lists)
        if self.reads_input:
            held, known = self.input, self.outcome.schema
            if adopted is not None:
                held, known = adopted.leaves(held), adopted.schema
            leaves |= {k: v for k, v in held.items() if k not in (ROOT, ROOT_MISSING)}
            stores, lists = (*known.stores, *stores), (*known.lists, *lists)
            self.enums |= dict(self.outcome.enums)
        leaves |= self.columns
        leaves |= {name: packed.encode(words) for name, words in self.known.items() if name in leaves}
        leaves[ROOT] = root.values
        if root.missing is not None:
            leaves[ROOT_MISSING] = root.missing
        nullable = isinstance(root.type, Ref | List)
        schema = Schema(root.type, stores, lists, root.missing is not None, root_nullable=nullable)
        elements = self.outcome.live is not None
        if elements:
            leaves[LIVE] = self.outcome.live
        form = BatchForm(schema, count, 1, enums=tuple(self.enums.items()), elements=elements)
        return Batch.from_leaves(BatchLeaves(leaves), form)

    def cell(self, template: Template, level: ResultLevel) -> ResultCell:
        match template:
            case Output(index=index, type=type):
                return self.result(level.outcome.results[index], type, level)
            case OptionalTemplate(value=value, missing=missing):
                return self.optional(self.cell(value, level), level.outcome.results[missing])
            case ChoiceTemplate(alternatives=alternatives, index=index):
                return self.choice(alternatives, array_of(level.outcome.results[index]), level)
            case Fixed(value=value):
                return self.fixed(value, level)
            case ListTemplate(element=element, length=length, is_tuple=is_tuple):
                held = level.outcome.results[length]
                assert isinstance(held, RaggedResult)
                return self.list_store(level, held.offsets, self.cell(element, level.inside(held)), is_tuple)
            case Pointer(index=index, of=of):
                return self.pointer(array_of(level.outcome.results[index]), of, level)
            case Container(kind="list"):
                return self.written_out(template, level)
            case Container():
                known = self.objects_of.get((id(template), id(level)))
                if known is None:  # a template that stands twice is one object
                    known = (template, level, self.record(template, level))
                    self.objects_of[id(template), id(level)] = known
                return known[2]
            case _:
                assert_never(template)

    def result(self, held: Result, type: Type, level: ResultLevel) -> ResultCell:
        """A result whose innermost elements are of that type."""
        match held:
            case ArrayResult(values=values):
                kind = element_type(type)
                if isinstance(kind, Ref | List):  # a column of objects in memory
                    return self.result(with_chosen(held, kind), kind, level)
                return self.word(values, kind) if isinstance(kind, Tag) else ResultCell(kind, values)
            case StructureResult(rows=rows, type=type):
                if isinstance(type, Tag):
                    self.vocabulary(type)
                    return ResultCell(type, rows)
                if self.outcome.made is not None and is_made(type, self.outcome.made.adopted):
                    return self.objects().cell(type, rows)
                self.reads_input = True
                assert isinstance(type, Ref | List)
                return ResultCell(type, self.of_batch(rows, type, level) if held.of_example else rows, nullable=True)
            case RaggedResult(values=values, offsets=offsets):
                return self.list_store(level, offsets, self.result(values, type, level.inside(held)))
            case _:
                assert_never(held)

    def of_batch(self, rows: Any, type: Ref | List, level: ResultLevel) -> Any:
        """Rows that are numbered in their examples, as those of the batch."""
        example = level.outcome.examples_of(xp.arange(level.count, dtype=xp.int32))
        starts = self.input[packed.STARTS + str(type.store)]
        return xp.where(rows >= 0, taken(starts, example) + rows, -1).astype(xp.int32)

    @cached_property
    def input(self) -> dict[str, Any]:
        """The columns of the examples."""
        return self.outcome.leaves()

    def objects(self) -> MadeStore:
        """The store of the objects that the call has made."""
        if self.made is None:
            self.made = MadeStore(self)
        return self.made

    def optional(self, cell: ResultCell, flag: Result) -> ResultCell:
        """None where the flag is true."""
        assert isinstance(flag, ArrayResult)
        if isinstance(cell.type, Ref | List):
            return ResultCell(cell.type, xp.where(flag.values, -1, cell.values), nullable=True)
        return ResultCell(cell.type, cell.values, flag.values if cell.missing is None else flag.values | cell.missing)

    def word(self, numbers: Any, type: Tag) -> ResultCell:
        """Data-dependent words, of the numbers that stand for them (`ir.texts.number`)."""
        self.refuse_traced(numbers)
        self.vocabulary(type)
        name = packed.VOCABULARY + type.vocabulary
        if numbers.ndim == 2:
            numbers = np.array([strings.number(w) for w in _spelt(np.asarray(numbers))], np.int64)
        if name not in self.known:
            self.known[name] = list(packed.decode(self.columns[name], self.enums.get(type.vocabulary)))
        known = self.known[name]
        places, least = {strings.number(w): k for k, w in enumerate(known)}, 0 if type == STR else strings.BEHIND
        distinct, which = np.unique(np.asarray(numbers), return_inverse=True)
        for n in distinct.tolist():
            if n not in places and n >= least and (made := strings.word(n)) is not None:  # the program has made it
                places[n] = len(known)
                known.append(made)
        rows = np.array([places.get(n, -1) for n in distinct.tolist()], np.int32)
        return ResultCell(type, xp.asarray(rows[which.reshape(-1)]))

    def refuse_traced(self, words: Any) -> None:
        """Refuse words, or letters of them, that nobody knows yet."""
        if isinstance(words, jax.core.Tracer):
            raise BatchError(
                f"{self.outcome.function}: the result holds data-dependent strings, which are not known under jax.jit; "
                "call it outside, or return numbers"
            )

    def vocabulary(self, type: Tag) -> None:
        """Tags are positions in the vocabulary of the input, and behind it the constants of the program."""
        name = packed.VOCABULARY + type.vocabulary
        if name not in self.columns:
            words = self.outcome.words.get(name)
            self.columns[name] = self.input.get(name, packed.encode(())) if words is None else words
        self.enums |= {n: c for n, c in self.outcome.enums if n == type.vocabulary}

    def fixed(self, value: Any, level: ResultLevel) -> ResultCell:
        count = level.count
        if value is None:
            return ResultCell(UNKNOWN, xp.zeros(count, bool), xp.ones(count, bool))
        if isinstance(value, (str, enum.Enum)):
            kind = Tag(_enum_name(type(value)) if isinstance(value, enum.Enum) else STR.vocabulary)
            if isinstance(value, enum.Enum):
                self.enums[kind.vocabulary] = type(value)
            return self.word(np.full(count, strings.number(value)), kind)
        whole = jnp.asarray(value)
        return ResultCell(type_of(value), jnp.broadcast_to(whole, (count, *whole.shape)))

    def name(self, wanted: str) -> str:
        taken = {s.name for s in (*self.outcome.schema.stores, *self.stores)}
        taken |= {s.name for s in (*self.outcome.schema.lists, *self.lists)}
        if isinstance(held := self.outcome.common.get("memory"), Assembler):
            taken |= {s.name for s in held.stores} | {s.name for s in held.lists}
        number, made = 1, wanted
        while made in taken:
            number += 1
            made = f"{wanted}_{number}"
        return made

    @property
    def known(self) -> dict[str, list[Any]]:
        """The words of each vocabulary, which all results of a call have in common, as they have memory."""
        known: dict[str, list[Any]] = self.outcome.common.setdefault("words", {})
        return known

    def pointer(self, rows: Any, of: str, level: ResultLevel) -> ResultCell:
        """Objects of the memory of a class."""
        self.points = True
        type, starts = self.memory.heap(of)
        example = level.outcome.examples_of(xp.arange(level.count, dtype=xp.int32))
        first = taken(starts, example)
        known = (rows >= 0) & (rows < taken(starts, example + 1) - first)
        if type == STR:
            held = self.word(self.memory.strings[of][np.where(known, first + rows, -1)], STR)
            return held if known.all() else replace(held, missing=~known)
        return ResultCell(type, xp.where(known, first + rows, -1).astype(xp.int32), nullable=True)

    @property
    def memory(self) -> Assembler:
        """The stores of the memory of classes, which all results of a call have in common: so an object that two of
        them lead to is one object."""
        if isinstance(held := self.outcome.common.get("memory"), Assembler):
            return held
        made = self.outcome.common["memory"] = Assembler(self.outcome)
        for heap in self.outcome.heaps:
            made.heap(heap.name)
        made.settle()
        return made

    def settle(self) -> None:
        """Give lists in memory the types of their elements, which were not known while these were looked at."""
        elements = {s.name: s.elem for s in self.lists}

        def settled(type: Type) -> Type:
            match type:
                case List(store=str(store)) if store in elements:
                    return List(settled(elements[store]), store)
                case _:
                    return type

        self.lists = [replace(s, elem=settled(s.elem)) for s in self.lists]
        self.stores = [
            replace(s, fields=tuple(replace(f, type=settled(f.type)) for f in s.fields)) for s in self.stores
        ]
        self.heaps = {of: (settled(type), starts) for of, (type, starts) in self.heaps.items()}

    def add_memory(self) -> None:
        """Add the stores of memory, where this result leads to some."""
        if self.outcome.heaps and self.points:
            memory = self.memory
            self.stores, self.lists = [*memory.stores, *self.stores], [*memory.lists, *self.lists]
            self.columns = memory.columns | self.columns
            self.enums = memory.enums | self.enums
            self.reads_input |= memory.reads_input

    def heap(self, of: str) -> tuple[Type, Any]:
        """What the objects of the memory of a class are, and where those of each example begin."""
        if of not in self.heaps:
            found = next(h for h in self.outcome.heaps if h.name == of)
            rows = CutBuffers(array_of(self.outcome.whole[found.count]), found.room)
            name = self.name(of)
            if found.fields.cls is str:
                self.heaps[of] = STR, rows.offsets
                self.strings[of] = self.strings_in_memory(found, rows)
                return self.heaps[of]
            of_lists = found.segments and found.fields.kind != "table"
            self.heaps[of] = List(UNKNOWN, name) if of_lists else Ref(name), rows.offsets  # they may lead to each other
            if found.segments and not of_lists:
                self.tables_in_memory(name, found, rows)
            elif found.segments:
                self.lists_in_memory(name, found, rows)
            else:
                level = self.rows_of(found, rows.of, rows.example, rows.offsets)
                self.filled(name, found.fields, level, found.members)
        return self.heaps[of]

    def rows_of(self, heap: HeapTemplate, of: Callable[[Any], Any], example: Any, starts: Any) -> ResultLevel:
        """The rows of columns of memory, and the example that each belongs to."""
        types = {x.index: x.type for x in outputs(heap.fields)} if self.outcome.placed else {}
        columns: list[Result] = []
        for n, k in enumerate(heap.columns):
            held, type = of(array_of(self.outcome.whole[k])), types.get(n)
            columns.append(StructureResult(held, type) if isinstance(type, Tag | Ref | List) else ArrayResult(held))
        owners, count = xp.asarray(example, xp.int32), int(example.shape[0])
        return ResultLevel(replace(self.outcome, count=count, results=columns, live=starts[-1], owners=owners), starts)

    def lists_in_memory(self, name: str, heap: HeapTemplate, rows: CutBuffers) -> None:
        """The lists of memory, whose elements stand in segments."""
        position = len(self.lists)
        self.lists.append(ListStore(name, UNKNOWN))  # reserves the name while the elements are built
        lengths, table = (array_of(self.outcome.whole[k]) for k in heap.segments)
        inside = Segments(rows, lengths, table, heap.room)
        level = self.rows_of(heap, inside.of, inside.example, inside.offsets[rows.offsets])
        element = ResultCell(UNKNOWN, xp.zeros(level.count, bool))
        if heap.fields.children:
            element = self.cell(heap.fields.children[0], level)
        optional, nullable, is_tuple = element.missing is not None, element.has_none, heap.fields.cls is tuple
        self.lists[position] = ListStore(name, element.type, False, optional, nullable, is_tuple=is_tuple)
        self.add_list_columns(name, element, inside.offsets, rows.offsets)

    def tables_in_memory(self, name: str, heap: HeapTemplate, rows: CutBuffers) -> None:
        """The dicts and sets of memory, whose pairs stand in segments: two lists of each."""
        position, (pair,) = len(self.stores), heap.fields.children or (None,)
        self.stores.append(Store(name, (), ()))  # reserves the name while the elements are built
        lengths, table = (array_of(self.outcome.whole[k]) for k in heap.segments)
        inside, fields = Segments(rows, lengths, table, heap.room), []
        level = self.rows_of(heap, inside.of, inside.example, inside.offsets[rows.offsets])
        count = int(rows.example.shape[0])
        for k, key in enumerate(names_of_table(heap.fields.cls or dict)):
            items = self.name(f"{name}.{key}")
            element = ResultCell(UNKNOWN, xp.zeros(level.count, bool))
            self.lists.append(ListStore(items, UNKNOWN))
            at = len(self.lists) - 1
            if isinstance(pair, Container):
                element = self.cell(pair.children[k], level)
            self.lists[at] = ListStore(items, element.type, False, element.missing is not None, element.has_none)
            self.add_list_columns(items, element, inside.offsets, rows.offsets)
            held = ResultCell(List(element.type, items), xp.arange(count, dtype=xp.int32))
            fields.append(self.field(key, held, f"{name}.{key}", (0,)))
        self.stores[position] = Store(name, (_class(name, heap.fields),), tuple(fields))
        self.columns[f"{name}.#tag"] = xp.zeros(count, xp.int32)
        self.columns[packed.STARTS + name] = rows.offsets

    def strings_in_memory(self, heap: HeapTemplate, rows: CutBuffers) -> Any:
        """The numbers of the strings of memory, whose code points stand in segments, and behind them that of ''."""
        lengths, table = (array_of(self.outcome.whole[k]) for k in heap.segments)
        self.refuse_traced(lengths)
        inside = Segments(rows, lengths, table, heap.room)
        letters = "".join(map(chr, np.asarray(inside.of(array_of(self.outcome.whole[heap.columns[0]]))).tolist()))
        ends = np.asarray(inside.offsets).tolist()
        words = [letters[a:b] for a, b in itertools.pairwise(ends)]
        return np.array([strings.number(w) for w in (*words, "")], np.int64)

    def record(self, template: Container, level: ResultLevel) -> ResultCell:
        """An object of every row, in a store of its own."""
        kind = class_kind(template)
        return self.filled(
            self.name(template.cls.__name__ if template.cls is not None else f"{kind}{len(template.keys)}"),
            template,
            level,
        )

    def filled(
        self, name: str, template: Container, level: ResultLevel, members: Sequence[Container] = ()
    ) -> ResultCell:
        """The same, in a store of a name that is free. `members`: of several classes, what those of each are."""
        position = len(self.stores)
        self.stores.append(Store(name, (), ()))  # reserves the name while the children are built
        fields, tags = [], xp.zeros(level.count, xp.int32)
        for key, child in zip(template.keys, template.children, strict=True):
            cell = self.cell(child, level)
            if members and key == CLASS:
                tags = cell.values
                continue
            of, column = (key.name, f"{key.name} of {key.member}") if isinstance(key, OwnField) else (key, key)
            owners = (k for k, m in enumerate(members) if (of, child) in zip(m.keys, m.children, strict=True))
            fields.append(self.field(str(of), cell, f"{name}.{column}", tuple(owners) if members else (0,)))
        self.stores[position] = Store(name, _classes(name, template, members), tuple(fields))
        self.columns[f"{name}.#tag"] = tags
        self.columns[packed.STARTS + name] = level.starts
        return ResultCell(Ref(name), xp.arange(level.count, dtype=xp.int32))

    def field(self, name: str, cell: ResultCell, column: str, classes: tuple[int, ...]) -> Field:
        """A field of some classes, whose column is this cell."""
        self.columns[column] = cell.values
        if cell.missing is not None:
            self.columns[f"{column}?"] = cell.missing
        optional, unknown = cell.missing is not None, cell.type == UNKNOWN
        return Field(name, cell.type, column, classes, optional, unknown, cell.has_none)

    def choice(self, alternatives: Sequence[Template], index: Any, level: ResultLevel) -> ResultCell:
        """A value of one of several types in every row: a record "value" of the class that says which."""
        name, position = self.name("value"), len(self.stores)
        self.stores.append(Store(name, (), ()))  # reserves the name while the values are built
        fields, classes = [], []
        for k, alternative in enumerate(alternatives):
            cell = self.cell(alternative, level)
            fields.append(self.field(VALUE, cell, f"{name}.{k}", (k,)))
            classes.append(Class(f"{name}{k}", "value", _class_of(cell.type)))
        self.stores[position] = Store(name, tuple(classes), tuple(fields))
        self.columns[f"{name}.#tag"] = xp.asarray(index, xp.int32)
        self.columns[packed.STARTS + name] = level.starts
        return ResultCell(Ref(name), xp.arange(level.count, dtype=xp.int32))

    def written_out(self, template: Container, level: ResultLevel) -> ResultCell:
        """A list of as many numbers in every row."""
        cells = [self.cell(c, level) for c in template.children]
        length = len(cells)
        if not cells:
            return self.list_store(level, level.outcome.firsts * 0, ResultCell(UNKNOWN, xp.zeros(0, bool)))
        values = xp.stack([c.values for c in cells], 1)
        woven = ResultCell(cells[0].type, values.reshape(level.count * length, *values.shape[2:]))
        return self.list_store(level, level.outcome.firsts * length, woven)

    def list_store(self, level: ResultLevel, offsets: Any, elements: ResultCell, is_tuple: bool = False) -> ResultCell:
        """A list of every row."""
        name = self.name("list")
        optional, nullable = elements.missing is not None, elements.has_none
        self.lists.append(ListStore(name, elements.type, False, optional, nullable, is_tuple=is_tuple))
        self.add_list_columns(name, elements, offsets, level.starts)
        return ResultCell(List(elements.type, name), xp.arange(level.count, dtype=xp.int32))

    def add_list_columns(self, name: str, elements: ResultCell, offsets: Any, starts: Any) -> None:
        """The columns of a list store. `starts`: where the lists of each example begin."""
        self.columns[f"{name}.#values"] = elements.values
        if elements.missing is not None:
            self.columns[f"{name}.#values?"] = elements.missing
        self.columns[f"{name}.#offsets"] = offsets
        self.columns[packed.STARTS + name] = starts
        self.columns[packed.STARTS + f"{name}.#values"] = offsets[starts]


def _class_of(kind: Type) -> type | None:
    """The class of values of a type; None for members of enums."""
    if isinstance(kind, Tag) and kind != STR:
        return None
    return class_of_leaf(kind) if isinstance(kind, Array | Tag) else list if isinstance(kind, List) else object


def _spelt(rows: Any) -> list[str]:
    """Strings of their lengths and code points, a row for each (`passes/code_points.py`)."""
    return ["".join(map(chr, row[1 : 1 + row[0]])) for row in rows.tolist()]


def _enum_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
