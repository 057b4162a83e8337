"""User objects -> columns.

    examples --walk--> tables of values by class, references as visit numbers
             --infer-> types of all places, joined with those of `like`          (`_Packer.see_all`)
             --layout-> the schema
             ---------> rows for visits, one array a field                       (`_Packer.columns`)
Cost: one Python step an object, then a handful of passes in C over the values of each field.
"""

from __future__ import annotations

import collections
import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from autobatch.data.columns import (
    ROOT,
    ROOT_MISSING,
    Columns,
    Ints,
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
    MOST_CONSTANTS,
    OF_LISTS,
    OF_RECORDS,
    Inference,
    InferenceConflict,
    InferredPlace,
    InferredRecord,
    RecordKind,
    SchemaLayout,
    Signature,
    is_words,
    lay_out,
    names_of_table,
    sort_of_array,
    sort_of_leaf,
)
from autobatch.data.leaves import (
    INTEGER_LISTS,
    Category,
    LeafColumn,
    Mixed,
    RaggedLeaf,
    Vocabularies,
    array_type,
    as_ragged,
    category,
    cure,
    describe_library_object,
    describe_value,
    is_graph_class,
    is_library_object,
    leaf_column,
    vocabulary_of,
)
from autobatch.data.ragged import ShapeDifference, ShapesDiffer, differing
from autobatch.data.reading import (
    Lacking,
    ObjectKind,
    ObjectReader,
    ObjectShape,
    TypeRegistry,
    has_plain_attributes,
    leaf_code,
    read_like,
)
from autobatch.data.schema import UNKNOWN, VALUE, Schema
from autobatch.errors import BatchError
from autobatch.ir.core import INT, Array, List, Type

# ---- walk
#
# The one walk over user objects: which objects there are, in pre-order, and what each of them holds.
#
# Iterative, so depth costs heap, not stack. Every object met for the first time in its example is a *visit* with the
# next number of a global count; its field values go to the table of its class. References become visit numbers by `id`
# while the objects are alive. An object in two examples is two visits.
#
# Machine code does the same in a tenth of the time (`reading.py`); this is for what that cannot read, and for errors.


EXAMPLE = -1
"""The entry of `Walk.visits` that stands for an example itself; the visits that follow are its objects."""

_MANY_TUPLES = 1 << 20
_Values = Sequence[Any]


@dataclass(eq=False)
class FieldValues:
    """The values of one field; `targets` are the visits that they are, -1 for leaves (None: all leaves)."""

    values: _Values
    targets: Ints | None


@dataclass(eq=False)
class ObjectTable:
    """All objects of one form. Lists have the one field `items`, flat, and `lengths`. `pending`: those of the example
    that is walked; `found`: of each field the values and their visits so far."""

    index: int
    kind: RecordKind | None
    cls: type | None
    names: tuple[str, ...]
    extract: Callable[[Any], _Values]
    signature: Signature = ()
    orders: set[tuple[str, ...]] = field(default_factory=set)
    """The orders in which dicts have their keys."""
    pending: list[_Values] = field(default_factory=list)
    found: list[tuple[list[Any], list[int]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    fields: list[FieldValues] = field(default_factory=list)

    def resolve(self, seen: dict[int, int]) -> None:
        """The objects of an example, whose visits are known now, are found."""
        if not self.pending:
            return
        width, flat = len(self.names), list(chain.from_iterable(self.pending))
        if self.kind is None:
            self.lengths.extend(map(len, self.pending))
        self.pending.clear()
        for k, (values, targets) in enumerate(self.found):
            column = flat[k::width]  # `zip` would make an iterator for each row
            values += column
            targets.extend(map(seen.get, map(id, column), repeat(-1)))

    def close(self) -> None:
        """Nothing more is found."""
        self.fields = [FieldValues(values, _targets(targets)) for values, targets in self.found]


def _targets(visits: list[int]) -> Ints | None:
    found = np.array(visits, np.int64)
    return found if (found >= 0).any() else None


@dataclass(eq=False)
class ObjectWalk:
    """`visits[n]` is the table of visit n, or `EXAMPLE`; `starts[i]` is the visit of example i itself."""

    tables: list[ObjectTable]
    visits: Ints
    starts: Ints
    roots: FieldValues


def walk(examples: Sequence[Any], keys_are_data: bool = False) -> ObjectWalk:
    """Visit every object of the examples. Raises BatchError for what cannot be packed. `keys_are_data`: also those of
    dicts of strings."""
    with _collector_paused():
        return Walker(examples, keys_are_data).whole()


def learned(known: TypeRegistry, x: Any, is_shape: bool) -> TypeRegistry:
    """What the machine knows, with the type of an object, or its shape."""
    cls = type(x)
    if is_shape:
        return _with_shape(known, x)
    if (code := leaf_code(cls)) is not None:
        return known.with_type(cls, code)
    if cls in _OF_SHAPES:
        return known.with_type(cls, _OF_SHAPES[cls])
    if category(cls) is Category.REFUSED or issubclass(cls, dict) or is_library_object(x):
        return known.with_type(cls, ObjectKind.REFUSED)
    names = _fixed_names(cls)
    if names is not None and issubclass(cls, tuple):
        return known.with_type(cls, ObjectKind.ITEMS, ObjectShape("namedtuple", cls, names))
    if not has_plain_attributes(cls, names or ()):
        return known.with_type(cls, ObjectKind.REFUSED)
    if names is None:
        return known.with_type(cls, ObjectKind.PLAIN)
    return known.with_type(cls, ObjectKind.FIELDS, ObjectShape("object", cls, names))


_OF_SHAPES: dict[type, ObjectKind] = {tuple: ObjectKind.TUPLE, collections.defaultdict: ObjectKind.DICT}


def _with_shape(known: TypeRegistry, x: Any) -> TypeRegistry:
    cls = type(x)
    if cls is tuple:
        held = dict(enumerate(x))
    else:
        held = x if isinstance(x, dict) else vars(x)
    order = sorted(held)
    names, values = tuple(map(str, order)), [held[n] for n in order]
    if cls not in (tuple, dict, collections.defaultdict):
        shape = ObjectShape("object", cls, names)
    else:
        arrays = tuple(k for k, v in enumerate(values) if category(type(v)) is Category.ARRAY)
        unsaid = {k for k, v in enumerate(values) if k in arrays or type(v) in (dict, set, frozenset)}
        signature = tuple(None if k in unsaid else Walker(()).sort(v) for k, v in enumerate(values))
        kind: RecordKind = "tuple" if cls is tuple else "dict"
        shape = ObjectShape(kind, None, names, signature, None if cls is tuple else tuple(x), arrays)
    place = {n: k for k, n in enumerate(order)}
    return known.with_shape(cls, [(n, type(v), place[n]) for n, v in held.items()], shape)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Nothing becomes garbage while walking; the collector would look at all that has been kept, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Walker:
    def __init__(self, examples: Sequence[Any], keys_are_data: bool = False) -> None:
        self.examples, self.keys_are_data = examples, keys_are_data
        self.tables: list[ObjectTable] = []
        self.fixed: dict[type, ObjectTable] = {}
        self.forms: dict[Any, ObjectTable] = {}
        self.atoms: set[type] = {type(None), bool, int, float, complex, str}
        self.visits: list[int] = []
        self.lists = self.table(None, list, ("items",), list.copy)
        self.fixed[list] = self.lists
        self.example, self.copied, self.originals = 0, 0, set[int]()
        self.categorised, self.arrays = set[type](), set[type]()

    def whole(self) -> ObjectWalk:
        starts: list[int] = []
        roots: list[int] = []
        for i, example in enumerate(self.examples):
            self.example = i
            starts.append(len(self.visits))
            self.visits.append(EXAMPLE)
            seen = {} if type(example) in self.atoms else self.one(example)
            for table in self.tables:
                table.resolve(seen)
            roots.append(seen.get(id(example), -1))
        for table in self.tables:
            table.close()
        visits, begins = np.array(self.visits, np.int64), np.array(starts, np.int64)
        return ObjectWalk(self.tables, visits, begins, FieldValues(self.examples, _targets(roots)))

    def one(self, example: Any, met: list[Any] | None = None) -> dict[int, int]:
        """Visit the objects of one example: its visit numbers by id. `met`: they are put there."""
        self.copied, self.originals = 0, set()
        fixed, atoms, visit, count = self.fixed, self.atoms, self.visits.append, len(self.visits)
        seen: dict[int, int] = {}
        stack = [example]
        pop = stack.pop
        while stack:
            x = pop()
            key = id(x)
            if key in seen:
                continue
            table = fixed.get(type(x))
            if table is None:
                chosen = self.choose(x)
                if chosen is None:
                    continue
                table, values = chosen
            else:
                try:
                    values = table.extract(x)
                except AttributeError as error:
                    raise self.unset(x, error) from None
            seen[key] = count
            count += 1
            visit(table.index)
            if met is not None:
                met.append(x)
            children = [v for v in values if type(v) not in atoms]
            if children:
                if tuple in map(type, children):
                    values = self.copies(values)
                    children = [v for v in values if type(v) not in atoms]
                children.reverse()
                stack += children
            table.pending.append(values)
        return seen

    def table(
        self,
        kind: RecordKind | None,
        cls: type | None,
        names: tuple[str, ...],
        extract: Callable[[Any], _Values],
        signature: Signature = (),
    ) -> ObjectTable:
        made = ObjectTable(len(self.tables), kind, cls, names, extract, signature, found=[([], []) for _ in names])
        self.tables.append(made)
        return made

    def choose(self, x: Any) -> tuple[ObjectTable, _Values] | None:
        """The table of an object whose class was not met before or has several forms, and its values; None for a
        leaf."""
        cls = type(x)
        kind = category(cls)
        if kind is Category.REFUSED:
            raise self.refused(x, cure(cls))
        if kind is not Category.OBJECT:
            self.atoms.add(cls)
            return None
        if cls is tuple:
            return self.tuple_table(x), x
        if issubclass(cls, dict):
            return self.dict_table(x)
        if cls in (set, frozenset):
            return self.of_keys(cls), (list(x),)
        made = self.with_fixed_fields(cls)
        if made is None:
            return self.plain_table(x)
        try:
            return made, made.extract(x)
        except AttributeError as error:
            raise self.unset(x, error) from None

    def with_fixed_fields(self, cls: type) -> ObjectTable | None:
        """The new table of a class whose instances all have the same fields; None where that is not known."""
        names = _fixed_names(cls)
        if names is None or cls is tuple:
            return None
        kind: RecordKind = "namedtuple" if issubclass(cls, tuple) else "object"
        made = self.fixed[cls] = self.table(kind, cls, names, _extractor(cls, names))
        return made

    def tuple_table(self, x: tuple[Any, ...]) -> ObjectTable:
        form = (tuple, *self.form(x))
        if (known := self.forms.get(form)) is None:
            names = tuple(map(str, range(len(x))))
            known = self.forms[form] = self.table("tuple", None, names, tuple, self.signature(x))
        return known

    def copies(self, values: _Values) -> _Values:
        """The values with a new tuple for each tuple: a tuple is a value, and has a row wherever it appears."""
        held = [v for v in values if type(v) is tuple]
        self.copied += len(held)
        self.originals.update(map(id, held))
        if self.copied > _MANY_TUPLES and len(self.originals) * 16 < self.copied:
            raise BatchError(
                f"examples[{self.example}] writes out {self.copied:,} tuples, but holds {len(self.originals):,}: "
                "a tuple is a value, packed once for each appearance; use a dataclass or a NamedTuple for shared nodes"
            )
        return [(*v,) if type(v) is tuple else v for v in values]

    def dict_table(self, x: dict[Any, Any]) -> tuple[ObjectTable, _Values]:
        """A dict of constant strings has a field for each; any other one its keys and its values, in order."""
        if self.is_table(x):
            if isinstance(x, collections.defaultdict) and x.default_factory is not None:
                raise self.refused(x, "what it makes of missing keys is code; use dict(x)")
            return self.of_keys(dict), (list(x), list(x.values()))
        names = tuple(sorted(x))
        values = [x[k] for k in names]
        form = (dict, names, *self.form(values))
        if (known := self.forms.get(form)) is None:
            known = self.forms[form] = self.table("dict", None, names, list, self.signature(values))
        known.orders.add(tuple(x))
        return known, values

    def of_keys(self, cls: type) -> ObjectTable:
        """The table of the dicts or sets of one type whose keys are data."""
        if (known := self.forms.get(cls)) is None:
            known = self.forms[cls] = self.table("table", cls, names_of_table(cls), tuple)
        return known

    def is_table(self, x: Any) -> bool:
        """Is it a dict or set whose keys are data? An empty dict is one."""
        if not isinstance(x, dict):
            return type(x) in (set, frozenset)
        if not all(type(k) is str for k in x):
            return True
        return not x or self.keys_are_data

    def plain_table(self, x: Any) -> tuple[ObjectTable, _Values]:
        """An instance of a class whose attributes may differ by instance."""
        held = describe_library_object(x) if is_library_object(x) else attributes_of(x)
        names = tuple(sorted(held))
        if not all(type(n) is str for n in names):
            raise self.refused(x, "its attributes are not named by strings")
        form = (type(x), names)
        if (known := self.forms.get(form)) is None:
            known = self.forms[form] = self.table("object", type(x), names, list)
        return known, [held[n] for n in names]

    def form(self, values: _Values) -> tuple[Any, ...]:
        """A cheap key of the sorts of some elements: equal keys have equal signatures."""
        kinds = tuple(map(type, values))
        if not self.categorised.issuperset(kinds):
            self.categorised.update(kinds)
            self.arrays.update(k for k in kinds if category(k) is Category.ARRAY)
        if not self.arrays.isdisjoint(kinds):
            return (*kinds, *[(v.dtype, v.ndim > 0) for v in values if type(v) in self.arrays])
        return kinds

    def signature(self, values: _Values) -> Signature:
        """The sort of each element, as `infer.sort_of_type` gives it for its type."""
        return tuple(map(self.sort, values))

    def sort(self, value: Any) -> str | None:
        match category(type(value)):
            case Category.NONE:
                return None
            case Category.NUMBER:
                return "number"
            case Category.STRING:
                return "str"
            case Category.MEMBER:
                return vocabulary_of(type(value))
            case Category.ARRAY:
                try:
                    found = array_type(value)
                except TypeError as error:
                    raise self.refused(value, str(error)) from None
                return sort_of_array(found)
            case Category.OBJECT if self.is_table(value):
                return "table"
            case Category.OBJECT | Category.REFUSED:
                return "list" if isinstance(value, list) else "record"

    def unset(self, x: Any, error: AttributeError) -> BatchError:
        return self.refused(x, f"{error}; every field of a dataclass needs a value")

    def refused(self, x: Any, why: str) -> BatchError:
        return BatchError(
            f"{find_path(self.examples[self.example], x, self.example)}: a value of class "
            f"{type(x).__module__}.{type(x).__qualname__} cannot be packed: {why}"
        )


def _fixed_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a class whose instances all have the same; None where that is not known."""
    if dataclasses.is_dataclass(cls):
        return tuple(f.name for f in dataclasses.fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return tuple(a.name for a in cls.__attrs_attrs__)
    return tuple(cls._fields) if issubclass(cls, tuple) and hasattr(cls, "_fields") else None


def _extractor(cls: type, names: tuple[str, ...]) -> Callable[[Any], _Values]:
    """A function from an instance to the values of its fields."""
    if issubclass(cls, tuple) or not names:
        return tuple if names else lambda x: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda x: (get(x),)


def attributes_of(x: Any) -> dict[str, Any]:
    """The instance attributes of an object, in `__dict__` and in slots; the slots that are not set are left out."""
    held = dict(getattr(x, "__dict__", {}))
    for base in type(x).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            if name not in ("__dict__", "__weakref__") and hasattr(x, mangled):
                held.setdefault(mangled, getattr(x, mangled))
    return held


def find_path(example: Any, wanted: Any, index: int) -> str:
    """`examples[3].left.words[2]`: where in an example an object is, for error messages."""
    seen = {id(example)}
    stack: list[tuple[Any, Any]] = [(example, None)]
    while stack:
        x, path = stack.pop()
        if x is wanted:
            steps = []
            while path is not None:
                step, path = path
                steps.append(step)
            return spell(index, steps[::-1])
        for step, value in reversed(list(_children(x))):
            if value is wanted or id(value) not in seen:
                seen.add(id(value))
                stack.append((value, (step, path)))
    return f"examples[{index}]"


def _children(x: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(x, dict):
        return ((f"[{k!r}]", v) for k, v in x.items())
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return ((f"[{i}]", v) for i, v in enumerate(x))
    if category(type(x)) is not Category.OBJECT:
        return iter(())
    names = _fixed_names(type(x))
    held = attributes_of(x) if names is None else {n: getattr(x, n, None) for n in names}
    return ((f".{n}", v) for n, v in held.items())


def spell(index: int, steps: Sequence[str]) -> str:
    """A path in words; the middle of a very long one is left out."""
    if len(steps) > 24:
        steps = [*steps[:8], f" ... {len(steps) - 16} more ... ", *steps[-8:]]
    return f"examples[{index}]" + "".join(steps)


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
        with suppress(BatchError, Mixed), _collector_paused():
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
