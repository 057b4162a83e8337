"""User objects -> columns.

    examples --walk--> tables of values by class, references as visit numbers
             --infer-> types of all places, joined with those of `like`          (`_Packer.see_all`)
             --layout-> the schema
             ---------> rows for visits, one array a field                       (`_Packer.columns`)
Cost: one Python step an object, then a handful of passes in C over the values of each field.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autobatch.data.columns import (
    MOST_CONSTANTS,
    ROOT,
    ROOT_MISSING,
    UNKNOWN,
    VALUE,
    Columns,
    Ints,
    Schema,
    columns_of,
    empty,
    empty_columns,
    has_mask,
    offsets_of,
    ranges,
    unfilled,
)
from autobatch.data.infer import (
    MAX_NESTING,
    OF_LISTS,
    OF_RECORDS,
    Inference,
    InferenceConflict,
    InferredPlace,
    InferredRecord,
    RecordKind,
    SchemaLayout,
    is_words,
    lay_out,
    sort_of_leaf,
)
from autobatch.data.leaves import (
    INTEGER_LISTS,
    LeafColumn,
    Mixed,
    RaggedLeaf,
    Vocabularies,
    as_ragged,
    describe_value,
    is_graph_class,
    leaf_column,
)
from autobatch.data.ragged import ShapeDifference, ShapesDiffer, differing
from autobatch.data.reading import (
    Lacking,
    ObjectReader,
    leaf_code,
    read_like,
)
from autobatch.data.walk import (
    ObjectTable,
    ObjectWalk,
    collector_paused,
    learned,
    spell,
    walk,
)
from autobatch.errors import BatchError
from autobatch.ir.core import INT, Array, List, Type

AnyArray = np.ndarray[Any, Any]


def pack(
    examples: Sequence[Any],
    like: Schema | None = None,
    reader: ObjectReader | None = None,
    keys_are_data: bool = False,
) -> Columns:
    """Pack a sequence of examples.

    `like` is a schema that the result's schema contains: what the data adds is joined to it. `reader`: the machine that
    reads objects; what that cannot, Python does, and finds the words for what goes wrong. `keys_are_data`: as `walk`
    takes it. Raises BatchError for values that cannot be packed and for fields whose values differ in type, naming the
    example and the path to it; ShapesDiffer where only the shapes of arrays keep examples from being of one type."""
    if len(examples) == 0:
        if like is None:
            raise BatchError("the list of examples is empty, so their types are unknown; pass `like=`")
        return empty_columns(like)
    found = None
    if reader is not None:
        with suppress(BatchError, Mixed), collector_paused():
            found = _by_machine(examples if type(examples) is list else list(examples), like, reader, keys_are_data)
    return _Packer(walk(examples, keys_are_data), like).columns() if found is None else found


FIRST = 1
"""Examples whose types are inferred, before the machine looks whether the others are of the same."""


def _by_machine(examples: list[Any], like: Schema | None, reader: ObjectReader, keys_are_data: bool) -> Columns | None:
    """The columns, read under a schema: `like`, or what is inferred of the first examples, and of those that have more,
    as the machine then finds. None where Python is to walk over all of them."""
    seen, count, schema, found = list[Any](), FIRST, like, Lacking(0)
    while True:
        if schema is not None:
            read = read_like(
                examples, schema, reader, learned, inferred=schema is not like, keys_are_data=keys_are_data
            )
            if not isinstance(read, Lacking):
                return read
            found = read
        seen += examples[found.example : found.example + count]
        count *= 4
        if len(seen) >= len(examples):
            return None
        schema, before = _interned(_Packer(walk(seen, keys_are_data), like).layout.schema), schema
        if schema is before:
            return None


_schemas: dict[Schema, Schema] = {}
MOST_SCHEMAS = 256


def _interned(schema: Schema) -> Schema:
    """The schema that is equal to it, of which the machine knows the places."""
    if len(_schemas) >= MOST_SCHEMAS:
        _schemas.clear()
    return _schemas.setdefault(schema, schema)


@dataclass(eq=False)
class _Cells:
    """The values of one field of one table, of the elements of the lists of one place, or of the roots. `owners` are
    the visits that hold them, in the field `number`. `made` is their column when they are leaves; `lists` and `inner`
    are set for lists. `holders`: where the place is that of a record "value", the cells whose values they are, and
    their positions."""

    place: InferredPlace
    values: Sequence[Any]
    targets: Ints | None
    owners: Ints
    depth: int = 0
    record: InferredRecord | None = None
    name: str = ""
    number: int = 0
    made: LeafColumn | RaggedLeaf | None = None
    lists: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    inner: _Cells | None = None
    holders: tuple[_Cells, list[int]] | None = None


class _Packer:
    def __init__(self, walked: ObjectWalk, like: Schema | None) -> None:
        self.walked = walked
        self.inference = Inference()
        self.vocabularies = Vocabularies()
        self.records: dict[int, InferredRecord] = {}
        lists = walked.tables[0]
        self.list_visits = np.flatnonzero(walked.visits == lists.index)
        self.list_number = np.full(len(walked.visits), -1, np.int64)
        self.list_number[self.list_visits] = np.arange(len(self.list_visits))
        self.list_lengths = np.array(lists.lengths, np.int64)
        self.list_offsets = offsets_of(self.list_lengths)
        self.list_values, self.list_targets = lists.fields[0].values, lists.fields[0].targets
        self.list_owner = np.full(len(self.list_visits), -1, np.int64)
        self.cells: list[_Cells] = []
        self.tables = [walked.visits.copy()]
        self.origins, self.within = [np.arange(len(walked.visits))], [np.full(len(walked.visits), -1)]
        """Of each visit its table, and where it comes in their order: with the visit that holds it, and which of its
        values it is. Records "value" are visits behind all others."""
        self.differences: list[ShapeDifference] = []
        try:
            if like is not None:
                self.inference.see_schema(like)
            self.see_all()
            self.layout: SchemaLayout = lay_out(self.inference)
            differ = like is not None and not like.mixes and self.inference.differ
            if differ and not _Packer(walked, None).layout.schema.mixes:
                raise InferenceConflict(differ)
        except InferenceConflict as error:
            raise BatchError(f"two examples, or an example and `like`, disagree on a type: {error}") from None

    # What is held where

    def see_all(self) -> None:
        """Cells for every field, list and root; their facts go to the inference."""
        tables = [t for t in self.walked.tables if t.kind not in (None, "table")]
        forms = sorted(tables, key=lambda t: (t.signature.count(None), t.names, tuple(s or "" for s in t.signature)))
        for table in forms:
            assert table.kind is not None
            record = self.inference.record(table.kind, table.cls, table.names, table.signature)
            record.see_constants(_constants(table))
            for keys in table.orders:
                record.see_keys(keys)
            self.records[table.index] = record
            if table.cls is not None and is_graph_class(table.cls):
                self.declare(record)
        roots = self.walked.roots
        self.see(_Cells(self.inference.root, roots.values, roots.targets, self.walked.starts))
        for table in tables:
            record = self.records[table.index]
            owners = np.flatnonzero(self.walked.visits == table.index)
            for k, name in enumerate(table.names):
                held = table.fields[k]
                self.see(_Cells(record.places[name], held.values, held.targets, owners, 0, record, name, k))
        for cells in self.cells:  # grows while it is read: dicts in dicts, lists in lists
            if len(cells.lists):
                self.see_items(cells)
        if self.differences:
            raise ShapesDiffer(self.differences)
        self.inference.close()
        for cells in self.cells:  # grows, too
            if cells.place.find().kind == "record" and (cells.inner is not None or _holds_leaves(cells)):
                self.see_values(cells, self.sorts_of(cells))

    def declare(self, record: InferredRecord) -> None:
        """The types of a graph's fields that hold integers, also where they are empty."""
        for name, place in record.places.items():
            for _ in range(INTEGER_LISTS.get(name, 0)):
                items = InferredPlace(f"the elements of {place.where}")
                self.inference.see_list(place, items, False)
                place = items
            if name in INTEGER_LISTS:
                self.inference.see_leaf(place, INT, False)

    def see(self, cells: _Cells) -> None:
        """The facts of some cells."""
        self.cells.append(cells)
        kinds = set(map(type, cells.values))
        none = type(None) in kinds
        try:
            if cells.targets is None or not (cells.targets >= 0).any():
                self.see_leaves(cells, kinds, none)
            else:
                self.see_objects(cells, none)
        except Mixed as error:
            where = "one example" if cells.place is self.inference.root else cells.place.where
            examples = np.searchsorted(self.walked.starts, cells.owners, side="right") - 1
            found = differing(where, cells.values, examples, len(self.walked.starts))
            sorts = self.sorts_of(cells) if found is None else {}
            if len(sorts) > 1:
                self.see_values(cells, sorts)
            elif found is None:
                raise self.mixed(cells, error) from None
            else:
                self.differences.append(found)
        except InferenceConflict as error:
            first = f"{self.path(cells, 0)}: {cells.place.where}"
            raise BatchError(f"{first} had another type before (`like`, or shared lists): {error}") from None

    def see_leaves(self, cells: _Cells, kinds: set[type], none: bool) -> None:
        cells.made = leaf_column(cells.values, kinds, self.vocabularies)
        numpy = any(issubclass(k, (np.ndarray, np.generic)) for k in kinds)
        if isinstance(cells.made, LeafColumn):
            self.inference.see_leaf(cells.place, cells.made.type, none, numpy)
        else:
            self.inference.see_ragged(cells.place, cells.made.elem, none, numpy)

    def see_objects(self, cells: _Cells, none: bool) -> None:
        assert cells.targets is not None
        held = np.flatnonzero(cells.targets >= 0)
        is_list = self.list_number[cells.targets[held]] >= 0
        if none or len(held) < len(cells.targets):
            leaves = np.flatnonzero(cells.targets < 0).tolist()
            leaf = next((i for i in leaves if cells.values[i] is not None), None)
            if leaf is not None:
                raise _mixed_values(cells, int(held[0]), leaf)
        if is_list.any() and not is_list.all():
            raise _mixed_values(cells, int(held[is_list][0]), int(held[~is_list][0]))
        if is_list.all():
            cells.lists = np.unique(self.list_number[cells.targets[held]])
            return
        self.see_records(cells, cells.targets[held], none)

    def see_records(self, cells: _Cells, visits: Ints, none: bool) -> None:
        """The classes of objects that some cells hold. Dicts and sets whose keys are data are of one class where they
        are met first; what another place holds too makes the two classes one."""
        tables, of = self.tables[0], self.walked.tables
        for table in np.unique(tables[visits]).tolist():
            if table < len(of) and of[table].kind == "table":
                mine = np.unique(visits[tables[visits] == table])
                table = self.see_table(cells, of[table], mine)
            self.inference.see_record(cells.place, self.records[table], none)

    def see_table(self, cells: _Cells, table: ObjectTable, visits: Ints) -> int:
        """A record for dicts or sets of one type, and cells for their keys and values."""
        assert table.cls is not None
        record = self.inference.table(table.cls, cells.place.where)
        number = self.new_table(record)
        self.tables[0][visits] = number
        rows = np.searchsorted(np.flatnonzero(self.walked.visits == table.index), visits)
        for name, held in zip(table.names, table.fields, strict=True):
            assert held.targets is not None
            values, lists = [held.values[k] for k in rows.tolist()], held.targets[rows]
            self.see(_Cells(record.places[name], values, lists, visits, cells.depth, record, name))
        return number

    def new_table(self, record: InferredRecord) -> int:
        """The number of a table that the walk has not made."""
        number = len(self.walked.tables) + len(self.records)
        self.records[number] = record
        return number

    def sorts_of(self, cells: _Cells) -> dict[tuple[str, type | None], list[int]]:
        """The positions of the values of each sort; of None there are none."""
        found: dict[tuple[str, type | None], list[int]] = {}
        classes = list(map(type, cells.values))
        codes = {cls: n for n, cls in enumerate(dict.fromkeys(classes))}
        coded = np.fromiter(map(codes.__getitem__, classes), np.int64, len(classes))
        for cls, n in codes.items():
            if cls is not type(None):
                of_objects = OF_LISTS if cls is list else OF_RECORDS
                sort = of_objects if leaf_code(cls) is None else sort_of_leaf(cls)
                found.setdefault(sort, []).extend(np.flatnonzero(coded == n).tolist())
        return {sort: sorted(places) for sort, places in found.items()}

    def see_values(self, cells: _Cells, sorts: dict[tuple[str, type | None], list[int]]) -> None:
        """Cells for what is no record and stands where values of other sorts stand: those of records "value"."""
        count, none = len(cells.values), any(x is None for x in cells.values)
        targets = np.full(count, -1, np.int64) if cells.targets is None else cells.targets.copy()
        whole, cells.targets, cells.made = targets.copy(), targets, None
        for sort, places in sorts.items():
            if sort == OF_RECORDS:
                self.see_records(cells, whole[places], none)
                continue
            record = self.inference.value(*sort, cells.place.where)
            self.inference.see_record(cells.place, record, none)
            first = sum(map(len, self.tables))
            visits = np.arange(first, first + len(places))
            self.tables.append(np.full(len(places), self.new_table(record)))
            self.origins.append(cells.owners[places])
            self.within.append(np.full(len(places), cells.number) if cells.record else np.array(places))
            held = whole[places] if sort == OF_LISTS else None
            values = [cells.values[k] for k in places]
            inner = _Cells(record.itself.places[VALUE], values, held, visits, cells.depth, record, VALUE)
            inner.holders = cells, places
            targets[places] = visits
            if sort == OF_LISTS and cells.inner is not None:
                inner.lists, inner.inner, cells.lists, cells.inner = cells.lists, cells.inner, cells.lists[:0], None
                self.list_owner[inner.lists] = len(self.cells)
                self.cells.append(inner)
            else:
                self.see(inner)

    def see_items(self, cells: _Cells) -> None:
        """Cells for the elements of lists. A list that another place holds too makes the two places one."""
        where = f"the elements of {cells.place.where}"
        if cells.depth > MAX_NESTING:
            raise BatchError(
                f"{self.path(cells, 0)}: lists are nested more than {MAX_NESTING} deep; "
                "use a class with a list field for structure that nests without end"
            )
        items = InferredPlace(where if cells.depth < 2 else cells.place.where)
        self.inference.see_list(cells.place, items, any(x is None for x in cells.values))
        owners = self.list_owner[cells.lists]
        for other in np.unique(owners[owners >= 0]).tolist():
            self.share(cells, self.cells[other].place, int(cells.lists[owners == other][0]))
        new = cells.lists[owners < 0]
        self.list_owner[new] = next(i for i, c in enumerate(self.cells) if c is cells)
        lengths = self.list_lengths[new]
        values, targets = self.list_values, self.list_targets
        if len(new) < len(self.list_lengths):
            picked = ranges(self.list_offsets[new], lengths)
            values = [values[i] for i in picked.tolist()]
            targets = None if targets is None else targets[picked]
        inner = _Cells(items, values, targets, np.repeat(self.list_visits[new], lengths), cells.depth + 1)
        cells.lists, cells.inner = new, inner
        self.see(inner)

    def share(self, cells: _Cells, other: InferredPlace, number: int) -> None:
        """One list is held at two places: what its elements are at one place, they are at the other."""
        try:
            self.inference.join(other, cells.place)
        except InferenceConflict as error:
            assert cells.targets is not None
            index = int(np.flatnonzero(cells.targets == self.list_visits[number])[0])
            raise BatchError(
                f"{self.path(cells, index)} is the very list that {other.where} holds too, but other lists there have "
                f"elements of another type: {error}; use two lists"
            ) from None

    # Rows and columns

    def columns(self) -> Columns:
        """Number the rows of every store, and fill its columns."""
        schema, visits = self.layout.schema, np.concatenate(self.tables)
        self.origin = np.concatenate(self.origins)
        self.order = np.lexsort((np.concatenate(self.within), self.origin))
        self.rows = np.full(len(visits) + 1, -1, np.int64)  # of each visit; the last entry is for target -1
        self.starts: dict[str, Ints] = {}
        self.ragged_rows: dict[int, Ints] = {}
        homes = {t: self.layout.position(r) for t, r in self.records.items()}
        for store in schema.stores:
            held = np.array([t for t, (name, _) in homes.items() if name == store.name], np.int64)
            self.number(store.name, self.order[np.isin(visits[self.order], held)])
        sizes = {name: int(starts[-1]) for name, starts in self.starts.items()}
        self.arrays: dict[str, AnyArray] = {}
        for column in columns_of(schema):
            if column.space is None or column.space in sizes:
                rows = len(self.walked.starts) if column.space is None else sizes[column.space]
                self.arrays[column.name] = unfilled(column, rows)
        for table, (name, position) in homes.items():
            self.arrays[f"{name}.#tag"][self.rows[:-1][visits == table]] = position
        for items in schema.lists:
            mine = [c for c in self.cells if self.layout.lists.get(id(c.place.find())) == items.name]
            if items.from_array:
                assert isinstance(items.elem, Array)
                self.ragged_store(items.name, items.elem, mine)
            else:
                self.list_rows(items.name, mine)
        for items in schema.lists:
            if not items.from_array:
                self.list_store(items.name, items.elem, has_mask(items))
        for cells in self.cells:
            self.fill(cells)
        return Columns(schema, len(self.walked.starts), self.arrays, self.starts, self.vocabularies.frozen())

    def number(self, name: str, held: Ints) -> None:
        """Rows for these visits, which are in order; and where the rows of each example start."""
        self.rows[held] = np.arange(len(held))
        self.starts[name] = self.example_starts(self.origin[held])

    def example_starts(self, sorted_visits: Ints) -> Ints:
        bounds = np.append(self.walked.starts, len(self.walked.visits))
        return np.searchsorted(sorted_visits, bounds).astype(np.int64)

    def list_rows(self, name: str, mine: list[_Cells]) -> None:
        held = np.sort(np.concatenate([c.lists for c in mine])) if mine else np.zeros(0, np.int64)
        self.number(name, self.list_visits[held])
        offsets = offsets_of(self.list_lengths[held])
        self.arrays[f"{name}.#offsets"] = offsets.astype(np.int32)
        self.starts[f"{name}.#values"] = offsets[self.starts[name]]

    def list_store(self, name: str, elem: Type, mask: bool) -> None:
        count = int(self.starts[f"{name}.#values"][-1])
        self.arrays[f"{name}.#values"] = empty(elem, count)
        if mask:
            self.arrays[f"{name}.#values?"] = np.ones(count, np.bool_)

    def fill(self, cells: _Cells) -> None:
        """Write some cells to their column."""
        if cells.record is not None:
            field = self.layout.field(cells.record, cells.name)
            rows, column, type, mask = self.rows[cells.owners], field.column, field.type, has_mask(field)
            self.write(cells, rows, column, f"{column}?" if mask else None, type)
        elif cells.place is self.inference.root:
            schema = self.layout.schema
            everything = np.arange(len(cells.values))
            self.write(cells, everything, ROOT, ROOT_MISSING if schema.root_optional else None, schema.root)
        if cells.inner is not None:
            name = self.layout.list_name(cells.place)
            items = self.layout.schema.list(name)
            offsets = self.arrays[f"{name}.#offsets"]
            lists = self.rows[self.list_visits[cells.lists]]
            rows = ranges(offsets[lists], self.list_lengths[cells.lists])
            column = f"{name}.#values"
            self.write(cells.inner, rows, column, f"{column}?" if has_mask(items) else None, items.elem)

    def write(self, cells: _Cells, rows: Ints, column: str, mask: str | None, type: Type) -> None:
        if cells.made is None:
            assert cells.targets is not None
            self.arrays[column][rows] = self.rows[cells.targets]
        elif isinstance(type, List):
            if isinstance(cells.made, RaggedLeaf) or cells.made.type != UNKNOWN:
                self.arrays[column][rows] = self.ragged_rows[id(cells)]
        elif isinstance(cells.made, LeafColumn) and cells.made.type != UNKNOWN:
            self.arrays[column][rows] = cells.made.array
            if mask is not None:
                missing = cells.made.missing
                self.arrays[mask][rows] = False if missing is None else missing

    # Arrays that differ in the first axis

    ragged_rows: dict[int, Ints]

    def ragged_store(self, name: str, elem: Array, mine: list[_Cells]) -> None:
        """A list store of the rows of arrays. Its lists are in the order of the objects that hold the arrays."""
        parts = [as_ragged(c.made, elem, len(c.values)) for c in mine]
        lengths = np.concatenate([np.zeros(0, np.int64), *(p.lengths for p in parts)])
        owners = np.concatenate([np.zeros(0, np.int64), *(c.owners for c in mine)])
        order = np.argsort(np.argsort(self.order)[owners], kind="stable")
        order = order[lengths[order] >= 0]
        rows = np.full(len(lengths), -1, np.int64)
        rows[order] = np.arange(len(order))
        begins = offsets_of(np.maximum(lengths, 0))[:-1]
        offsets = offsets_of(lengths[order])
        self.starts[name] = self.example_starts(self.origin[owners[order]])
        self.starts[f"{name}.#values"] = offsets[self.starts[name]]
        self.arrays[f"{name}.#offsets"] = offsets.astype(np.int32)
        flat = np.concatenate([empty(elem, 0), *(p.flat for p in parts)])
        self.arrays[f"{name}.#values"] = flat[ranges(begins[order], lengths[order])]
        bounds = offsets_of(np.array([len(p.lengths) for p in parts], np.int64))
        for cells, begin, end in zip(mine, bounds[:-1], bounds[1:], strict=True):
            self.ragged_rows[id(cells)] = rows[begin:end]

    # Errors

    def mixed(self, cells: _Cells, error: Mixed) -> BatchError:
        first = self.path(cells, error.first)
        if error.first == error.second:
            return BatchError(f"{first}: {error.reason}")
        return BatchError(
            f"{first} and {self.path(cells, error.second)} have types that do not fit into one column: {error.reason}; "
            "give one field one type, or use two classes"
        )

    def path(self, cells: _Cells, index: int) -> str:
        """`examples[3].left.value`: where a value was found."""
        if not len(cells.values):
            return cells.place.where
        if cells.holders is not None:
            return self.path(cells.holders[0], cells.holders[1][index])
        sources, steps = self.edges(), []
        visit = int(cells.owners[index])
        if cells.record is not None:
            steps.append(_step(cells.record.kind, cells.name))
        elif cells.place is not self.inference.root:
            steps.append(f"[{index - int(np.searchsorted(cells.owners, visit))}]")
        while self.walked.visits[visit] >= 0:
            steps.append(sources[visit][1])
            visit = sources[visit][0]
        example = int(np.searchsorted(self.walked.starts, visit))
        return spell(example, steps[::-1])

    def edges(self) -> dict[int, tuple[int, str]]:
        """For each visit an earlier visit that holds it, and how."""
        found: dict[int, tuple[int, str]] = {}
        roots = self.walked.roots
        if roots.targets is not None:
            found.update({t: (o, "") for t, o in zip(roots.targets.tolist(), self.walked.starts.tolist(), strict=True)})
        for table in self.walked.tables:
            owners = np.flatnonzero(self.walked.visits == table.index)
            if table.kind is None:
                owners = np.repeat(owners, self.list_lengths)
            for k, name in enumerate(table.names):
                targets = table.fields[k].targets
                if targets is None:
                    continue
                for i in np.flatnonzero(targets > owners).tolist():
                    owner = int(owners[i])
                    if table.kind is None:
                        step = f"[{i - int(self.list_offsets[self.list_number[owner]])}]"
                    else:
                        step = _step(table.kind, name)
                    found.setdefault(int(targets[i]), (owner, step))
        return found


def _constants(table: ObjectTable) -> tuple[str, frozenset[Any]] | None:
    """The first field of some tuples or dicts that holds strings or members of an enum, and which of them it holds; or
    the small integers that tuples begin with."""
    if table.kind == "tuple" and table.signature[:1] == ("number",):
        numbers = set(table.fields[0].values)
        return ("0", frozenset(numbers)) if all(type(x) is int and 0 <= x < MOST_CONSTANTS for x in numbers) else None
    first = next((k for k, sort in enumerate(table.signature) if sort is not None and is_words(sort)), None)
    return None if first is None else (table.names[first], frozenset(table.fields[first].values))


def _holds_leaves(cells: _Cells) -> bool:
    return cells.made is not None and not (isinstance(cells.made, LeafColumn) and cells.made.type == UNKNOWN)


def _step(kind: RecordKind, name: str) -> str:
    if kind == "tuple":
        return f"[{name}]"
    if kind == "table":
        return f".{name}()"
    return f"[{name!r}]" if kind == "dict" else f".{name}"


def _mixed_values(cells: _Cells, a: int, b: int) -> Mixed:
    return Mixed(a, b, f"{describe_value(cells.values[a])} and {describe_value(cells.values[b])}")
