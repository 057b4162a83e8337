"""A whole function as machine code in memory: called for the rows of a batch, by several threads where there are many.

NumPy arrays are read where they lie, if they are what the code reads (dtype, contiguous, aligned); others are copied
first. Nothing but the rows is read and written, so memory does not grow with the batch; results are new arrays.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from autobatch.backends.interface import Placement
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.checked import allow, checked, instrumented, is_checking
from autobatch.backends.llvm.interrupts import HEADER
from autobatch.backends.llvm.lanes.program import CodeOperand, Result
from autobatch.backends.llvm.lanes.tensors import KEY
from autobatch.backends.llvm.link import Code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.outside import library
from autobatch.backends.llvm.whole.code import ENTRY, WholeCode, unavailable
from autobatch.data.addresses import address
from autobatch.errors import BatchError

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
                code = machine_code.unkept(instrumented(made.program.text) + through_table, names, library())
            elif kept:
                code = machine_code.held(self.name, names, library())
            else:
                code = machine_code.load(self.name, made.program.text + through_table, names, library(), vectorize=True)
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
        self.address = code.functions[ENTRY]
        self.pointers = ctypes.c_void_p * (len(self.operands) + len(self.constants) + len(self.results) + 1)
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
