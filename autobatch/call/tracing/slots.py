"""Methods of symbols as machine code, where there is some for this machine: an operation that was met before costs no
call of Python (`slots_text.py` says what they do).

    x * 2.0     Symbol.__mul__, machine code   ->   a step, in a buffer of the run       what was met before
                                               ->   the method in Python                 all else, which is learnt then

Where llvmlite is missing, or this is not CPython on Linux and x86-64, the methods stay Python's.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import sys
import sysconfig
from array import array
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from autobatch.backends.llvm.link import LinkError
from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError, load, target_name
from autobatch.call.tracing.log import NUMBERS as NUMBERED
from autobatch.call.tracing.log import Kinds, Log
from autobatch.call.tracing.slots_text import (
    ABSENT,
    API,
    AT_ONCE,
    BASE,
    CAPACITY,
    FLOAT,
    INT,
    KEY,
    KEYS,
    KEYS_AT,
    MOST,
    NONE,
    NUMBER,
    NUMBERS,
    NUMBERS_AT,
    PENDING,
    SITES_AT,
    SLICE,
    STATE,
    SYMBOL,
    WORDS,
    WORDS_AT,
    SlotLayout,
    mixed,
    text,
)

logger = logging.getLogger("autobatch")

ROOM = 4096
"""Steps that a run notes before Python takes them."""
ENTRIES, MOST_KEYS = 1 << 16, 1 << 20
"""So many numbers, and so many operations at a place, are known to machine code."""
NO_ARGUMENT, ONE, FAST, NAMES = 4, 8, 0x80, 2
"""METH_NOARGS, METH_O, METH_FASTCALL and METH_KEYWORDS."""


class _SlotMethod(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class WordTable:
    """Words by words, in open addressing (Knuth 1973, 6.4), as machine code reads them: entries of `width` words, each
    a key and its value. What was the table before it grew is kept: a run of another thread may still read it."""

    def __init__(self, width: int, most: int) -> None:
        self.width, self.most = width, most
        self.mask, self.held = 63, dict[tuple[int, ...], tuple[int, ...]]()
        self._all = [array("q", bytes(8 * width * 64))]

    @property
    def address(self) -> int:
        return self._all[-1].buffer_info()[0]

    def put(self, key: tuple[int, ...], value: tuple[int, ...]) -> None:
        if key in self.held or len(self.held) >= self.most:
            return
        self.held[key] = value
        if 2 * len(self.held) > self.mask:
            self.mask = 4 * self.mask + 3
            rows = array("q", bytes(8 * self.width * (self.mask + 1)))
            for k, v in self.held.items():
                self._write(rows, k, v)
            self._all.append(rows)
        else:
            self._write(self._all[-1], key, value)

    def _write(self, rows: array[int], key: tuple[int, ...], value: tuple[int, ...]) -> None:
        at = mixed(key) & self.mask
        while rows[at * self.width]:
            at = (at + 1) & self.mask
        first = at * self.width
        rows[first + 1 : first + self.width] = array("q", (*key[1:], *value))
        rows[first] = key[0]  # last: an entry without it is none


class Met:
    """What the runs of a function have met, for machine code. `kinds` keeps the objects whose addresses are here."""

    def __init__(self) -> None:
        self.keys, self.numbers = WordTable(KEY, MOST_KEYS), WordTable(NUMBER, ENTRIES)

    def see(self, key: Any, site: int, result: Any) -> None:
        """Meet an operation; see `Recording.met` for its key."""
        name, code, instruction, left, *more = key
        if name[0] == ".":  # a method or property of arrays, which Python finds
            return
        size = 0
        if name == "slice":
            if any(x is not None and not ABSENT + 2 <= x < 1 << 63 for x in more):
                return
            rest = [ABSENT if x is None else x for x in more]
        elif name == "power":
            (exponent,) = more
            if not ABSENT + 2 <= exponent < 1 << 63:
                return
            rest = [exponent, 1, 0]
        elif name == "row":
            if more != [1]:
                return
            rest, size = [1, 0, 0], left.type.shape[0]
        else:
            rest = [*map(id, more), 0, 0, 0][:3]
        self.keys.put((number_of(name), code, instruction, id(left), *rest), (site, id(result), size))

    def see_number(self, value: Any, word: int) -> None:
        """Meet a number that Python knows, with its word."""
        if not -1 - NUMBERED <= word < -1:
            return
        if type(value) is float:
            self.numbers.put((1, struct.unpack("q", struct.pack("d", value))[0]), (word,))
        elif type(value) is int and -(1 << 63) <= value < 1 << 63:
            self.numbers.put((2, value), (word,))


@dataclass(frozen=True)
class _Notes:
    """What machine code knows of a run, and where it notes what it does."""

    state: array[int]
    sites: array[int]
    words: array[int]
    address: int


class Noted(Log):
    """A run whose symbols may note steps by machine code: they lie in `notes` until Python takes them."""

    __slots__ = ("state",)
    state: int
    """The address of what machine code knows of it."""

    def __init__(self, kinds: Kinds, most: int) -> None:
        super().__init__(kinds, most)
        self.seen: Met | None = None
        self._notes: _Notes | None = None
        code = machine()
        if code is not None:
            self.state = code.closed.address
            if kinds.seen is None:
                kinds.seen = Met()
            self.seen = kinds.seen
            self._open()

    def _open(self) -> None:
        code = machine()
        assert code is not None
        self._notes = notes = code.spare.pop() if code.spare else code.notes(ROOM)
        notes.state[BASE], notes.state[MOST] = len(self.sites), self.most
        notes.state[PENDING] = notes.state[WORDS] = 0
        self._point(notes)
        self.state = notes.address

    def _point(self, notes: _Notes) -> None:
        assert self.seen is not None
        state, keys, numbers = notes.state, self.seen.keys, self.seen.numbers
        state[KEYS_AT], state[KEYS] = keys.address, keys.mask
        state[NUMBERS_AT], state[NUMBERS] = numbers.address, numbers.mask

    def take(self) -> None:
        """Take what machine code has noted."""
        notes = self._notes
        if notes is not None:
            state = notes.state
            if state[PENDING]:
                self.sites.extend(notes.sites[: state[PENDING]])
                self.words.extend(notes.words[: state[WORDS]])
                state[BASE] = len(self.sites)
                state[PENDING] = state[WORDS] = 0

    def at(self, site: int, words: Any) -> int:
        self.take()
        made = super().at(site, words)
        if self._notes is not None:
            self._notes.state[BASE] = len(self.sites)
        return made

    def saw(self, key: Any, site: int, result: Any) -> None:
        """Let machine code know an operation by its key."""
        if self.seen is not None:
            self.seen.see(key, site, result)
            if self._notes is not None:
                self._point(self._notes)

    def saw_number(self, value: Any, word: int) -> int:
        """Let it know a number; returns its word."""
        if self.seen is not None:
            self.seen.see_number(value, word)
            if self._notes is not None:
                self._point(self._notes)
        return word

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Inside, Python notes everything."""
        self.take()
        notes, self._notes, code = self._notes, None, machine()
        if notes is None or code is None:
            yield
            return
        self.state = code.closed.address
        try:
            yield
        finally:
            self._notes, self.state = notes, notes.address
            notes.state[BASE] = len(self.sites)

    def close(self) -> None:
        """From now on, Python notes everything."""
        self.take()
        notes, self._notes = self._notes, None
        if notes is not None:
            code = machine()
            assert code is not None
            self.state = code.closed.address
            code.spare.append(notes)


# ---- machine code


@dataclass(frozen=True)
class Methods:
    """The class of symbols, and its methods in Python: `binary` and `unary` by the names of operations, with the names
    that they have in the class; `getitem`: that for parts of arrays."""

    symbol: type
    run: type
    binary: dict[str, tuple[str, Callable[..., Any]]]
    unary: dict[str, tuple[str, Callable[..., Any]]]
    getitem: Callable[..., Any]


_numbers: dict[Hashable, int] = {}
_registered: list[Methods] = []


def register(methods: Methods) -> None:
    """Say which methods there are to be in machine code."""
    for name in (*methods.binary, *methods.unary, "row", "slice", "power"):
        number_of(name)
    _registered.append(methods)


def number_of(name: str) -> int:
    """The number of an operation."""
    return _numbers.setdefault(name, len(_numbers) + 1)


class SlotCode:
    """The machine code of the methods, in their places. `closed`: the state of runs that it is not to note."""

    def __init__(self, methods: Methods) -> None:
        self.methods = methods
        self.spare: list[_Notes] = []
        layout = _layout(methods)
        binary = {f"method_{n}": number_of(n) for n in methods.binary if n != "pow"}
        unary = {f"method_{n}": number_of(n) for n in methods.unary}
        source = text(layout, binary, unary, {n: number_of(n) for n in ("row", "slice", "pow", "power")})
        outside = {n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0 for n in API}
        names = (*binary, *unary, "method_pow", "getitem", "called")
        self.code = load(target_name("symbols", source), source, names, outside).functions
        python = {**methods.binary, **methods.unary, "row": ("__getitem__", methods.getitem)}
        self._python = {number_of(n): f for n, (_, f) in python.items()}
        self.closed = self.notes(0)
        self._empty = array("q", bytes(8 * KEY))
        self.closed.state[KEYS_AT] = self.closed.state[NUMBERS_AT] = self._empty.buffer_info()[0]
        self._kept: list[Any] = []
        for name, (place, _) in methods.binary.items():
            self._place(place, f"method_{name}", ONE)
        for name, (place, _) in methods.unary.items():
            self._place(place, f"method_{name}", NO_ARGUMENT)
        self._place("__getitem__", "getitem", ONE)

    def notes(self, room: int) -> _Notes:
        """Room for the steps of a run."""
        state = array("q", bytes(8 * (STATE + 1 + max(self._python))))
        sites, words = array("q", bytes(8 * room)), array("q", bytes(8 * AT_ONCE * (room + 1)))
        state[CAPACITY], state[SITES_AT], state[WORDS_AT] = room, sites.buffer_info()[0], words.buffer_info()[0]
        classes = {SYMBOL: self.methods.symbol, FLOAT: float, INT: int, SLICE: slice, NONE: None}
        for at, of in classes.items():
            state[at] = id(of)
        for number, function in self._python.items():
            state[STATE + number] = id(function)
        return _Notes(state, sites, words, state.buffer_info()[0])

    def _place(self, place: str, function: str, flags: int) -> None:
        """Put a function in the place of a method."""
        name = place.encode()
        definition = _SlotMethod(name, self.code[function], flags, None)
        self._kept += [name, definition]
        make = ctypes.pythonapi.PyDescr_NewMethod
        make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.POINTER(_SlotMethod))
        setattr(self.methods.symbol, place, make(self.methods.symbol, definition))

    def called(self, name: str, function: Callable[..., Any]) -> Any:
        """A function of JAX."""
        label = str(getattr(function, "__name__", name)).encode()
        definition = _SlotMethod(label, self.code["called"], FAST | NAMES, None)
        self._kept += [label, definition]
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = (
            ctypes.py_object,
            (ctypes.POINTER(_SlotMethod), ctypes.py_object, ctypes.py_object),
        )
        return make(definition, (function, self.methods.symbol, number_of(name)), "jax")


@cache
def machine() -> SlotCode | None:
    """The machine code; None where there is none."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        return SlotCode(_registered[0])
    except (UnavailableError, RefusedError, LinkError, AttributeError) as error:
        logger.info("symbols have no machine code: %s", error)
        return None


def function_of(name: str, function: Callable[..., Any]) -> Any:
    """A function of JAX that notes, by machine code where there is some."""
    code = machine()
    return function if code is None else code.called(name, function)


# ---- where things lie


def _layout(methods: Methods) -> SlotLayout:
    run: Any = object.__new__(methods.run)
    run.state, key, word = 1 << 70, object(), 1 << 71
    symbol: Any = object.__new__(methods.symbol)
    symbol._run, symbol._key, symbol._word = run, key, word
    parts = object(), object(), object()
    cut = slice(*parts)
    return SlotLayout(
        _place_of(symbol, methods.symbol), _place_of(symbol, key), _place_of(symbol, run), _place_of(symbol, word),
        _place_of(run, run.state), *(_place_of(cut, x) for x in parts),
    )  # fmt: skip


def _place_of(held: Any, x: Any) -> int:
    """Where in an object another one is, which is there once."""
    size = type(held).__basicsize__ // 8
    words = (ctypes.c_uint64 * size).from_address(id(held))
    found = [8 * k for k, word in enumerate(words) if word == id(x)]
    if len(found) != 1:
        raise UnavailableError(f"it is not known where a {type(held).__name__} has what it holds")
    return found[0]
