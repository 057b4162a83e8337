"""The walk over examples by machine code: what lies where, and what Python makes of it.

A *visit* is an object that is met for the first time in its example (`walk.py`); its *kind* says how it is read. The
machine writes a log of what each visit holds, 8 bytes and a code a value: of a number its bits, of an object its visit,
of any other leaf where it is. Then it splits the log into a column for each field. What it does not know, a class or
the shape of a tuple, it asks for, and begins anew; what it cannot read (attributes that code computes, integers of
more than 64 bits), it leaves to the walk in Python. So does what goes wrong afterwards: that walk finds the words.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from autobatch.errors import BatchError
from autobatch.ir.types import BOOL as BOOL_TYPE
from autobatch.ir.types import FLOAT as FLOAT_TYPE
from autobatch.ir.types import INT as INT_TYPE
from autobatch.runtime.columns import host_dtype
from autobatch.runtime.leaves import Category, Leaf, Ragged, Vocabularies, category, leaf_column

Ints = npt.NDArray[np.int64]

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


FULL, FULL_LOG, UNKNOWN_TYPE, UNKNOWN_SHAPE, DECLINED = range(1, 6)
"""Why the machine stops: more visits, or values, than there is room for; a type or shape that it does not know; an
object that is not for it."""


MANY_TUPLES = 1 << 20
"""Tuples in an example from which on it may be one, written out again and again."""


class ReaderState(IntEnum):
    """The words of the state of the machine. `TYPES`, `SHAPES`, `SEEN`: hash tables, and how many places they have less
    one; `TABLES`: four words for each (fields, their first name; when it was met, how many visits it has)."""

    EXAMPLES = 0
    COUNT = auto()
    TYPE_AT = auto()
    TRUE = auto()
    STRING = auto()
    DICT_NAME = auto()
    TYPES = auto()
    TYPES_MASK = auto()
    LAST = auto()
    SHAPES = auto()
    SHAPES_MASK = auto()
    WORDS = auto()
    NAMES = auto()
    TABLES = auto()
    MET = auto()
    ROOM = auto()
    STACK = auto()
    STACK_USED = auto()
    SEEN = auto()
    SEEN_MASK = auto()
    START = auto()
    STARTS = auto()
    VISITS = auto()
    SIZES = auto()
    VISITS_USED = auto()
    PAYLOAD = auto()
    CODES = auto()
    LOG_ROOM = auto()
    LOG_USED = auto()
    TUPLES = auto()
    HELD = auto()
    ABOUT = auto()
    COLUMNS = auto()
    LENGTHS = auto()
    ELEMENTS = auto()


@dataclass(frozen=True)
class ObjectReader:
    """The machine: its two functions of a state, each of which returns a status."""

    read: Callable[[Ints], int]
    split: Callable[[Ints], int]


@dataclass(eq=False)
class ObjectColumn:
    """Values as a sequence of Python."""

    values: Sequence[Any]

    def __len__(self) -> int:
        return len(self.values)

    def kinds(self) -> set[type]:
        """The types of the values."""
        return set(map(type, self.values))

    def some_leaf(self, targets: Ints) -> int | None:
        """Where a leaf other than None is among values of which some are objects, the visits `targets`."""
        return next((i for i in np.flatnonzero(targets < 0).tolist() if self.values[i] is not None), None)

    def taken(self, places: Ints) -> ObjectColumn:
        """The values at some places."""
        return ObjectColumn([self.values[i] for i in places.tolist()])

    def leaf(self, vocabularies: Vocabularies) -> Leaf | Ragged:
        """The column that leaves are. Raises Mixed."""
        return leaf_column(self.values, self.kinds(), vocabularies)


_NO_OBJECTS: npt.NDArray[np.object_] = np.empty(0, object)


@dataclass(eq=False)
class TaggedColumn:
    """Values that the machine has read. `others`: those that are neither numbers nor objects, in order."""

    payload: Ints
    codes: npt.NDArray[np.uint8]
    others: npt.NDArray[np.object_] = field(default_factory=lambda: _NO_OBJECTS)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def values(self) -> Sequence[Any]:
        raise BatchError("the walk in Python has the values, and the words")

    @cached_property
    def _codes(self) -> frozenset[int]:
        if not len(self.codes):
            return frozenset()
        least, most = int(self.codes.min()), int(self.codes.max())
        return frozenset((least,)) if least == most else frozenset(np.flatnonzero(np.bincount(self.codes)).tolist())

    def kinds(self) -> set[type]:
        """The types of those that are no objects."""
        return {CODED[code] for code in self._codes if code < OTHER} | set(map(type, self.others))

    def targets(self) -> Ints | None:
        """The visits that values are; -1 for leaves. None: no value is one."""
        found = self._codes
        if OBJECT not in found:
            return None
        return self.payload if len(found) == 1 else np.where(self.codes == OBJECT, self.payload, -1)

    def some_leaf(self, targets: Ints) -> int | None:
        return None if self._codes <= {NONE, OBJECT} else int(np.flatnonzero(self.codes % OBJECT)[0])

    def taken(self, places: Ints) -> TaggedColumn:
        number = np.cumsum(self.codes == OTHER) - 1
        chosen = places[self.codes[places] == OTHER]
        return TaggedColumn(self.payload[places], self.codes[places], self.others[number[chosen]])

    def leaf(self, vocabularies: Vocabularies) -> Leaf | Ragged:
        numbers = self._codes - {NONE}
        if not numbers or max(numbers) > FLOAT:
            return ObjectColumn(self._listed()).leaf(vocabularies)
        type, array = _TOWER[max(numbers) - BOOL], cast(npt.NDArray[Any], self.payload)
        if FLOAT in numbers:
            floats = self.payload.view(np.float64)
            array = floats if len(numbers) == 1 else np.where(self.codes == FLOAT, floats, array)
        missing = self.codes == NONE if NONE in self._codes else None
        return Leaf(type, array.astype(host_dtype(type), copy=False), missing)

    def _listed(self) -> Sequence[Any]:
        found = np.full(len(self.codes), None)
        for code in self._codes - {NONE}:
            places = self.codes == code
            chosen = self.payload[places]
            if code == OTHER:
                found[places] = self.others
            else:
                found[places] = (chosen.view(np.float64) if code == FLOAT else chosen.astype(_DTYPES[code])).tolist()
        return list(found)


_TOWER = (BOOL_TYPE, INT_TYPE, FLOAT_TYPE)
_DTYPES = {BOOL: np.bool_, INT: np.int64}


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
        rows = [(len(t.names), int(begin), 0, 0) for t, begin in zip(self.tables, first, strict=False)]
        self.table_rows = np.array(rows, np.int64)
        self.state = np.zeros(len(ReaderState), np.int64)
        fixed = {
            ReaderState.TYPE_AT: object.__basicsize__ - ctypes.sizeof(ctypes.c_void_p),
            ReaderState.TRUE: id(True),
            ReaderState.STRING: id(str),
            ReaderState.DICT_NAME: id(DICT_NAME),
            ReaderState.TYPES: self.type_table.ctypes.data,
            ReaderState.TYPES_MASK: len(self.type_table) - 1,
            ReaderState.LAST: self.type_table.ctypes.data,
            ReaderState.SHAPES: self.shape_table.ctypes.data,
            ReaderState.SHAPES_MASK: len(self.shape_table) - 1,
            ReaderState.WORDS: self.words.ctypes.data,
            ReaderState.NAMES: self.names.ctypes.data,
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


@dataclass
class ReadObjects:
    """What the machine has read: of each visit its table, -1 for an example; where the visits of each example start;
    the tables that occur, in the order in which they were met, each with its columns; the examples themselves; the
    lengths of lists."""

    visits: Ints
    starts: Ints
    tables: list[tuple[ObjectShape, list[TaggedColumn]]]
    roots: TaggedColumn
    lengths: Ints


Learn = Callable[[TypeRegistry, Any, bool], TypeRegistry]
"""What is known, with the type of an object that is not; or, where that is true, with its shape."""


def read(examples: Sequence[Any], reader: ObjectReader, learn: Learn) -> ReadObjects | None:
    """Visit all objects. None where the machine cannot."""
    global _known
    held = examples if type(examples) is list else list(examples)
    room, log = (int(len(held) * min(each, MOST)) + 64 for each in _room.get(type(held[0]), (4.0, 16.0)))
    known = _known if len(_known) < MOST_KNOWN else NOTHING_KNOWN
    learned = 0
    while learned <= MOST_LEARNED:
        run = _Traversal(held, known, room, log)
        match reader.read(run.state):
            case 0:
                break
            case found if found == FULL:
                room *= 4
            case found if found == FULL_LOG:
                log *= 4
            case found if found in (UNKNOWN_TYPE, UNKNOWN_SHAPE):
                known = _known = learn(known, _owned(run.word(ReaderState.ABOUT)), found == UNKNOWN_SHAPE)
                learned += 1
            case _:
                return None
    else:
        return None  # as many shapes as objects
    if len(_room) > MOST_KNOWN:
        _room.clear()
    used = run.word(ReaderState.VISITS_USED), run.word(ReaderState.LOG_USED)
    _room[type(held[0])] = 1.25 * used[0] / len(held), 1.25 * used[1] / len(held)
    return run.split(reader)


_NUMBERS = [ReaderState.EXAMPLES, ReaderState.COUNT, ReaderState.SEEN_MASK, ReaderState.ROOM, ReaderState.LOG_ROOM]
SMALL = 1 << 17, 1 << 20
"""Visits, and values, for which each thread keeps the memory of a walk: some 20 MB."""


class _Buffers:
    """What a walk writes to: room for so many visits, and values."""

    def __init__(self, room: int, log: int) -> None:
        self.room, self.log = room, log
        self.starts, self.visits, self.sizes, self.stack = np.empty((4, room), np.int64)
        self.payload, self.codes = np.empty(log, np.int64), np.empty(log, np.uint8)
        self.seen = np.zeros((_power(2 * room), 2), np.int64)


class _ThreadBuffers(threading.local):
    """The memory of small walks, one after another; not there while a walk has it, as a finalizer of the user's may
    begin another one in between."""

    memory: _Buffers | None = None

    def take(self, room: int, log: int) -> _Buffers:
        """Memory of at least this size, in which nothing was seen yet."""
        if room > SMALL[0] or log > SMALL[1]:
            return _Buffers(room, log)
        found, self.memory = self.memory, None
        if found is None or room > found.room or log > found.log:
            return _Buffers(_power(room), _power(log))
        found.seen.fill(0)
        return found

    def give_back(self, memory: _Buffers) -> None:
        """Nothing reads it any more."""
        if memory.room <= 2 * SMALL[0] and memory.log <= 2 * SMALL[1]:
            self.memory = memory


class _Traversal:
    """One walk: the state, and the arrays that it points to."""

    def __init__(self, examples: list[Any], known: TypeRegistry, room: int, log: int) -> None:
        self.known, self.count, self.examples = known, len(examples), examples
        self.memory = memory = _kept.take(room, log)
        self.tables = known.table_rows.copy()
        arrays: dict[ReaderState, npt.NDArray[Any]] = {
            ReaderState.TABLES: self.tables,
            ReaderState.STACK: memory.stack,
            ReaderState.SEEN: memory.seen,
            ReaderState.STARTS: memory.starts,
            ReaderState.VISITS: memory.visits,
            ReaderState.SIZES: memory.sizes,
            ReaderState.PAYLOAD: memory.payload,
            ReaderState.CODES: memory.codes,
        }
        self.state = known.state.copy()
        self.state[list(arrays)] = [x.ctypes.data for x in arrays.values()]
        self.state[_NUMBERS] = id(examples), len(examples), len(memory.seen) - 1, memory.room, memory.log

    def word(self, k: ReaderState) -> int:
        return int(self.state[k])

    def split(self, reader: ObjectReader) -> ReadObjects:
        """The columns of each table."""
        memory, visits = self.memory, self.memory.visits[: self.word(ReaderState.VISITS_USED)]
        log = self.word(ReaderState.LOG_USED)
        rows = self.tables.tolist()
        used = sorted((t for t, row in enumerate(rows) if t and row[2]), key=lambda t: rows[t][2])
        widths = [rows[t][0] for t in used]
        elements = log - self.count - sum(rows[t][0] * rows[t][3] for t in used)
        sizes = [elements, *chain.from_iterable([rows[t][3]] * rows[t][0] for t in used)]
        columns = [(np.empty(n, np.int64), np.empty(n, np.uint8)) for n in sizes]
        addresses = np.array([x.ctypes.data for pair in columns for x in pair], np.int64)
        lengths = np.empty(rows[0][3], np.int64)
        self.tables[:, 2:] = 0
        first = list(accumulate([1, *widths]))[:-1]
        number = np.full(len(rows) + 1, -1, np.int64)  # an example, -1, is the last one
        number[[0, *used]] = range(len(used) + 1)
        self.tables[used, 2] = first
        self.state[ReaderState.COLUMNS], self.state[ReaderState.LENGTHS] = addresses.ctypes.data, lengths.ctypes.data
        reader.split(self.state)
        held = bool(self.word(ReaderState.HELD))
        made = [_column(*pair, held) for pair in columns]
        roots = _column(memory.payload[: self.count].copy(), memory.codes[: self.count].copy(), held)
        tables = [(LISTS, made[:1])]
        tables += [
            (self.known.tables[t], made[begin : begin + w]) for t, begin, w in zip(used, first, widths, strict=False)
        ]
        found = ReadObjects(number[visits], memory.starts[: self.count].copy(), tables, roots, lengths)
        _kept.give_back(memory)
        return found


def _column(payload: Ints, codes: npt.NDArray[np.uint8], held: bool) -> TaggedColumn:
    """A column; its leaves that are no numbers are ours from here on."""
    places = np.flatnonzero(codes == OTHER) if held else ()
    if not len(places):
        return TaggedColumn(payload, codes)
    others = np.empty(len(places), object)
    addresses = payload[places]
    ctypes.memmove(others.ctypes.data, addresses.ctypes.data, addresses.nbytes)
    return TaggedColumn(payload, codes, others)


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
