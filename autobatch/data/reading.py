"""Examples read into the columns of a schema by machine code: what lies where, and what Python makes of it.

A *visit* is an object that is met for the first time in its example (`walk.py`); its *kind* says how it is read. The
machine writes a log of what each visit holds, 8 bytes and a code a value: of a number its bits, of an object its visit,
of any other leaf where it is. If the schema has a place for each, it counts rows, and then writes the columns. What it
does not know, a class or the form of a tuple, it asks for, and begins anew; what it cannot read (attributes that code
computes, integers of more than 64 bits), it leaves to the walk in Python. So does what goes wrong: that walk finds the
words. What the places of a schema are: `reading.py`.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from functools import cached_property
from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from autobatch.data.columns import (
    ROOT,
    ROOT_MISSING,
    UNKNOWN,
    VALUE,
    Column,
    Columns,
    Ints,
    Schema,
    columns_of,
    empty,
    host_dtype,
    offsets_of,
    unfilled,
)
from autobatch.data.infer import (
    Inference,
    InferenceConflict,
    InferredPlace,
    InferredRecord,
    SchemaLayout,
    lay_out,
    names_of_table,
    nested_places,
    sort_of_array,
)
from autobatch.data.leaves import (
    Category,
    LeafColumn,
    Mixed,
    RaggedLeaf,
    Vocabularies,
    as_ragged,
    category,
    join,
    leaf_column,
)
from autobatch.errors import BatchError
from autobatch.ir.core import BOOL as BOOL_TYPE
from autobatch.ir.core import FLOAT as FLOAT_TYPE
from autobatch.ir.core import INT as INT_TYPE
from autobatch.ir.core import Array

# ---- addresses
#
# Where arrays of NumPy lie, for machine code that is called for a few microseconds: `x.ctypes.data` takes one.


_DATA = object.__basicsize__
"""Where an array has the address of its data: behind what all objects begin with (PyArrayObject, ndarraytypes.h)."""


def _by_numpy(x: npt.NDArray[Any]) -> int:
    return int(x.ctypes.data)


def _by_layout(x: npt.NDArray[Any]) -> int:
    return ctypes.c_void_p.from_address(id(x) + _DATA).value or 0


def _is_known() -> bool:
    """Do arrays lie as the layout says?"""
    probes = np.zeros((3, 5))[1:], np.arange(4)[::2], np.empty(0)
    return all(_by_layout(x) == x.ctypes.data for x in probes)


address = _by_layout if _is_known() else _by_numpy
"""The address of the first element of an array."""


NONE, BOOL, INT, FLOAT, STRING, MEMBER, ARRAY, OTHER, OBJECT = range(9)
"""The code of a value: what the 8 bytes beside it are. Leaves from `STRING` on are objects that Python makes columns
of."""

CODED = (type(None), bool, int, float)
_HANDED = {Category.STRING: STRING, Category.MEMBER: MEMBER, Category.ARRAY: ARRAY, Category.NUMBER: OTHER}


class ObjectKind(IntEnum):
    """How an object is read; a type of leaves has its code in the place of a kind. `FIELDS`: attributes that all
    instances have; `PLAIN`: those that this one has; `SET`: what lists of its elements are read for."""

    LIST = OBJECT
    TUPLE = auto()
    ITEMS = auto()
    FIELDS = auto()
    DICT = auto()
    PLAIN = auto()
    SET = auto()
    REFUSED = auto()


FULL, FULL_LOG, UNKNOWN_TYPE, UNKNOWN_SHAPE, DECLINED, LACKING = range(1, 7)
"""Why the machine stops: more visits, or values, than there is room for; a type or shape that it does not know; an
object that is not for it; something for which the schema has no place."""


MANY_TUPLES = 1 << 20
"""Tuples in an example from which on it may be one, written out again and again."""


class ReaderState(IntEnum):
    """The words of the state of the machine. `TYPES`, `SHAPES`, `SEEN`: hash tables, and how many places they have less
    one; `TABLES`: two words for each (fields, their first name). `SLOTS`, `HOMES`, `LISTS`: the places of the schema;
    `ROOT`: the slot of the examples. `COUNTS`: how many rows each counter has had; `STARTS`: those before each example.
    `KEYS`: are strings data where they are keys? `MADE`: the list of the lists that it makes. `ABOUT`: the object, or
    the example, that it stops at. `OBJECTS`: where each visit lies."""

    TRUE = 0
    FLOAT_TYPE = auto()
    INT_TYPE = auto()
    STRING = auto()
    DICT_NAME = auto()
    TYPES = auto()
    TYPES_MASK = auto()
    LAST = auto()
    SHAPES = auto()
    SHAPES_MASK = auto()
    LAST_SHAPE = auto()
    WORDS = auto()
    NAMES = auto()
    TABLES = auto()
    SLOTS = auto()
    HOMES = auto()
    LISTS = auto()
    ROOT = auto()
    COUNTERS = auto()
    KEYS = auto()
    STACK_USED = auto()
    START = auto()
    VISITS_USED = auto()
    LOG_USED = auto()
    TUPLES = auto()
    ABOUT = auto()
    ADDRESSES = auto()
    EXAMPLES = auto()
    MADE = auto()
    COUNT = auto()
    ROOM = auto()
    LOG_ROOM = auto()
    SEEN_MASK = auto()
    COUNTS = auto()
    STARTS = auto()
    VISITS = auto()
    SIZES = auto()
    PLACES = auto()
    ROWS = auto()
    OBJECTS = auto()
    STACK = auto()
    SEEN = auto()
    PAYLOAD = auto()
    CODES = auto()


class ColumnSlot(IntEnum):
    """The words of a slot: the place of a field of a table, of the examples, or of what lists hold. `ALLOWED`: a bit
    for each code of its values; `STORE`: the counter of the store whose objects they are; `LIST`: where lists go;
    `HOMES`: the first of the homes that a store has for the `Sort`s of values, -1 where there are none. `COLUMN` and
    `MASK` are written, as `WRITTEN` says."""

    ALLOWED = 0
    STORE = auto()
    LIST = auto()
    HOMES = auto()
    WRITTEN = auto()
    COLUMN = auto()
    MASK = auto()


class Home(IntEnum):
    """The words of a class: the counter of its store, its position among the classes there, their column, and the slot
    of its first field."""

    COUNTER = 0
    TAG = auto()
    TAGS = auto()
    FIRST = auto()


class Sort(IntEnum):
    """What has another class in each store: lists beside what is none, and dicts and sets whose keys are data (these
    are the numbers of their tables); leaves beside other sorts, by their code."""

    LIST = 0
    DICT = auto()
    SET = auto()
    FROZENSET = auto()
    LEAF = auto()


class ListHome(IntEnum):
    """The words of a place of lists: the counters of its lists and of their elements, the slot of those, and the column
    of where they begin."""

    COUNTER = 0
    VALUES = auto()
    SLOT = auto()
    OFFSETS = auto()


class ColumnWrite(IntEnum):
    """How a value is written to its column."""

    NOT = 0
    BOOL = auto()
    INT = auto()
    FLOAT = auto()
    ROW = auto()
    OBJECT = auto()


@dataclass(frozen=True)
class ObjectReader:
    """The machine: its two functions of the address of a state, each of which returns a status."""

    read: Callable[[int], int]
    fill: Callable[[int], int]


@dataclass(frozen=True)
class ObjectShape:
    """What visits of one table have in common. `arrays`: the fields that hold arrays, whose part of the signature
    depends on their dtypes."""

    kind: Any
    cls: type | None
    names: tuple[str, ...]
    signature: tuple[str | None, ...] = ()
    order: tuple[str, ...] | None = None
    arrays: tuple[int, ...] = ()


DICT_NAME = "__dict__"
_SORTS: Mapping[type | None, Sort] = {list: Sort.LIST, dict: Sort.DICT, set: Sort.SET, frozenset: Sort.FROZENSET}
TABLES = (
    ObjectShape(None, list, ("items",)),
    *(ObjectShape("table", cls, names_of_table(cls)) for cls in (dict, set, frozenset)),
)
"""The first tables, those of `Sort`."""

MOST_KNOWN = 512
"""Types, and shapes of tuples and dicts, that are remembered."""


@dataclass(eq=False)
class TypeRegistry:
    """The types and shapes that the machine knows, as it reads them. It is never changed: who learns more makes another
    one."""

    types: dict[type, tuple[int, int]] = field(default_factory=dict)
    shapes: tuple[tuple[int, type, int, tuple[tuple[Any, type, int], ...]], ...] = ()
    tables: tuple[ObjectShape, ...] = TABLES

    def __post_init__(self) -> None:
        size = _power(4 * len(self.types) + 4)
        self.type_table = np.zeros((size, 3), np.int64)
        for cls, (kind, table) in self.types.items():
            _put(self.type_table, _mixed(id(cls)), (id(cls), kind, table))
        size = _power(4 * len(self.shapes) + 4)
        self.shape_table, words = np.zeros((size, 1), np.int64), [0]  # a shape at 0 is none
        for kind, cls, table, items in self.shapes:
            _put(self.shape_table, _hash_of(kind, cls, items), (len(words),))
            words += [len(items), table, id(cls), *(w for n, t, to in items for w in (id(n), id(t), to))]
        self.words = np.array(words, np.int64)
        names = [name for table in self.tables for name in table.names]
        self.names = np.array([id(name) for name in names], np.int64)
        first = np.cumsum([0, *(len(t.names) for t in self.tables)])
        rows = [(len(t.names), int(begin)) for t, begin in zip(self.tables, first, strict=False)]
        self.table_rows = np.array(rows, np.int64)
        self.state = np.zeros(len(ReaderState), np.int64)
        fixed = {
            ReaderState.TRUE: id(True),
            ReaderState.FLOAT_TYPE: id(float),
            ReaderState.INT_TYPE: id(int),
            ReaderState.STRING: id(str),
            ReaderState.DICT_NAME: id(DICT_NAME),
            ReaderState.TYPES: address(self.type_table),
            ReaderState.TYPES_MASK: len(self.type_table) - 1,
            ReaderState.LAST: address(self.type_table),
            ReaderState.SHAPES: address(self.shape_table),
            ReaderState.SHAPES_MASK: len(self.shape_table) - 1,
            ReaderState.WORDS: address(self.words),
            ReaderState.NAMES: address(self.names),
            ReaderState.TABLES: address(self.table_rows),
        }
        self.state[list(fixed)] = list(fixed.values())

    def with_type(self, cls: type, kind: int, table: ObjectShape | None = None) -> TypeRegistry:
        """The same, and one more type."""
        number, tables = (len(self.tables), (*self.tables, table)) if table is not None else (0, self.tables)
        return TypeRegistry({**self.types, cls: (kind, number)}, self.shapes, tables)

    def with_shape(self, cls: type, items: Sequence[tuple[Any, type, int]], table: ObjectShape) -> TypeRegistry:
        """The same, and one more shape of tuples, dicts or plain objects: for each part its name, type, and place."""
        shapes = (*self.shapes, (self.types[cls][0], cls, len(self.tables), tuple(items)))
        return TypeRegistry(self.types, shapes, (*self.tables, table))

    def __len__(self) -> int:
        return len(self.types) + len(self.shapes)


def leaf_code(cls: type) -> int | None:
    """The code of leaves of a class; None where its instances are objects."""
    if cls in CODED:
        return CODED.index(cls)
    return _HANDED.get(category(cls))


_READ = inspect.getattr_static(object, "__getattribute__")


def has_plain_attributes(cls: type, names: Sequence[str]) -> bool:
    """Are these attributes of instances (none: all) read without code of the user: from the instance, a slot or a
    constant?"""
    if inspect.getattr_static(cls, "__getattribute__") is not _READ or hasattr(cls, "__getattr__"):
        return False
    held = [vars(base) for base in cls.__mro__]
    if not names and (cls.__dictoffset__ == 0 or any("__slots__" in x for x in held)):
        return False
    if not all(inspect.isgetsetdescriptor(x[DICT_NAME]) for x in held if DICT_NAME in x):
        return False
    found = (inspect.getattr_static(cls, name, None) for name in names)
    return not any(hasattr(x, "__get__") and not inspect.ismemberdescriptor(x) for x in found)


@dataclass(eq=False)
class Places:
    """Where a schema has the values of the tables of `known`: rows of words. `counters`: how many there are."""

    known: TypeRegistry
    slots: Ints
    homes: Ints
    lists: Ints
    root: int
    counters: int

    def __post_init__(self) -> None:
        self.state = self.known.state.copy()
        words = [ReaderState.SLOTS, ReaderState.HOMES, ReaderState.LISTS]
        self.state[words] = [address(x) for x in (self.slots, self.homes, self.lists)]
        self.state[[ReaderState.ROOT, ReaderState.COUNTERS]] = self.root, self.counters


Learn = Callable[[TypeRegistry, Any, bool], TypeRegistry]
"""What is known, with the type of an object that is not; or, where that is true, with its shape."""


@dataclass(frozen=True)
class Lacking:
    """The schema has no place for something in an example."""

    example: int


PlacesOf = Callable[[TypeRegistry], Places]


def read(
    examples: list[Any], reader: ObjectReader, learn: Learn, places_of: PlacesOf, keys_are_data: bool
) -> Reading | Lacking | None:
    """Visit all objects; `places_of`: what the schema has for those that are known; with no place for the examples,
    objects get no rows, and nothing is filled. None where the machine cannot."""
    global _known
    cls, count = type(examples[0]), len(examples)
    room, log = (int(count * min(each, MOST)) + 64 for each in _room.get(cls, (4.0, 16.0)))
    known = _known if len(_known) < MOST_KNOWN else NOTHING_KNOWN
    learned = 0
    while learned <= MOST_LEARNED:
        run = Reading(examples, places_of(known), room, log)
        run.state[ReaderState.KEYS] = keys_are_data
        status = reader.read(run.address)
        if not status:
            if len(_room) > MOST_KNOWN:
                _room.clear()
            _room[cls] = 1.25 * run.word(ReaderState.VISITS_USED) / count, 1.25 * run.word(ReaderState.LOG_USED) / count
            return run
        run.release()
        if status == FULL:
            room *= 4
        elif status == FULL_LOG:
            log *= 4
        elif status in (UNKNOWN_TYPE, UNKNOWN_SHAPE):
            known = _known = learn(known, _owned(run.word(ReaderState.ABOUT)), status == UNKNOWN_SHAPE)
            learned += 1
        else:
            return Lacking(run.word(ReaderState.ABOUT)) if status == LACKING else None
    return None  # as many shapes as objects


def objects_of(
    examples: list[Any],
    kinds: Sequence[Collection[Hashable]],
    reader: ObjectReader,
    learn: Learn,
    keys_are_data: bool,
) -> list[list[list[Any]]] | None:
    """The objects of some kinds (`kind_of`) that each example has, for each collection of kinds, in the order of their
    rows. None where the machine cannot."""
    run = read(examples, reader, learn, _nowhere, keys_are_data)
    if not isinstance(run, Reading):
        return None
    tables, found = run.places.known.tables, list[list[list[Any]]]()
    visits = run.memory.visits[: run.word(ReaderState.VISITS_USED)]
    begins = np.flatnonzero(visits < 0)
    for of in kinds:
        are_of = np.array([kind_of(x) in of for x in tables] + [False])  # those of examples are -1
        at = np.flatnonzero(are_of[visits])
        objects, ends = _held_at(run.memory.objects[at]), [*np.searchsorted(at, begins).tolist(), len(at)]
        found.append([objects[a:b] for a, b in pairwise(ends)])
    run.release()
    return found


def kind_of(shape: ObjectShape) -> Hashable:
    """Of what kind the objects of a table are: dicts whose keys are no data are of that of their keys."""
    return tuple(sorted(shape.names)) if shape.kind == "dict" else shape.cls


def _nowhere(known: TypeRegistry) -> Places:
    nothing = np.zeros((0, 1), np.int64)
    return Places(known, nothing, nothing, nothing, _NOWHERE, 0)


def _held_at(addresses: Ints) -> list[Any]:
    """The objects at some addresses, which something holds."""
    held = np.empty(len(addresses), object)
    words = np.ctypeslib.as_array((ctypes.c_int64 * len(addresses)).from_address(address(held)))
    before = words.copy()
    words[:] = addresses
    try:
        return held.tolist()
    finally:
        words[:] = before  # which are released with the array


_OF_WALK = Struct(f"{len(ReaderState) - ReaderState.EXAMPLES}q")
"""The words from `EXAMPLES` on."""


SMALL = 1 << 17, 1 << 20
"""Visits, and values, for which each thread keeps the memory of a walk: some 20 MB."""


class _Buffers:
    """What a walk writes to: room for so many visits, and values."""

    def __init__(self, room: int, log: int) -> None:
        self.room, self.log = room, log
        by_visit = np.empty((6, room), np.int64)
        self.visits, self.objects = by_visit[0], by_visit[4]
        self.seen = np.zeros((_power(2 * room), 2), np.int64)
        self.arrays = [*by_visit, self.seen, np.empty(log, np.int64), np.empty(log, np.uint8)]
        self.addresses = [address(x) for x in self.arrays]


class _ThreadBuffers(threading.local):
    """The memory of small walks, one after another; not there while a walk has it, as a finalizer of the user's may
    begin another one in between."""

    memory: _Buffers | None = None

    def take(self, room: int, log: int) -> _Buffers:
        """Memory of at least this size, in which nothing was seen yet among so many visits."""
        if room > SMALL[0] or log > SMALL[1]:
            return _Buffers(room, log)
        found, self.memory = self.memory, None
        if found is None or room > found.room or log > found.log:
            return _Buffers(_power(room), _power(log))
        found.seen[: _power(2 * room)] = 0
        return found

    def give_back(self, memory: _Buffers) -> None:
        """Nothing reads it any more."""
        if memory.room <= 2 * SMALL[0] and memory.log <= 2 * SMALL[1]:
            self.memory = memory


class Reading:
    """One walk: the state, and the arrays that it points to; afterwards how many rows each counter has, `counts`, and
    had before each example, `starts`."""

    def __init__(self, examples: list[Any], places: Places, room: int, log: int) -> None:
        self.examples, self.places = examples, places
        self.made: list[list[Any]] = []
        self.memory = memory = _kept.take(room, log)
        count, counters = len(examples), places.counters
        counted = np.zeros(counters * (count + 2), np.int64)
        self.counts, self.starts = counted[:counters], counted[counters:].reshape(counters, count + 1)
        self.state = places.state.copy()
        self.address, at = address(self.state), address(counted)
        sizes = count, room, memory.log, _power(2 * room) - 1
        words = id(examples), id(self.made), *sizes, at, at + self.counts.nbytes, *memory.addresses
        _OF_WALK.pack_into(self.state.data, 8 * ReaderState.EXAMPLES, *words)

    def word(self, k: ReaderState) -> int:
        return int(self.state[k])

    def fill(self, reader: ObjectReader, addresses: Sequence[int]) -> None:
        """Write the columns, which lie at these addresses. Once: then the log is another walk's."""
        held = np.array(addresses, np.int64)
        self.counts.fill(0)
        self.state[ReaderState.ADDRESSES] = address(held)
        reader.fill(self.address)
        self.release()

    def release(self) -> None:
        """Nothing reads the log any more."""
        _kept.give_back(self.memory)


def _owned(address: int) -> Any:
    """An object that the machine holds for us."""
    found = ctypes.cast(address, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(found))
    return found


# ---- hash tables, as the machine looks them up

_MASK = (1 << 64) - 1
PRIME = 0x9E3779B97F4A7C15
"""An odd number whose bits are well mixed: 2^64 over the golden ratio (D. E. Knuth, "The Art of Computer Programming",
volume 3, section 6.4)."""


def _mixed(n: int) -> int:
    whole = n * PRIME & _MASK
    return whole ^ (whole >> 29)


def _hash_of(kind: int, cls: type, items: Sequence[tuple[Any, type, int]]) -> int:
    found = len(items) + id(cls) & _MASK
    for name, of, _ in items:
        found = found if kind == ObjectKind.TUPLE else _mixed(found + hash(name) & _MASK)
        found = found if kind == ObjectKind.PLAIN else _mixed(found + id(of) & _MASK)
    return found


def _put(table: Ints, start: int, row: Sequence[int]) -> None:
    """A row of a hash table, at the first place that is free."""
    mask = len(table) - 1
    k = start & mask
    while table[k, 0]:
        k = (k + 1) & mask
    table[k] = row


def _power(n: int) -> int:
    return 1 << max(int(n) - 1, 1).bit_length()


_OF_SORTS = {list: ObjectKind.LIST, dict: ObjectKind.DICT, set: ObjectKind.SET, frozenset: ObjectKind.SET}
NOTHING_KNOWN = TypeRegistry(
    {cls: (code, 0) for code, cls in enumerate(CODED)}
    | {cls: (int(kind), int(_SORTS[cls])) for cls, kind in _OF_SORTS.items()}
)
_known = NOTHING_KNOWN
MOST_LEARNED = 100
"""Types and shapes that one batch may be the first to have: for each the walk begins anew."""

MOST = 128
"""Visits, or values, for which there is room for each example when a walk begins."""

_room: dict[type, tuple[float, float]] = {}
"""How many visits and values an example has, by its type, and a quarter more: what the last batch had."""
_kept = _ThreadBuffers()


# ---- placing
#
# Examples whose schema is known, read into its columns by machine code.
#
# Where the values of each field of each class go, and which values a field may hold, a schema says once: a
# `SchemaLayout` of it, as inference makes one, gives each field a column. What was inferred from some examples holds
# for all of them if the others have nothing that would change it; the machine looks at each value for that
# (`reading.py`), and names the first example that has. Arrays, strings and members of enums it hands over as objects,
# for `leaves.py` to make columns of.


_NUMBERS = {BOOL: BOOL_TYPE, INT: INT_TYPE, FLOAT: FLOAT_TYPE}
_WRITTEN = {BOOL_TYPE: ColumnWrite.BOOL, INT_TYPE: ColumnWrite.INT, FLOAT_TYPE: ColumnWrite.FLOAT}
_NOWHERE, _NO_STORE = -1, -2


def read_like(
    examples: list[Any], schema: Schema, reader: ObjectReader, learn: Learn, inferred: bool, keys_are_data: bool = False
) -> Columns | Lacking | None:
    """The columns of examples that have nothing that the schema lacks. `inferred`: from some of them; then they have
    nothing that would change it either. `keys_are_data`: as `walk` takes it. None where the machine cannot
    tell."""
    held = _held_by(schema, inferred)
    if held is None:
        return None
    run = read(examples, reader, learn, held.places, keys_are_data)
    return held.columns(run, reader) if isinstance(run, Reading) else run


_known_contents: dict[tuple[int, bool], tuple[Schema, _SchemaContents | None]] = {}
"""By the identity of the schema."""
MOST_PLACED = 256


def _held_by(schema: Schema, inferred: bool) -> _SchemaContents | None:
    found = _known_contents.get((id(schema), inferred))
    if found is None:
        if len(_known_contents) >= MOST_PLACED:
            _known_contents.clear()
        found = _known_contents[id(schema), inferred] = schema, _held(schema, inferred)
    return found[1]


def _held(schema: Schema, inferred: bool) -> _SchemaContents | None:
    inference = Inference()
    try:
        inference.see_schema(schema)
        layout = lay_out(inference)
    except (BatchError, InferenceConflict):
        return None
    in_places = _in_places(inference, layout)
    if in_places is None or layout.schema != schema:
        return None
    return _SchemaContents(schema, inference, layout, in_places, inferred)


@dataclass(frozen=True)
class _Others:
    """Leaves that Python makes a column of."""

    column: Column
    place: InferredPlace


class _SchemaContents:
    """What a schema holds, and where."""

    def __init__(
        self,
        schema: Schema,
        inference: Inference,
        layout: SchemaLayout,
        in_places: Mapping[str, Mapping[int, InferredRecord]],
        inferred: bool,
    ) -> None:
        self.schema, self.inference, self.layout, self.in_places = schema, inference, layout, in_places
        self.strict = _in_several_places(inference) if inferred else frozenset[int]()
        lists = [s.name for s in schema.lists if not s.from_array]
        spaces = [s.name for s in schema.stores] + [n for name in lists for n in (name, f"{name}.#values")]
        self.counters = {name: k for k, name in enumerate(spaces)}
        self.written = [c for c in columns_of(schema) if c.space is None or c.space in self.counters]
        self.numbers = {c.name: k for k, c in enumerate(self.written)}
        self.numbers |= {f"{name}.#offsets": len(self.numbers) + k for k, name in enumerate(lists)}
        self.ends = {name: self.counters[name] for name in lists}
        found = [p for first in _places(inference) for p in nested_places(first) if p.kind == "list"]
        self.lists = list({id(p): p for p in found}.values())
        self.sorts: dict[int, set[str | None]] = {}
        self._places: Places | None = None

    # ---- what the machine is told

    def places(self, known: TypeRegistry) -> Places:
        """The places of the tables that are known."""
        found = self._places  # another thread may know other tables
        if found is None or found.known is not known:
            found = self._places = self._of_tables(known)
        return found

    def _of_tables(self, known: TypeRegistry) -> Places:
        slots, lists = list[list[int]](), list[list[int]]()
        bases = {store: len(known.tables) + k * _OF_STORE for k, store in enumerate(self.in_places)}

        def home(record: InferredRecord | None, shape: ObjectShape) -> list[int]:
            if record is None:
                return [_NOWHERE, 0, 0, _NOWHERE]
            store, position = self.layout.position(record)
            first = len(slots)
            for k, name in enumerate(shape.names):
                place = record.places[name].find()
                slots.append(self.slot(place, self.layout.field(record, name).column, bases))
                if k in shape.arrays:
                    self.sorts.setdefault(id(place), set()).add(record.signature[k])
            return [self.counters[store], position, self.numbers[f"{store}.#tag"], first]

        homes = [home(self.record(shape), shape) for shape in known.tables]
        for members in self.in_places.values():
            homes += [home(members.get(sort), _shape_of(sort)) for sort in range(_OF_STORE)]
        for place in self.lists:
            name, items = self.layout.list_name(place), place.items
            assert items is not None
            counters = self.counters[name], self.counters[f"{name}.#values"]
            lists.append([*counters, len(slots), self.numbers[f"{name}.#offsets"]])
            slots.append(self.slot(items, f"{name}.#values", bases))
        slots.append(self.slot(self.inference.root, ROOT, bases))
        rows = _rows(slots, len(ColumnSlot)), _rows(homes, len(Home)), _rows(lists, len(ListHome))
        return Places(known, *rows, len(slots) - 1, len(self.counters))

    def slot(self, place: InferredPlace, column: str, bases: Mapping[str, int]) -> list[int]:
        """The words of a slot; `bases`: the first of the homes of each store that has some."""
        place = place.find()
        mask = self.numbers.get(ROOT_MISSING if column == ROOT else f"{column}?", _NOWHERE)
        store, items, homes, written, codes = _NO_STORE, _NOWHERE, _NOWHERE, ColumnWrite.NOT, set[int]()
        if place.kind == "record":
            assert place.record is not None
            name = self.layout.position(place.record)[0]
            store, homes, written, codes = self.counters[name], bases.get(name, _NOWHERE), ColumnWrite.ROW, {OBJECT}
        elif place.kind == "list":
            items, written, codes = self.lists.index(place), ColumnWrite.ROW, {OBJECT}
        elif place.kind == "leaf" and place.leaf in _WRITTEN:
            written = _WRITTEN[place.leaf]
            codes = {c for c, t in _NUMBERS.items() if join(place.leaf, t) == place.leaf}
            if id(place) in self.strict:
                codes = {c for c in codes if _NUMBERS[c] == place.leaf}
        elif place.kind != "unknown":
            written, codes = ColumnWrite.OBJECT, {STRING, MEMBER, ARRAY, OTHER}
        codes |= {NONE} if place.none else set()
        return [sum(1 << c for c in codes), store, items, homes, written, self.numbers[column], mask]

    def record(self, shape: ObjectShape) -> InferredRecord | None:
        """The record of the objects of a table, where the schema has one that they do not change."""
        if shape.kind in (None, "table"):
            return None
        found = [r for r in self.inference.records if r.kind == shape.kind and r.cls is shape.cls]
        found = [r for r in found if r.places.keys() == set(shape.names) and _may_be(shape, r)]
        if len(found) != 1 or (shape.order is not None and found[0].keys not in ((), shape.order)):
            return None
        says = zip(shape.signature, found[0].signature, strict=True) if shape.cls is None else ()
        changes = any(b is None and (a is not None or k in shape.arrays) for k, (a, b) in enumerate(says))
        return None if changes else found[0]

    # ---- what the machine has read

    @cached_property
    def unwritten(self) -> list[Column]:
        """Columns of which some rows have no value: of fields that not all classes of a store have, and of None."""
        of = [(s, f) for s in self.schema.stores for f in s.fields]
        found = {f.column for s, f in of if len(f.classes) < len(s.classes)}
        found |= {f"{name}?" for name in found} | {c.name for c in self.written if c.type == UNKNOWN}
        return [c for c in self.written if c.name in found and c.name not in {x.column.name for x in self.others}]

    @cached_property
    def others(self) -> list[_Others]:
        """The columns of leaves that are no numbers of Python."""
        of = {ROOT: self.inference.root.find()}
        for record in self.inference.records:
            of |= {self.layout.field(record, name).column: p.find() for name, p in record.places.items()}
        of |= {f"{self.layout.list_name(p)}.#values": p.items.find() for p in self.lists if p.items is not None}
        found = [(c, of[c.name]) for c in self.written if c.name in of]
        return [_Others(c, p) for c, p in found if p.kind == "ragged" or (p.kind == "leaf" and p.leaf not in _WRITTEN)]

    @cached_property
    def memory(self) -> list[tuple[str, np.dtype[Any], int | None]]:
        """The columns that are written: the dtype of each, and the counter of its rows; None: one for each example."""
        objects = {x.column.name: np.dtype(object) for x in self.others}
        return [
            (c.name, objects.get(c.name) or unfilled(c, 0).dtype, None if c.space is None else self.counters[c.space])
            for c in self.written
        ]

    def columns(self, run: Reading, reader: ObjectReader) -> Columns | Lacking | None:
        """The columns. None: some leaves are of another type than the schema says."""
        counts, count = run.counts.tolist(), len(run.examples)
        starts: dict[str, Ints] = dict(zip(self.counters, run.starts, strict=True))
        arrays = {name: np.empty(count if k is None else counts[k], dtype) for name, dtype, k in self.memory}
        ends: dict[str, np.ndarray[Any, Any]] = {
            name: np.empty(counts[k] + 1, np.int32) for name, k in self.ends.items()
        }
        for c in self.unwritten:
            arrays[c.name] = unfilled(c, len(arrays[c.name]))
        run.fill(reader, [address(x) for x in (*arrays.values(), *ends.values())])
        for name, offsets in ends.items():
            offsets[-1] = starts[f"{name}.#values"][-1]
        vocabularies = Vocabularies()
        for x in self.others:
            values = arrays[x.column.name].tolist()
            kinds = set(map(type, values))
            numpy = any(issubclass(k, (np.ndarray, np.generic)) for k in kinds)
            try:
                made = leaf_column(values, kinds, vocabularies)
            except Mixed:
                return None
            if (numpy and not x.place.numpy) or not self.holds(x.place, made):
                return None
            if x.place.kind == "leaf":
                arrays[x.column.name] = _column(x.column, made, len(values))
                continue
            assert isinstance(x.place.leaf, Array)
            rows = as_ragged(made, x.place.leaf, len(values))
            there = rows.lengths >= 0
            name, before, offsets = self.layout.list_name(x.place), offsets_of(there), offsets_of(rows.lengths[there])
            arrays[x.column.name] = np.where(there, before[:-1], -1).astype(np.int32)
            arrays[f"{name}.#values"], ends[name] = rows.flat, offsets.astype(np.int32)
            begins = np.arange(count + 1) if x.column.space is None else starts[x.column.space]
            starts[name] = before[begins]
            starts[f"{name}.#values"] = offsets[starts[name]]
        arrays |= {f"{name}.#offsets": offsets for name, offsets in ends.items()}
        found = Columns(self.schema, count, arrays, starts, vocabularies.frozen())
        other = found.mistagged_row()
        return found if other is None else Lacking(int(np.searchsorted(starts[other[0]], other[1], side="right")) - 1)

    def holds(self, place: InferredPlace, made: LeafColumn | RaggedLeaf) -> bool:
        """Has the schema the leaves of a column where they are, and tuples and dicts their sorts?"""
        if isinstance(made, LeafColumn) and made.type == UNKNOWN:
            return True
        sorts = self.sorts.get(id(place))
        if isinstance(made, RaggedLeaf):
            return place.kind == "ragged" and made.elem == place.leaf and sorts in (None, {f"{made.elem.dtype}/array"})
        if sorts is not None and not (isinstance(made.type, Array) and sorts == {sort_of_array(made.type)}):
            return False
        if place.kind == "leaf":
            return join(place.leaf, made.type) == place.leaf
        if not (isinstance(made.type, Array) and isinstance(place.leaf, Array)):
            return False
        one = Array(made.type.dtype, made.type.shape[1:])
        return made.type.shape != () and one == place.leaf


_OF_VALUES = ObjectShape("value", None, (VALUE,))
_OF_STORE: int = Sort.LEAF + OBJECT
"""Homes for `Sort`s."""


def _shape_of(sort: int) -> ObjectShape:
    return TABLES[sort] if Sort.LIST < sort < Sort.LEAF else _OF_VALUES


def _in_places(inference: Inference, layout: SchemaLayout) -> dict[str, dict[int, InferredRecord]] | None:
    """The classes that stores have for `Sort`s; None where two are of one sort, or one of none."""
    found: dict[str, dict[int, InferredRecord]] = {}
    for record in inference.records:
        if record.kind in ("table", "value"):
            members = found.setdefault(layout.position(record)[0], {})
            code = MEMBER if record.cls is None else leaf_code(record.cls)
            sort = _SORTS.get(record.cls) if code is None else Sort.LEAF + code
            if sort is None or sort in members:
                return None
            members[sort] = record
    return found


def _may_be(shape: ObjectShape, record: InferredRecord) -> bool:
    """Are objects of this shape of a record, as far as the sorts of what they hold say?"""
    if shape.cls is not None:
        return True
    of_arrays = all((b := record.signature[k]) is None or "/" in b for k in shape.arrays)
    pairs = zip(shape.names, shape.signature, record.signature, strict=True)
    return of_arrays and all(a in (b, None) or b is None or _has_sorts(record.places[n]) for n, a, b in pairs)


def _has_sorts(place: InferredPlace) -> bool:
    """Are values of several sorts held at a place?"""
    record = place.find().record
    return record is not None and any(m.kind == "value" for m in record.find().members)


def _places(inference: Inference) -> Iterator[InferredPlace]:
    """The places of the examples and of all fields."""
    yield inference.root
    for record in inference.records:
        yield from record.places.values()


def _in_several_places(inference: Inference) -> frozenset[int]:
    """The places that stand for several. Those might not be one if all that they hold had been seen."""
    several = Counter(id(p) for first in _places(inference) for p in nested_places(first))
    return frozenset(k for k, n in several.items() if n > 1)


def _column(column: Column, made: LeafColumn | RaggedLeaf, rows: int) -> np.ndarray[Any, Any]:
    assert isinstance(made, LeafColumn) and column.type is not None
    if made.type == UNKNOWN:
        return empty(column.type, rows)
    return made.array.astype(host_dtype(column.type), copy=False)


def _rows(rows: list[list[int]], width: int) -> Ints:
    return np.array(rows, np.int64).reshape(len(rows), width)
