"""The back end `llvm`: a whole function with its derivatives as machine code, called for the rows of a batch.

Each is made when it is first asked for, and is called by several threads where there are many rows. NumPy arrays are
read where they lie, if they are what the code reads (dtype, contiguous, aligned); others are copied first. Nothing but
the rows is read and written, so memory does not grow with the batch; results are new arrays.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from autobatch.backends.interface import Cost, Declined, Load, Placement, WholeFunction, Work
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.code import ENTRY, WholeCode, unavailable, write, write_gradient
from autobatch.backends.llvm.lanes.program import CodeOperand, Result
from autobatch.backends.llvm.lanes.refill import LoopSplit, asked_in, holds_loop, why
from autobatch.backends.llvm.lanes.tensors import KEY
from autobatch.backends.llvm.machine_code import BY_LEVEL, Code, ProcessorTarget, UnavailableError
from autobatch.backends.llvm.region import WholeRegion, whole_function, work_of
from autobatch.backends.llvm.text import (
    HEADER,
    STOPPED,
    LlvmFunction,
    allow,
    checked,
    instrumented,
    is_checking,
    library,
)
from autobatch.data.columns import ColumnInput, WordInput
from autobatch.data.reading import address
from autobatch.errors import BatchError, TargetError, UnsupportedError

# ---- running


CHUNK = 4096
"""Rows that a thread takes at once: what it waits for others at the end is short, and what it asks for is rare. Sums
over rows are added up by chunk, so it is a part of what their bits are."""

SPAN = 200_000
"""Nanoseconds that a thread takes at once where nothing is summed: to wake it takes up to 100,000."""
MOST_PIECES = 64
"""So many pieces at most are there then."""


_TABLE_ENTRY = "run_from_table"
_KIND = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _table_entry(read: int, written: int) -> str:
    """A function that calls the code with the pointers of a table: ctypes passes at most 1,024 arguments. Not
    optimised, for LLVM would compare each load with each argument that is stored for the call."""
    names = [*(f"%a{k}" for k in range(read)), *(f"%r{k}" for k in range(written))]
    lines = [f"\ndefine i64 @{_TABLE_ENTRY}(ptr %table, i64 %begin, i64 %end) noinline optnone {{"]
    for k, name in enumerate(names):
        lines.append(f"  %p{k} = getelementptr ptr, ptr %table, i64 {k}")
        lines.append(f"  {name} = load ptr, ptr %p{k}")
    lines.append(f"  %failed = call i64 @{ENTRY}({', '.join(f'ptr {x}' for x in names)}, i64 %begin, i64 %end)")
    return "\n".join([*lines, "  ret i64 %failed", "}", ""])


NEVER = np.zeros(1, np.int32)
"""The flag of calls on one thread, which nobody stops but this one itself."""

_NEVER = address(NEVER)


class MachineCode:
    """The code of a whole function. Any number of threads may call it."""

    def __init__(self, made: WholeCode, kept: str = "") -> None:
        """`kept`: what the code is called that an earlier process has left; `made` has no text then. LookupError where
        it is gone."""
        self.operands, self.results = made.signature.operands, made.signature.results
        self.arrays, self.made = made.arrays, made
        self.constants = [np.ascontiguousarray(x) for x in made.program.constants]
        self.scratch, self.width = made.program.scratch, made.width
        names = (ENTRY, _TABLE_ENTRY)
        through_table = _table_entry(len(self.operands) + len(self.constants), len(self.results) + 1)
        try:
            code: Code | None
            self.name = kept or machine_code.target_name(f"whole_{made.width}", made.program.text + through_table)
            if is_checking():
                if not made.program.text:
                    raise LookupError("of kept code the text is not known")
                code = machine_code.in_memory(instrumented(made.program.text) + through_table, names, library())
            elif kept:
                code = machine_code.held(self.name, names, library())
            else:
                text = made.program.text + through_table
                code = machine_code.load(self.name, text, names, library(), vectorize=True, replace=self._take)
        except UnavailableError as error:
            raise unavailable(error) from error
        if code is None:
            raise LookupError(f"the code {kept} is gone")
        self.checks = is_checking()
        self.reads = [ArrayForm.of(x) for x in self.operands]
        self.writes = [ArrayForm.of(x) for x in self.results]
        self.sums = [k for k, x in enumerate(self.writes) if x.summed]
        self.of_columns = [(k, x.column) for k, x in enumerate(self.results) if x.column is not None]
        self.seldom = any(x.seldom for x in self.results)
        self.pace = 0.0
        """Nanoseconds that a row took in the last call."""
        self.tables: list[Any] = []
        """What trampolines read where the code is."""
        self.pointers = ctypes.c_void_p * (len(self.operands) + len(self.constants) + len(self.results) + 1)
        if "entry" not in self.__dict__:
            self._take(code)

    def _take(self, code: Code) -> None:
        """Let calls run this code from now on."""
        self.address = code.functions[ENTRY]
        for table in self.__dict__.get("tables", ()):
            table[RUN] = self.address
        self.entry: Callable[..., int] = _KIND(code.functions[_TABLE_ENTRY])

    @property
    def text(self) -> str:
        """The code as LLVM IR."""
        return self.made.program.text

    def __call__(self, operands: Sequence[Any], rows: int, threads: int | None = None) -> tuple[list[Any], bool]:
        """The results for `rows` rows, and whether a row has failed. `operands`: arrays, or what becomes one.
        `threads`: None for as many as this process may run on."""
        *first, last = operands
        whole = [*first, *self.arrays, last]
        given = [as_read(x, form, rows) for x, form in zip(whole, self.reads, strict=True)]
        parts = max(1, -(-rows // CHUNK))

        def memory(result: Result, form: ArrayForm) -> Any:
            if result.seldom:
                return zeros.take(rows)
            if result.column is not None:
                return np.zeros_like(given[result.column])
            return np.empty((parts if form.summed else rows, *form.shape), form.dtype)

        out = list(map(memory, self.results, self.writes))
        failed = self.fill(given, out, rows, threads)
        if self.seldom and not failed:
            zeros.give_back(out[-1])
        for k in self.sums:
            out[k] = _total(out[k])
        for k, column in self.of_columns:
            out[k] = out[k][: len(whole[column])]
        return out, failed

    def shapes(self, operands: Sequence[Any], rows: int) -> list[tuple[int, ...]]:
        """Those of the results."""
        return [
            form.shape if form.summed else (rows, *form.shape) if r.column is None else operands[r.column].shape
            for r, form in zip(self.results, self.writes, strict=True)
        ]

    def run(self, operands: Sequence[Any], rows: int, place: Placement) -> tuple[list[Any], bool]:
        """See `interface.FunctionCode`."""
        return self(operands, rows, place.threads)

    def fill(self, given: Sequence[Any], out: Sequence[Any], rows: int, threads: int | None = None) -> bool:
        """Compute the rows. The arrays are those that the code reads and writes; a result that is summed has a sum for
        each chunk of rows, so that it does not matter which thread adds up which."""
        before = [address(x) for x in (*given, *self.constants)]
        if not self.checks:
            return self._fill(before, out, rows, threads)
        with checked([*given, *self.constants, *out]):
            return self._fill(before, out, rows, threads)

    def chunk(self, rows: int, threads: int | None) -> int:
        """The rows that a thread takes at once: of code that sums nothing, whose bits do not depend on it, as many as
        are worth to wake one for."""
        pieces = 1 if self.sums or threads == 1 else min(int(rows * self.pace / SPAN), MOST_PIECES)
        if pieces < 2:
            return CHUNK
        return min(CHUNK, self.width * -(-rows // (self.width * pieces)))

    def _fill(self, before: Sequence[int], out: Sequence[Any], rows: int, threads: int | None) -> bool:
        chunk = self.chunk(rows, threads)
        chunks = max(1, -(-rows // chunk))
        if chunks > 1 and threads is None:
            threads = processors()
        begin = time.perf_counter_ns()
        if chunks == 1 or (threads == 1 and not self.sums):
            scratch = self.room(NEVER)
            failed = self.part([*before, *[address(x) for x in out]], scratch, 0, rows)
            _rooms.give_back(scratch[0])
            self.pace = (time.perf_counter_ns() - begin) / max(rows, 1)
            return failed
        assert threads is not None
        places = [(address(x), x.strides[0] if form.summed else 0) for x, form in zip(out, self.writes, strict=True)]
        flag = np.zeros(1, np.int32)
        cuts = iter(range(chunks))  # threads take the next one: `next` of an iterator over a range is atomic

        def work() -> bool:
            failed, scratch = False, self.room(flag)
            for k in cuts:
                addresses = [*before, *(x + k * size for x, size in places)]
                failed |= self.part(addresses, scratch, k * chunk, min((k + 1) * chunk, rows))
            _rooms.give_back(scratch[0])
            return failed

        count = min(threads, chunks)
        waiting = [pool(threads).submit(work) for _ in range(count - 1)]
        try:
            failed = work()
            failed = any([failed, *(w.result() for w in waiting)])
            self.pace = (time.perf_counter_ns() - begin) * count / rows
            return failed
        except BaseException:
            for _ in cuts:  # nobody takes the rest
                pass
            flag[0] = 1
            wait(waiting)  # they use our arrays
            raise

    def room(self, flag: Any) -> tuple[Any, int]:
        """Scratch memory for one thread, and its address; before it stands that of the flag that stops the code."""
        room = _rooms.take((max(self.scratch, 1) + 2 * HEADER) // 8 + 8)
        place = address(room)
        before = -place % 64
        first = before // 8
        room[first], room[first + 1] = address(flag) if flag is not NEVER else _NEVER, 0
        if self.checks:
            allow(room)
            allow(flag)
        return room, place + before + HEADER

    def part(self, addresses: Sequence[int], scratch: tuple[Any, int], begin: int, end: int) -> bool:
        """The rows of one call. Other threads run meanwhile: ctypes lets go of the interpreter. Raises what a handler
        of a signal raises; the code has left its loops then."""
        try:
            found = self.entry(self.pointers(*addresses, scratch[1]), begin, end)
        except SystemError as error:  # "a result with an exception set"
            raise error.__cause__ or error from None
        return bool(found == 1)


LARGE, MOST_KEPT = 1 << 13, 1 << 23
"""Words of scratch memory from which on a thread keeps it for the next call, and up to which: the system clears memory
that it gives anew, which takes longer than many a call."""


class _Zeros(threading.local):
    """What rows have failed with, where none has: nobody writes to it, so that the next call of a thread has it."""

    def __init__(self) -> None:
        self.held = np.zeros(0, np.int32)

    def take(self, rows: int) -> np.ndarray[Any, Any]:
        """So many zeros, for a call that gives them back unless it has written to them."""
        found, self.held = self.held, np.zeros(0, np.int32)
        return found[:rows] if len(found) >= rows else np.zeros(max(rows, 64), np.int32)[:rows]

    def give_back(self, found: np.ndarray[Any, Any]) -> None:
        whole = found if found.base is None else found.base
        if isinstance(whole, np.ndarray) and len(whole) <= MOST_KEPT:
            self.held = whole


zeros = _Zeros()


class _Rooms(threading.local):
    """The scratch memory that this thread has used last; not there while a call has it."""

    memory: Any = None

    def take(self, words: int) -> Any:
        """Memory of at least so many words, which hold anything."""
        found = self.memory if words >= LARGE else None
        if found is None or len(found) < words:
            return np.empty(words, np.int64)
        self.memory = None
        return found

    def give_back(self, memory: Any) -> None:
        """Nothing uses it any more."""
        if LARGE <= len(memory) <= MOST_KEPT:
            self.memory = memory


_rooms = _Rooms()


def _total(parts: Any) -> Any:
    """The sum of the sums of chunks, from the first to the last."""
    total = np.array(parts[0])
    for x in parts[1:]:
        total += x
    return total


def processors() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process."""
    return ThreadPoolExecutor(max(1, threads - 1), thread_name_prefix="autobatch-llvm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # threads do not live on in a child


def words_dtype(x: CodeOperand | Result) -> np.dtype[Any]:
    return np.dtype("uint32" if x.dtype == KEY else x.dtype)


def words_shape(x: CodeOperand | Result) -> tuple[int, ...]:
    """Of one row: a random key is two words."""
    return (*x.shape, 2) if x.dtype == KEY else x.shape


def fits(x: Any, operand: CodeOperand, rows: int) -> bool:
    """Is it an array of NumPy of the shape that the code reads?"""
    shape = words_shape(operand)
    return type(x) is np.ndarray and x.shape == ((rows, *shape) if operand.varies else shape)


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """The arrays that are an operand, or a result: `shape` is that of one row where they vary, or are summed: then
    there is one for each chunk of rows. (Not of a column: the rows of a call share nothing of it.)"""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    varies: bool
    is_column: bool
    summed: bool

    @classmethod
    def of(cls, x: CodeOperand | Result) -> ArrayForm:
        kind = words_dtype(x), words_shape(x)
        if isinstance(x, CodeOperand):
            return cls(*kind, x.varies, x.is_column, False)
        return cls(*kind, True, x.column is not None, x.summed and x.column is None)


def as_read(x: Any, form: ArrayForm, rows: int) -> Any:
    """An array as the code reads it: itself, where it is that already, else a copy."""
    dtype, shape = form.dtype, form.shape
    whole = (rows, *shape) if form.varies else shape
    held = x if type(x) is np.ndarray else np.asarray(x)
    if form.is_column:
        return _as_column(held, dtype, shape[1:])
    if held.shape != whole:
        raise BatchError(f"an array of shape {held.shape} where {whole} was compiled for")
    if held.dtype != dtype:
        held = held.astype(dtype)
    if held.flags.c_contiguous and held.flags.aligned:
        return held
    return np.require(held, requirements=("C", "A")) if math.prod(whole) else held


def _as_column(held: np.ndarray[Any, Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A column as the code reads it; it has a first and a second row."""
    if held.shape[1:] != shape:
        raise BatchError(f"a column of arrays of shape {held.shape[1:]} where {shape} was compiled for")
    if held.size >= 1 << 31:
        raise BatchError(f"a column of {held.size:,} numbers, and places in it have 31 bits: call with fewer examples")
    if len(held) < 2:
        held = np.concatenate([held, np.zeros((2 - len(held), *shape), held.dtype)])
    held = held.astype(dtype, copy=False)
    return held if held.flags.carray else np.require(held, requirements=("C", "A"))


# ---- trampoline
#
# A function of Python in machine code that hands arrays of NumPy to a whole function: what a small call costs.
#
#     call(x, ..., out, ...) -> True     it ran
#                               False    it ran, and a row has failed
#                               None     an array is not what the code reads; nothing ran
#
# ctypes asks each array for its address and makes an object of it, a microsecond or more; here the address is a load.
# The fields of an array are those of `PyArrayObject` (numpy/ndarraytypes.h), which every extension module is compiled
# against; `Layout` looks whether they are where they were, and without them there is no such function.


TYPE, DATA, AXES, DIMENSIONS, DESCRIPTOR, FLAGS = 8, 16, 24, 32, 56, 64
"""Where the fields of an array lie, in bytes."""

READ, WRITTEN = 0x101, 0x501
"""Flags of an array that is contiguous and aligned; and may be written to."""

ROOM = 32 * 1024
"""Bytes of scratch memory that are taken from the stack."""

CLASS, NONE, TRUE, FALSE, RELEASE, ACQUIRE, RUN, FIRST = range(8)
"""What stands in the table of addresses; behind it the constants of the program, then a descriptor of each array."""


class _TrampolineMethod(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("text", ctypes.c_char_p)]  # fmt: skip


FASTCALL = 0x80
_kept: list[Any] = []


def trampoline(executable: MachineCode) -> Callable[..., bool | None] | None:
    """A function of the operands, then of arrays for the results. None where Python or NumPy are none that this knows,
    or the program is none for it."""
    if not _is_known() or executable.scratch > ROOM or not any(x.varies for x in executable.operands):
        return None
    text = _text(executable)
    name = machine_code.target_name("call", text)
    code = machine_code.load(name, text, ("call",))
    api = ctypes.pythonapi
    addresses = [id(np.ndarray), id(None), id(True), id(False)]
    addresses += [_address(api.PyEval_SaveThread), _address(api.PyEval_RestoreThread), executable.address]
    addresses += [x.ctypes.data for x in executable.constants]
    arrays: list[CodeOperand | Result] = [*executable.operands, *executable.results]
    descriptors = [words_dtype(x) for x in arrays]
    table = np.array([*addresses, *map(id, descriptors)], np.int64)
    executable.tables.append(table)
    method = _TrampolineMethod(b"call", code.functions["call"], FASTCALL, None)
    api.PyCFunction_NewEx.restype = ctypes.py_object
    api.PyCFunction_NewEx.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    made: Callable[..., bool | None] = api.PyCFunction_NewEx(ctypes.byref(method), table, None)
    _kept.append((method, executable, descriptors))  # a function of C code keeps its table alone
    return made


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


@cache
def _is_known() -> bool:
    """Are Python and NumPy what the text is written for?"""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    probe = np.zeros((3, 5), np.float32)
    probe.flags.writeable = False

    def field(kind: Any, at: int) -> Any:
        return kind.from_address(id(probe) + at).value

    shape = (ctypes.c_ssize_t * 2).from_address(field(ctypes.c_void_p, DIMENSIONS))
    return bool(
        field(ctypes.c_void_p, TYPE) == id(np.ndarray)
        and field(ctypes.c_void_p, DATA) == probe.ctypes.data
        and field(ctypes.c_int, AXES) == 2
        and tuple(shape) == probe.shape
        and field(ctypes.c_void_p, DESCRIPTOR) == id(np.dtype(np.float32))
        and field(ctypes.c_int, FLAGS) & WRITTEN == READ
    )


def _text(executable: MachineCode) -> str:
    """`PyObject *call(PyObject *self, PyObject *const *arguments, Py_ssize_t count)`; `self` is the table, an array."""
    f = LlvmFunction("ptr @call(ptr %self, ptr %arguments, i64 %count) nounwind")
    table = f.load("ptr", "%self", DATA)
    operands, results = executable.operands, executable.results
    arrays: list[CodeOperand | Result] = [*operands, *results]

    def entry(number: int) -> str:
        return f.load("ptr", table, 8 * number)

    def require(condition: str) -> None:
        fine = f.name("fine")
        f.branch(condition, fine, "refused")
        f.block(fine, falls=False)

    require(f.let(f"icmp eq i64 %count, {len(arrays)}"))
    held = [f.load("ptr", "%arguments", 8 * k) for k in range(len(arrays))]
    kind, rows = entry(CLASS), None
    for k, (x, of) in enumerate(zip(held, arrays, strict=True)):
        descriptor = entry(FIRST + len(executable.constants) + k)
        require(f.let(f"icmp eq ptr {f.load('ptr', x, TYPE)}, {kind}"))
        require(f.let(f"icmp eq ptr {f.load('ptr', x, DESCRIPTOR)}, {descriptor}"))
        wanted = READ if k < len(operands) else WRITTEN
        flags = f.let(f"and i32 {f.load('i32', x, FLAGS, 4)}, {wanted}")
        require(f.let(f"icmp eq i32 {flags}, {wanted}"))
        shape = words_shape(of)
        varies = not isinstance(of, CodeOperand) or of.varies
        require(f.let(f"icmp eq i32 {f.load('i32', x, AXES, 4)}, {varies + len(shape)}"))
        dimensions = f.load("ptr", x, DIMENSIONS)
        if varies:
            first = f.load("i64", dimensions)
            rows = rows or first
            require(f.let(f"icmp eq i64 {first}, {rows}"))
        for axis, n in enumerate(shape, varies):
            require(f.let(f"icmp eq i64 {f.load('i64', dimensions, 8 * axis)}, {n}"))
    places = [f.load("ptr", x, DATA) for x in held]
    constants = [entry(FIRST + k) for k in range(len(executable.constants))]
    memory, flag = f.array_slot("i8", max(executable.scratch, 1) + HEADER), f.slot(0)
    f.do(f"store ptr {flag}, ptr {memory}")
    f.do(f"store i64 0, ptr {f.at(memory, 8)}")
    scratch = f.at(memory, HEADER)
    given = [*places[: len(operands)], *constants, *places[len(operands) :], scratch]
    passed = ", ".join([*(f"ptr {x}" for x in given), "i64 0", f"i64 {rows}"])
    state = f.let(f"call ptr {entry(RELEASE)}()")
    failed = f.let(f"call i64 {entry(RUN)}({passed})")
    f.do(f"call void {entry(ACQUIRE)}(ptr {state})")
    with f.when(f.let(f"icmp eq i64 {failed}, {STOPPED}")):  # by an exception, which is set
        f.do("ret ptr null")
        f.block(f.name("never"), falls=False)
    some = f.let(f"icmp ne i64 {failed}, 0")
    _give(f, f.let(f"select i1 {some}, ptr {entry(FALSE)}, ptr {entry(TRUE)}"))
    f.block("refused", falls=False)
    _give(f, entry(NONE))
    return str(f)


def _give(f: LlvmFunction, x: str) -> None:
    """Return an object, of which the caller has one reference then; those that live for ever count none."""
    if sys.version_info < (3, 12):
        f.do(f"store i64 {f.add(f.load('i64', x), 1)}, ptr {x}")
    f.do(f"ret ptr {x}")


def arrays_for(executable: MachineCode) -> Sequence[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Of one row of each result: shape and dtype."""
    return [(words_shape(r), words_dtype(r)) for r in executable.results]


# ---- objects
#
# A whole function as an object file for programs in C, which need neither Python nor JAX, with a header.
#
#     mandelbrot.h    int64_t mandelbrot(const float *x, const float *y, int32_t *result0, void *scratch, begin, end)
#     mandelbrot.o    the same, for one kind of processor; linked with -lm
#
# Arrays that the function has closed over are in the object. What a row computes are the bits that it computes here.


C_TYPES = {
    "bool": "bool",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "complex64": "float _Complex",
    "complex128": "double _Complex",
    KEY: "uint32_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class ObjectFile:
    """`code` is the object file, `header` declares its function; a call needs `scratch` bytes of memory, aligned to 64.
    `width`: rows that it computes at once."""

    name: str
    target: ProcessorTarget
    code: bytes
    header: str
    operands: tuple[CodeOperand, ...]
    results: tuple[Result, ...]
    scratch: int
    width: int


def target_of(level: str) -> ProcessorTarget:
    """The kind of processor of a level as compilers name them. TargetError for others."""
    if level not in BY_LEVEL:
        raise TargetError(f"target={level!r}: machine code is for {', '.join(map(repr, BY_LEVEL))}")
    return BY_LEVEL[level]


def object_of(
    whole: WholeRegion, sites: bool, name: str, target: ProcessorTarget, held: Mapping[int, Any] = MappingProxyType({})
) -> ObjectFile:
    """The object file of a whole function, under a name of C's. `held`: operands that are in the object, by number.
    TargetError for a name that is none."""
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise TargetError(f"{name!r} is no name of a function in C")
    with machine_code.written_for(target):
        made = write(whole, sites)
        code = machine_code.compile_object(_object_text(made, name, held), vectorize=True, target=target)
    given = {_named(v.hint, k): made.signature.operands[k] for k, v in enumerate(whole.region.args) if k not in held}
    results, scratch = made.signature.results, max(made.program.scratch, 1)
    header = _header(name, target, given, results, scratch, sites)
    return ObjectFile(name, target, code, header, tuple(given.values()), results, scratch, made.width)


def _named(hint: str, number: int) -> str:
    """The name of an operand in C, which no two have."""
    return f"{hint}_{number}" if re.fullmatch(r"[A-Za-z]\w*", hint) else f"operand_{number}"


def _object_text(made: WholeCode, name: str, held: Mapping[int, Any]) -> str:
    """The text with a function that hands the program its own arrays."""
    operands, results = made.signature.operands, len(made.signature.results)
    lines = []
    inside = {k: np.asarray(x).astype(words_dtype(operands[k])) for k, x in held.items()}
    for k, x in enumerate([*made.program.constants, *inside.values()]):
        content = np.ascontiguousarray(x).tobytes()
        data = "".join(f"\\{byte:02X}" for byte in content)
        lines.append(f'@own{k} = private unnamed_addr constant [{len(content)} x i8] c"{data}", align 64')
    given = [f"ptr %a{k}" for k in range(len(operands)) if k not in held]
    own = [f"ptr @own{k}" for k in range(len(made.program.constants))]
    places = {k: f"ptr @own{len(own) + n}" for n, k in enumerate(inside)}
    whole = [places.get(k, f"ptr %a{k}") for k in range(len(operands))]
    written = [f"ptr %r{k}" for k in range(results + 1)]
    rows = ["i64 %begin", "i64 %end"]
    lines.append(f"define i64 @{name}({', '.join([*given, *written, *rows])}) {{")
    lines.append(f"  %failed = call i64 @{ENTRY}({', '.join([*whole, *own, *written, *rows])})")
    lines.append("  ret i64 %failed\n}")
    hidden = re.sub(rf"^define (?=i64 @{ENTRY}\()", "define internal ", made.program.text, flags=re.MULTILINE)
    return "\n".join([hidden, *lines, ""])


def _header(
    name: str,
    target: ProcessorTarget,
    operands: Mapping[str, CodeOperand],
    results: Sequence[Result],
    scratch: int,
    sites: bool,
) -> str:
    def shape(x: Any, varies: bool) -> str:
        dims = [*(["rows"] if varies else []), *map(str, x.shape), *(["2"] if x.dtype == KEY else [])]
        return f"[{', '.join(dims)}]"

    parameters = [f"const {C_TYPES[o.dtype]} *{n},  // {shape(o, o.varies)}" for n, o in operands.items()]
    last = len(results) - 1 if sites else -1
    for k, r in enumerate(results):
        words = ", what each row has failed with: 0 if it has not" if k == last else ""
        parameters.append(f"{C_TYPES[r.dtype]} *{'status' if k == last else f'result{k}'},  // {shape(r, True)}{words}")
    listed = "\n    ".join([*parameters, f"void *scratch,  // {name.upper()}_SCRATCH bytes, aligned to 64"])
    return f"""// {name}, machine code for processors with {target.name}, written by autobatch.
//
// It computes the rows from `begin` to `end`; 0 is returned, or another number where one of them has failed. Threads
// may compute different rows of the same arrays at once, each with scratch memory of its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#define {name.upper()}_SCRATCH {scratch}
#ifdef __cplusplus
extern "C"
#endif
int64_t {name}(
    {listed}
    int64_t begin,
    int64_t end);
"""


# ---- costs
#
# What a call of machine code costs: reading the arguments, and what each row computes.
#
# The constants are microseconds (`_ns`: nanoseconds), fitted to 402 calls and 242 derivatives by
# `python -m benchmarks.choice.fit`.


AT_ONCE = 200.0
"""What a thread does by itself: to wake others for less does not pay."""


@dataclass(frozen=True)
class MachineCodeConstants:
    """`call`: with arrays of JAX. `read`, `read_row`: where lists and objects come with the call. Of each row: numbers
    that are made, multiplications of products, instructions, calls of a recursion, numbers that are returned,
    multiplications of products whose factors each row has for itself (`own_ns`, more than others), numbers that a
    recursion with products makes, whose rows are computed one after another (`alone_ns`, more than others)."""

    call: float
    read: float
    read_row: float
    element_ns: float
    multiplication_ns: float
    operation_ns: float
    recursion: float
    returned_ns: float
    own_ns: float
    alone_ns: float


VALUES = MachineCodeConstants(54.0, 120.0, 0.7, 0.033, 0.06, 0.032, 1.1, 3.0, 1.5, 0.47)
DERIVATIVES = MachineCodeConstants(140.0, 130.0, 0.97, 0.26, 0.93, 0.91, 6.6, 1.3, 1.9, 1.3)

START, OPERATION = 0.07, 1e-4
"""Seconds to compile at least, and for each instruction (medians of the same programs)."""
MOST_UNROLLED = 1000
"""Instructions from which on loops stay loops."""


def cost(work: Work, load: Load, constants: MachineCodeConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    row = of.element_ns * work.elements + of.multiplication_ns * work.products + of.operation_ns * work.operations
    alone = work.structured and work.recursions > 0 and work.dots > 0
    row += of.returned_ns * work.returned
    row += of.alone_ns * work.elements if alone else of.own_ns * work.own_multiplications
    call = of.call + shared_out(load.rows * (1e-3 * row + of.recursion * work.recursions))
    if work.structured and not load.planned:
        call += of.read + of.read_row * load.rows
    first = START + OPERATION * min(work.operations, MOST_UNROLLED)
    return Cost(call, first * (2 if load.derives else 1))


def shared_out(microseconds: float) -> float:
    """The time that threads need for so much work together."""
    return max(min(microseconds, AT_ONCE), microseconds / processors())


logger = logging.getLogger("autobatch")


class WholeProgram(MachineCode):
    """The entry of a module. `sites`: its last result says what an example has failed with. `inputs`: what its last
    shared inputs are, those that come with the examples. `made` and `kept`: the program as an earlier process has left
    it; LookupError where its code is gone. The module is lowered again then when something else than a call asks for
    the `whole`."""

    on_host: ClassVar[bool] = True

    def __init__(
        self,
        whole: Callable[[], WholeRegion],
        sites: bool,
        inputs: Sequence[ColumnInput | WordInput] = (),
        made: WholeCode | None = None,
        kept: str = "",
    ) -> None:
        self._whole, self.sites, self.inputs = whole, sites, tuple(inputs)
        super().__init__(made or write(self.whole, sites), kept)
        self.gradients: dict[tuple[int, tuple[int, ...]], MachineCode | None] = {}
        self._refused: UnsupportedError | None = None
        self._lock = threading.Lock()

    @cached_property
    def whole(self) -> WholeRegion:
        """The region that is computed."""
        return self._whole()

    @cached_property
    def work(self) -> Work:
        """What one example computes."""
        return work_of(self.whole)

    @property
    def how(self) -> str:
        """How rows are computed, as `explain` says it."""
        many = f"{self.width} examples at once" if self.width > 1 else "one example after another"
        return f"one function of machine code, {many}{f' ({self.refilling})' if self.refilling is not None else ''}"

    @property
    def text(self) -> str:
        return super().text or self._again.program.text

    @cached_property
    def _again(self) -> WholeCode:
        return write(self.whole, self.sites)

    @property
    def refilling(self) -> str | None:
        """What becomes of a lane whose row is done, and why; None where no loop is a lane's own."""
        region, asked = self.whole.forward, asked_in(self.whole.region)
        shared = region.args[: self.whole.shared]
        if self.width == 1 or not holds_loop(region):
            return None
        refills = LoopSplit.of(region, shared, asked) is not None
        done = "a row that is done makes room for the next" if refills else "each until its last one is done"
        return f"{done}: {why(region, shared, asked)}"

    def refusal(self) -> UnsupportedError | None:
        """Why a derivative has no machine code, told once."""
        found, self._refused = self._refused, None
        return found

    def gradient(self, output: int, wrt: tuple[int, ...]) -> MachineCode | None:
        """The derivative of result `output`, each row weighted by an operand more, by the operands `wrt`: of what
        varies row by row, of what is shared summed over rows. None where there is no machine code for it."""
        with self._lock:
            if (output, wrt) not in self.gradients:
                try:
                    made = MachineCode(write_gradient(self.whole, self.sites, output, wrt))
                except UnsupportedError as error:
                    logger.info("a derivative by XLA: %s", error)
                    made, self._refused = None, error
                self.gradients[output, wrt] = made
            return self.gradients[output, wrt]


class Llvm:
    """Machine code for the processor, of as many rows at once as its vectors hold."""

    name: ClassVar[str] = "llvm"

    def accepts(self, source: WholeFunction) -> WholeRegion | Declined:
        """The region of the entry, where it holds arithmetic on numbers and small arrays alone."""
        try:
            return whole_function(source)
        except UnsupportedError as error:
            return Declined(error)

    def cost(self, work: Work, load: Load) -> Cost:
        """See `costs.py`."""
        return cost(work, load)

    def compile(self, taken: WholeRegion) -> WholeProgram:
        """The machine code."""
        return WholeProgram(lambda: taken, taken.fails, taken.inputs)

    def restored(self, whole: Callable[[], WholeRegion], fails: bool, made: WholeCode, kept: str) -> WholeProgram:
        """Code that an earlier process has left. LookupError where it is gone."""
        return WholeProgram(whole, fails, (), made, kept)
