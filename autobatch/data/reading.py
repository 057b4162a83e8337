"""Examples read into the columns of a schema by machine code: what lies where, and what Python makes of it.

A *visit* is an object that is met for the first time in its example (`walk.py`); its *kind* says how it is read. The
machine writes a log of what each visit holds, 8 bytes and a code a value: of a number its bits, of an object its visit,
of any other leaf where it is. If the schema has a place for each, it counts rows, and then writes the columns. What it
does not know, a class or the form of a tuple, it asks for, and begins anew; what it cannot read (attributes that code
computes, integers of more than 64 bits), it leaves to the walk in Python. So does what goes wrong: that walk finds the
words. What the places of a schema are: `placing.py`.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from struct import Struct
from typing import Any

import numpy as np

from autobatch.data.addresses import address
from autobatch.data.columns import Ints
from autobatch.data.leaves import Category, category

NONE, BOOL, INT, FLOAT, OTHER, OBJECT = range(6)
"""The code of a value: what the 8 bytes beside it are."""

CODED = (type(None), bool, int, float)


class ObjectKind(IntEnum):
    """How an object is read; a type of leaves has its code in the place of a kind. `FIELDS`: attributes that all
    instances have; `PLAIN`: those that this one has."""

    LIST = OBJECT
    TUPLE = auto()
    ITEMS = auto()
    FIELDS = auto()
    DICT = auto()
    PLAIN = auto()
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
    `ABOUT`: the object, or the example, that it stops at."""

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
    STACK_USED = auto()
    START = auto()
    VISITS_USED = auto()
    LOG_USED = auto()
    TUPLES = auto()
    ABOUT = auto()
    ADDRESSES = auto()
    EXAMPLES = auto()
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
    STACK = auto()
    SEEN = auto()
    PAYLOAD = auto()
    CODES = auto()


class ColumnSlot(IntEnum):
    """The words of a slot: the place of a field of a table, of the examples, or of what lists hold. `ALLOWED`: a bit
    for each code of its values; `STORE`: the counter of the store whose objects they are; `LIST`: where lists go.
    `COLUMN` and `MASK` are written, as `WRITTEN` says."""

    ALLOWED = 0
    STORE = auto()
    LIST = auto()
    WRITTEN = auto()
    COLUMN = auto()
    MASK = auto()


class Home(IntEnum):
    """The words of a table: the counter of its store, its position among the classes there, and their column."""

    COUNTER = 0
    TAG = auto()
    TAGS = auto()


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
LISTS = ObjectShape(None, list, ("items",))
MOST_KNOWN = 512
"""Types, and shapes of tuples and dicts, that are remembered."""


@dataclass(eq=False)
class TypeRegistry:
    """The types and shapes that the machine knows, as it reads them. It is never changed: who learns more makes another
    one."""

    types: dict[type, tuple[int, int]] = field(default_factory=dict)
    shapes: tuple[tuple[int, type, int, tuple[tuple[Any, type, int], ...]], ...] = ()
    tables: tuple[ObjectShape, ...] = (LISTS,)

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
    return None if category(cls) in (Category.OBJECT, Category.REFUSED) else OTHER


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


def read(examples: list[Any], reader: ObjectReader, learn: Learn, places_of: PlacesOf) -> Reading | Lacking | None:
    """Visit all objects; `places_of`: what the schema has for those that are known. None where the machine cannot."""
    global _known
    cls, count = type(examples[0]), len(examples)
    room, log = (int(count * min(each, MOST)) + 64 for each in _room.get(cls, (4.0, 16.0)))
    known = _known if len(_known) < MOST_KNOWN else NOTHING_KNOWN
    learned = 0
    while learned <= MOST_LEARNED:
        run = Reading(examples, places_of(known), room, log)
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


_OF_WALK = Struct(f"{len(ReaderState) - ReaderState.EXAMPLES}q")
"""The words from `EXAMPLES` on."""


SMALL = 1 << 17, 1 << 20
"""Visits, and values, for which each thread keeps the memory of a walk: some 20 MB."""


class _Buffers:
    """What a walk writes to: room for so many visits, and values."""

    def __init__(self, room: int, log: int) -> None:
        self.room, self.log = room, log
        by_visit = np.empty((5, room), np.int64)
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
        self.memory = memory = _kept.take(room, log)
        count, counters = len(examples), places.counters
        counted = np.zeros(counters * (count + 2), np.int64)
        self.counts, self.starts = counted[:counters], counted[counters:].reshape(counters, count + 1)
        self.state = places.state.copy()
        self.address, at = address(self.state), address(counted)
        sizes = count, room, memory.log, _power(2 * room) - 1
        words = id(examples), *sizes, at, at + self.counts.nbytes, *memory.addresses
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


NOTHING_KNOWN = TypeRegistry({cls: (code, 0) for code, cls in enumerate(CODED)} | {list: (int(ObjectKind.LIST), 0)})
_known = NOTHING_KNOWN
MOST_LEARNED = 100
"""Types and shapes that one batch may be the first to have: for each the walk begins anew."""

MOST = 128
"""Visits, or values, for which there is room for each example when a walk begins."""

_room: dict[type, tuple[float, float]] = {}
"""How many visits and values an example has, by its type, and a quarter more: what the last batch had."""
_kept = _ThreadBuffers()
