"""Methods of symbols as machine code, where there is some for this machine: an operation that was met before costs no
call of Python (`slots.py` says what they do).

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
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from autobatch.backends.llvm.machine_code import LinkError, RefusedError, UnavailableError, load, target_name
from autobatch.call.tracing.log import NUMBERS as NUMBERED
from autobatch.call.tracing.log import OUTS, Kinds, Log
from autobatch.call.tracing.slots_methods import METHODS

# ---- slots notes
#
# What methods of symbols in machine code have in common, in LLVM IR: operations and numbers are found, steps noted.


NOTES = """
define internal i64 @mix(i64 %h, i64 %x) alwaysinline {
  %a = xor i64 %h, %x
  %b = mul i64 %a, $FACTOR
  %c = lshr i64 %b, 29
  %d = xor i64 %b, %c
  ret i64 %d
}

define internal i64 @held(ptr %at, i64 %n) alwaysinline {
  %p = getelementptr i64, ptr %at, i64 %n
  %v = load i64, ptr %p
  ret i64 %v
}

define internal ptr @pointed(ptr %at, i64 %bytes) alwaysinline {
  %p = getelementptr i8, ptr %at, i64 %bytes
  %v = load ptr, ptr %p
  ret ptr %v
}

define internal void @keep(ptr %at, i64 %bytes, ptr %x) alwaysinline {
  %p = getelementptr i8, ptr %at, i64 %bytes
  store ptr %x, ptr %p
  ret void
}

; The entry of a key in the table; null where there is none.
define internal ptr @find(ptr %s, i64 %op, ptr %left, i64 %a, i64 %b, i64 %c) {
  %frame = call ptr @PyEval_GetFrame()
  %none = icmp eq ptr %frame, null
  br i1 %none, label %absent, label %framed
framed:
  %code = call ptr @PyFrame_GetCode(ptr %frame)
  call void @Py_DecRef(ptr %code)
  %short = call i32 @PyFrame_GetLasti(ptr %frame)
  %last = sext i32 %short to i64
  %where = ptrtoint ptr %code to i64
  %type = ptrtoint ptr %left to i64
  %h0 = call i64 @mix(i64 0, i64 %op)
  %h1 = call i64 @mix(i64 %h0, i64 %where)
  %h2 = call i64 @mix(i64 %h1, i64 %last)
  %h3 = call i64 @mix(i64 %h2, i64 %type)
  %h4 = call i64 @mix(i64 %h3, i64 %a)
  %h5 = call i64 @mix(i64 %h4, i64 %b)
  %h6 = call i64 @mix(i64 %h5, i64 %c)
  %table.at = call i64 @held(ptr %s, i64 $N_KEYS_AT)
  %table = inttoptr i64 %table.at to ptr
  %mask = call i64 @held(ptr %s, i64 $N_KEYS)
  br label %look
look:
  %k = phi i64 [ %h6, %framed ], [ %next, %other ]
  %i = and i64 %k, %mask
  %first = mul i64 %i, $ENTRY
  %entry = getelementptr i64, ptr %table, i64 %first
  %k0 = load i64, ptr %entry
  %empty = icmp eq i64 %k0, 0
  br i1 %empty, label %absent, label %compare
compare:
  %k1 = call i64 @held(ptr %entry, i64 1)
  %k2 = call i64 @held(ptr %entry, i64 2)
  %k3 = call i64 @held(ptr %entry, i64 3)
  %k4 = call i64 @held(ptr %entry, i64 4)
  %k5 = call i64 @held(ptr %entry, i64 5)
  %k6 = call i64 @held(ptr %entry, i64 6)
  %x0 = xor i64 %k0, %op
  %x1 = xor i64 %k1, %where
  %x2 = xor i64 %k2, %last
  %x3 = xor i64 %k3, %type
  %x4 = xor i64 %k4, %a
  %x5 = xor i64 %k5, %b
  %x6 = xor i64 %k6, %c
  %o0 = or i64 %x0, %x1
  %o1 = or i64 %x2, %x3
  %o2 = or i64 %x4, %x5
  %o3 = or i64 %o0, %o1
  %o4 = or i64 %o2, %x6
  %differs = or i64 %o3, %o4
  %same = icmp eq i64 %differs, 0
  br i1 %same, label %found, label %other
other:
  %next = add i64 %i, 1
  br label %look
found:
  ret ptr %entry
absent:
  ret ptr null
}

; The word of a number that Python knows; 0 where it is not known here.
define internal i64 @number(ptr %s, i64 %kind, i64 %bits) {
  %h0 = call i64 @mix(i64 0, i64 %kind)
  %h1 = call i64 @mix(i64 %h0, i64 %bits)
  %table.at = call i64 @held(ptr %s, i64 $N_NUMBERS_AT)
  %table = inttoptr i64 %table.at to ptr
  %mask = call i64 @held(ptr %s, i64 $N_NUMBERS)
  br label %look
look:
  %k = phi i64 [ %h1, %0 ], [ %next, %other ]
  %i = and i64 %k, %mask
  %first = mul i64 %i, $NUMBER
  %entry = getelementptr i64, ptr %table, i64 %first
  %k0 = load i64, ptr %entry
  %empty = icmp eq i64 %k0, 0
  br i1 %empty, label %absent, label %compare
compare:
  %k1 = call i64 @held(ptr %entry, i64 1)
  %x0 = xor i64 %k0, %kind
  %x1 = xor i64 %k1, %bits
  %differs = or i64 %x0, %x1
  %same = icmp eq i64 %differs, 0
  br i1 %same, label %found, label %other
other:
  %next = add i64 %i, 1
  br label %look
found:
  %word = call i64 @held(ptr %entry, i64 2)
  ret i64 %word
absent:
  ret i64 0
}

; The word of an int or float; 0 where it is not known here.
define internal i64 @word(ptr %s, ptr %y, ptr %type) {
  %overflow = alloca i32
  %float = call ptr @pointed(ptr %s, i64 $FLOAT_BYTES)
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %a.float, label %no.float
a.float:
  %value = call double @PyFloat_AsDouble(ptr %y)
  %bits = bitcast double %value to i64
  %word = call i64 @number(ptr %s, i64 1, i64 %bits)
  ret i64 %word
no.float:
  %int = call ptr @pointed(ptr %s, i64 $INT_BYTES)
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %an.int, label %absent
an.int:
  store i32 0, ptr %overflow
  %whole = call i64 @PyLong_AsLongLongAndOverflow(ptr %y, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %inside, label %absent
inside:
  %of.int = call i64 @number(ptr %s, i64 2, i64 %whole)
  ret i64 %of.int
absent:
  ret i64 0
}

; Notes a step; its result. Null where an exception is raised, 1 where it is left to Python.
define internal ptr @note(ptr %s, ptr %entry, ptr %run, i64 %w0, i64 %w1, i64 %w2, i64 %count) {
  %site = call i64 @held(ptr %entry, i64 7)
  %type.at = call i64 @held(ptr %entry, i64 8)
  %type = inttoptr i64 %type.at to ptr
  %class = call ptr @pointed(ptr %s, i64 $SYMBOL_BYTES)
  %made = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %begun
begun:
  %base = call i64 @held(ptr %s, i64 $N_BASE)
  %most = call i64 @held(ptr %s, i64 $N_MOST)
  %pending = call i64 @held(ptr %s, i64 $N_PENDING)
  %capacity = call i64 @held(ptr %s, i64 $N_CAPACITY)
  %step = add i64 %base, %pending
  %few = icmp slt i64 %step, %most
  %room = icmp slt i64 %pending, %capacity
  %fits = and i1 %few, %room
  br i1 %fits, label %write, label %left
left:
  call void @Py_DecRef(ptr %made)
  ret ptr inttoptr (i64 1 to ptr)
write:
  %fixed = icmp slt i64 %site, 0
  br i1 %fixed, label %finish, label %noted
noted:
  %sites.at = call i64 @held(ptr %s, i64 $N_SITES_AT)
  %sites = inttoptr i64 %sites.at to ptr
  %here = getelementptr i64, ptr %sites, i64 %pending
  store i64 %site, ptr %here
  %words.at = call i64 @held(ptr %s, i64 $N_WORDS_AT)
  %words = inttoptr i64 %words.at to ptr
  %used = call i64 @held(ptr %s, i64 $N_WORDS)
  %first = getelementptr i64, ptr %words, i64 %used
  store i64 %w0, ptr %first
  %second = getelementptr i64, ptr %first, i64 1
  store i64 %w1, ptr %second
  %third = getelementptr i64, ptr %first, i64 2
  store i64 %w2, ptr %third
  %used.now = add i64 %used, %count
  %used.at = getelementptr i64, ptr %s, i64 $N_WORDS
  store i64 %used.now, ptr %used.at
  %pending.now = add i64 %pending, 1
  %pending.at = getelementptr i64, ptr %s, i64 $N_PENDING
  store i64 %pending.now, ptr %pending.at
  %result = shl i64 %step, $OUTS
  br label %finish
finish:
  %word = phi i64 [ -1, %write ], [ %result, %noted ]
  %held.word = call ptr @PyLong_FromLongLong(i64 %word)
  %none = icmp eq ptr %held.word, null
  br i1 %none, label %unmade, label %done
unmade:
  call void @Py_DecRef(ptr %made)
  ret ptr null
done:
  call void @Py_IncRef(ptr %type)
  call void @Py_IncRef(ptr %run)
  call void @keep(ptr %made, i64 $S_KEY, ptr %type)
  call void @keep(ptr %made, i64 $S_RUN, ptr %run)
  call void @keep(ptr %made, i64 $S_WORD, ptr %held.word)
  ret ptr %made
error:
  ret ptr null
}

; What is known of the run of a symbol; null, and an exception, where it is no whole symbol.
define internal ptr @state(ptr %x) {
  %run = call ptr @pointed(ptr %x, i64 $S_RUN)
  %key = call ptr @pointed(ptr %x, i64 $S_KEY)
  %word = call ptr @pointed(ptr %x, i64 $S_WORD)
  %n0 = icmp eq ptr %run, null
  %n1 = icmp eq ptr %key, null
  %n2 = icmp eq ptr %word, null
  %n3 = or i1 %n0, %n1
  %n4 = or i1 %n2, %n3
  br i1 %n4, label %bad, label %whole
whole:
  %address = call ptr @pointed(ptr %run, i64 $R_STATE)
  %n5 = icmp eq ptr %address, null
  br i1 %n5, label %bad, label %known
known:
  %at = call i64 @PyLong_AsLongLong(ptr %address)
  %s = inttoptr i64 %at to ptr
  ret ptr %s
bad:
  call void @PyErr_BadInternalCall()
  ret ptr null
}

; The method in Python.
define internal ptr @left(ptr %s, i64 %op, ptr %x, ptr %y, i64 %count) noinline {
  %args = alloca [2 x ptr]
  store ptr %x, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  store ptr %y, ptr %second
  %at = add i64 %op, $N_STATE
  %method.at = call i64 @held(ptr %s, i64 %at)
  %method = inttoptr i64 %method.at to ptr
  %made = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 %count, ptr null)
  ret ptr %made
}
"""


# ---- slots text
#
# The methods of symbols in LLVM IR: what is done for an operation that was met before, at this place and for such
# operands. All else is left to the method in Python, which is what these mean.
#
#     x * 2.0     key: mul, the code and instruction that call it, the types of x and float   ->  site 4, float32[]
#                 number: 2.0                                                                 ->  word -3
#                 the site and the words of x and 2.0 are noted; a symbol is made
#
# They call CPython's public C API alone. What they know of objects, where a symbol has its slots and an object its
# class, is measured when they are loaded (`slots.py`).


# What machine code knows of a run, by the number of the word that it lies in: `STATE` of them, and behind these the
# methods in Python by the numbers of their operations.
BASE, MOST, PENDING, CAPACITY, WORDS, SITES_AT, WORDS_AT, KEYS_AT, KEYS, NUMBERS_AT, NUMBERS, SYMBOL = range(12)
FLOAT, INT, SLICE, NONE = range(12, 16)
STATE = 16

AT_ONCE = 3
"""Operands that a function of JAX has at most, to be done by machine code."""
KEY, NUMBER = 10, 3
"""Words of an entry for a key, of seven words, behind which are the site, the type of the result, and the size of what
a row is read of; and of one for a number that Python knows: its kind, its bits, its word."""
ABSENT = -(1 << 63)
"""Stands for None in a slice."""
FACTOR = 0x9E3779B97F4A7C15

API = {
    "PyEval_GetFrame": "ptr @PyEval_GetFrame()",
    "PyFrame_GetCode": "ptr @PyFrame_GetCode(ptr)",
    "PyFrame_GetLasti": "i32 @PyFrame_GetLasti(ptr)",
    "Py_DecRef": "void @Py_DecRef(ptr)",
    "Py_IncRef": "void @Py_IncRef(ptr)",
    "PyType_GenericAlloc": "ptr @PyType_GenericAlloc(ptr, i64)",
    "PyLong_FromLongLong": "ptr @PyLong_FromLongLong(i64)",
    "PyLong_AsLongLong": "i64 @PyLong_AsLongLong(ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)",
    "PyFloat_AsDouble": "double @PyFloat_AsDouble(ptr)",
    "PyTuple_GetItem": "ptr @PyTuple_GetItem(ptr, i64)",
    "PyObject_Vectorcall": "ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)",
    "PyErr_BadInternalCall": "void @PyErr_BadInternalCall()",
}
"""Functions of CPython that are called."""


@dataclass(frozen=True)
class SlotLayout:
    """Where things lie in objects, in bytes: the class of any object, the slots of a symbol, the state of a run, and
    the parts of a slice."""

    type: int
    key: int
    run: int
    word: int
    state: int
    start: int
    stop: int
    step: int


def mixed(parts: Sequence[int]) -> int:
    """The hash of the words of a key, as machine code has it."""
    made = 0
    for x in parts:
        made = (made ^ x & (1 << 64) - 1) * FACTOR & (1 << 64) - 1
        made ^= made >> 29
    return made


def text(layout: SlotLayout, binary: Mapping[str, int], unary: Mapping[str, int], others: Mapping[str, int]) -> str:
    """A module with a function for each method. `binary`, `unary`: the numbers of operations by the names of functions;
    `others`: those of `x[k]`, `x[a:b]`, and of powers."""
    words = {n: x for n, x in globals().items() if n.isupper() and isinstance(x, int)}
    names = {f"N_{n}": x for n, x in words.items()} | {f"{n}_BYTES": 8 * x for n, x in words.items()}
    names |= {n.upper(): k for n, k in others.items()}
    names |= {"TYPE": layout.type, "S_KEY": layout.key, "S_RUN": layout.run, "S_WORD": layout.word}
    names |= {"R_STATE": layout.state, "P_START": layout.start, "P_STOP": layout.stop, "P_STEP": layout.step}
    names |= {"ENTRY": KEY, "NUMBER": NUMBER, "OUTS": OUTS, "FACTOR": FACTOR - (1 << 64)}
    names |= {"ABSENT": ABSENT, "OTHER": ABSENT + 1, "LOWEST": ABSENT + 2}
    body = NOTES + METHODS
    for name in sorted(names, key=len, reverse=True):  # no name is cut by one that it begins with
        body = body.replace(f"${name}", str(names[name]))
    methods = [f"define ptr @{n}(ptr %x, ptr %y) {{\n  %r = call ptr @binary(ptr %x, ptr %y, i64 {k})\n  ret ptr %r\n}}"
               for n, k in binary.items()]  # fmt: skip
    methods += [f"define ptr @{n}(ptr %x, ptr %y) {{\n  %r = call ptr @unary(ptr %x, i64 {k})\n  ret ptr %r\n}}"
                for n, k in unary.items()]  # fmt: skip
    return "\n".join([*(f"declare {x}" for x in API.values()), body, *methods, ""])


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
