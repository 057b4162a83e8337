"""Rows of operands in, gangs of lanes, rows of results out: a module that XLA calls. Python calls `llvm/program.py`.

    arguments   of each operand: its rows, or the one array that all rows share; then, where some rows do not matter,
                live: bool[rows]; then constants of the program
    results     of each result: its rows, or the sum over all rows of what each of them contributes; then scratch

How many rows there are is read from the call, so one text serves any number of them. Rows that do not matter get zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.reductions import joined_vector
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    MemoryTensor,
    Tensor,
    add,
    every,
    flat,
    fresh,
    in_registers,
    multiply,
    over,
    registers,
    word,
    words,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import BYTES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.machine_code import RefusedError, buffer, data, dimension, handler
from autobatch.backends.llvm.text import LlvmFunction, broadcast
from autobatch.ir.core import ROWS, Type, Value

PARTS = 16
"""Sums that a sum over rows consists of: as many as the widest gang has lanes, on every machine."""

MOST_SUMMED = 256
"""Numbers of a sum over rows up to which it has these."""

Body = Callable[["Gang", Sequence[Tensor]], Sequence[Tensor | None]]
"""What is computed: results of operands, for the lanes of a gang; None: a sum over rows to which they were added."""


@dataclass(frozen=True)
class CodeOperand:
    """`varies`: it has rows; else all rows share it."""

    dtype: str
    shape: tuple[int, ...]
    varies: bool

    @property
    def is_column(self) -> bool:
        """Has it as many rows as the call gives it?"""
        return not self.varies and self.shape[:1] == (ROWS,)


@dataclass(frozen=True)
class Result:
    """`summed`: over all rows; `seldom`: a number that is nearly always zero, in memory that is zero before. `column`:
    the operand, a column, that it is summed for: it has as many rows, and lies in memory that is zero before, too."""

    dtype: str
    shape: tuple[int, ...]
    summed: bool = False
    seldom: bool = False
    column: int | None = None


@dataclass(frozen=True)
class CodeSignature:
    """What goes in and what comes out. `masked`: are there rows that do not matter?"""

    operands: tuple[CodeOperand, ...]
    results: tuple[Result, ...]
    masked: bool

    @property
    def first_varying(self) -> int:
        return next(k for k, x in enumerate(self.operands) if x.varies)


@dataclass
class EmittedCode:
    """The text of a module; arrays that are operands after the others; bytes of scratch memory."""

    text: str
    constants: list[Any]
    scratch: int


class CallFrame(Protocol):
    """Where a call has its arrays: the addresses of their first numbers."""

    def argument(self, number: int) -> str:
        """Of the operands, then of constants of the program."""
        ...

    def result(self, number: int) -> str:
        """Of the results, then of scratch memory."""
        ...


@dataclass(frozen=True)
class FromXLA:
    """The frame of a call by XLA."""

    f: LlvmFunction

    def argument(self, number: int) -> str:
        return data(self.f, buffer(self.f, "%arguments", number))

    def result(self, number: int) -> str:
        return data(self.f, buffer(self.f, "%results", number))


@dataclass(frozen=True)
class Warp:
    """Threads of a GPU that run together, each with a row. What each of them has in memory for itself lies side by
    side, so that one access reads it for all of them: a warp is a gang there. Values of type i64, and pointers.

    `thread`: which of them this is; `memory`: scratch memory of the warp; `stack`, `room`: memory for stacks, and how
    many bytes of it each thread has; `short`: a number that is set to 1 where these do not suffice."""

    threads: int
    thread: str
    memory: str
    stack: str
    room: str
    short: str

    def own(self, w: LaneWriter, pointer: str, dtype: str, shape: tuple[int, ...]) -> MemoryTensor:
        """An array of this thread, among those of all threads that begin at a pointer."""
        return MemoryTensor(w, self.first(w, pointer, dtype), dtype, shape, threads=self.threads)

    def first(self, w: LaneWriter, pointer: str, dtype: str) -> str:
        """Where the numbers of this thread begin."""
        return w.f.at(pointer, w.f.mul(self.thread, BYTES[stored(word(dtype))]))


@dataclass
class Gang:
    """What code for the lanes of a gang is written with. `mask`: lanes that hold rows that matter; None: all. `warp`:
    it is a thread among others."""

    w: LaneWriter
    signature: CodeSignature
    frame: CallFrame
    mask: LaneValue | None = None
    constants: list[Any] = field(default_factory=list)
    scratch: int = 0
    behind: list[Callable[[], None]] = field(default_factory=list)
    """What is written behind the loop over all rows."""
    warp: Warp | None = None
    functions: list[str] = field(default_factory=list)
    """The texts of functions that are called."""
    totals: Sequence[MemoryTensor | None] = ()
    """Where results lie that are summed over all rows, to which one row may add them at once; None: others."""

    @property
    def threads(self) -> int:
        """How many threads have their scratch memory side by side."""
        return 1 if self.warp is None else self.warp.threads

    def inside(self, w: LaneWriter, frame: CallFrame) -> Gang:
        """The same gang in a function that is called, without what is written behind its end."""
        w.whole = self.w.whole
        return replace(self, w=w, frame=frame, mask=None, behind=[], totals=())

    def constant(self, value: np.ndarray) -> Tensor:
        """An array that the program holds, as an operand more."""
        number = next((k for k, x in enumerate(self.constants) if x is value), len(self.constants))
        if number == len(self.constants):
            self.constants.append(value)
        place = self.frame.argument(self.constant_place(number))
        dtype = str(value.dtype)
        return MemoryTensor(self.w, place, dtype, value.shape, shared=True).final

    def constant_place(self, number: int) -> int:
        return len(self.signature.operands) + int(self.signature.masked) + number

    def memory(self, dtype: str, count: int, shared: bool = False) -> str:
        """Scratch memory for so many numbers of each lane, or of all (`shared`), which holds anything at first."""
        begin = self._begin(BYTES[stored(dtype)] * count * (1 if shared else self.w.width * self.threads))
        if self.warp is not None:
            assert not shared, "each row of a GPU has its own"
            return self.warp.first(self.w, self.w.f.at(self.warp.memory, begin), dtype)
        return self.w.f.at(self.frame.result(len(self.signature.results)), begin)

    def reserves_outside(self) -> None:
        """Let arrays that the stack has no room for lie in scratch memory, whose address is a parameter."""

        scratch = self.frame.result(len(self.signature.results))
        self.w.outside = lambda bytes: self.w.f.place(scratch, self._begin(bytes))

    def _begin(self, bytes: int) -> int:
        """Where so many bytes of scratch memory begin that nothing else has."""
        begin = -(-self.scratch // 64) * 64
        self.scratch = begin + bytes
        return begin


OverRows = Callable[[Gang, str, str], None]
"""Writes a loop over the rows from one number to another."""


def program(signature: CodeSignature, width: int, body: Body, over_rows: OverRows | None = None) -> EmittedCode:
    """The module that computes `body` for all rows, `width` of them at once. `over_rows`: writes the loop over rows in
    another way than one gang after another."""
    made: list[Gang] = []

    def run(f: LlvmFunction, arguments: str, number: str, results: str) -> None:
        f.do(f"%arguments = getelementptr i8, ptr {arguments}, i64 0")
        f.do(f"%results = getelementptr i8, ptr {results}, i64 0")
        rows = dimension(f, buffer(f, arguments, signature.first_varying), 0)
        gang = Gang(LaneWriter(f, width), signature, FromXLA(f))
        made.append(gang)
        if over_rows is None:
            GangLoop(gang, "0", rows).run(body)
        else:
            over_rows(gang, "0", rows)

    f, text = _handled(run)
    return finished(f, text, made[0])


def finished(f: LlvmFunction, text: str, gang: Gang) -> EmittedCode:
    """The module of a function. RefusedError where its arrays do not fit on a stack."""
    if gang.w.outside is None and gang.w.reserved > gang.w.room:
        raise RefusedError(f"it needs {gang.w.reserved:,} bytes for its arrays, more than {gang.w.room:,}")
    whole = [*f.declarations, *gang.functions, text, *f.metadata]
    return EmittedCode("\n".join(whole), gang.constants, gang.scratch)


def _handled(run: Callable[[LlvmFunction, str, str, str], None]) -> tuple[LlvmFunction, str]:
    f = handler(run)
    return f, str(f)


WEIGHT = 16
"""Turns of a loop as which a gang of rows counts."""


class GangLoop:
    """The loop over gangs: the rows from `begin` to `rows`. `step`: rows from one gang to the next, where others run
    those in between."""

    def __init__(self, gang: Gang, begin: str, rows: str, step: str | int | None = None) -> None:
        self.gang, self.w, self.f, self.begin, self.rows = gang, gang.w, gang.w.f, begin, rows
        self.signature, self.step = gang.signature, gang.w.width if step is None else step

    def run(self, body: Body) -> None:
        f, signature = self.f, self.signature
        frame = self.gang.frame
        arguments = [frame.argument(k) for k in range(len(signature.operands))]
        out = [frame.result(k) for k in range(len(signature.results))]
        live = frame.argument(len(signature.operands)) if signature.masked else None
        sums = self.sums(out)
        with f.loop(self.begin, self.rows, self.step) as first:
            loops = f.loops
            self.all_of(body, arguments, sums, first, live)
            if f.loops > loops:
                f.ask(WEIGHT)
        self.join(sums, out)
        for write in self.gang.behind:
            write()

    def all_of(self, body: Body, arguments: Sequence[str], out: Sequence[str], first: str, live: str | None) -> None:
        """The rows of one gang."""
        here = self.here(first, live)
        if here is None:
            self.gangs(body, arguments, out, first)
            return
        self.gang.mask = here if self.w.width > 1 else None
        with self.f.when(self.w.any(here)) as otherwise:
            self.gangs(body, arguments, out, first)
            otherwise()
            self.store_zeros(out, first)

    def gangs(self, body: Body, arguments: Sequence[str], out: Sequence[str], first: str) -> None:
        operands = [self.operand(x, place, first) for x, place in zip(self.signature.operands, arguments, strict=True)]
        if self.w.width == 1 and self.gang.warp is None:
            self.gang.totals = [self.total(r, base) for r, base in zip(self.signature.results, out, strict=True)]
        self.store(body(self.gang, operands), out, first)

    # ---- lanes

    def numbers(self) -> str:
        return ", ".join(f"i64 {n}" for n in range(self.w.width))

    def inside(self, first: str) -> LaneValue | None:
        """The lanes for which there are rows."""
        if self.w.width == 1:
            return None
        f, width = self.f, self.w.width
        left = broadcast(f, width, "i64", f.sub(self.rows, first))
        return LaneValue(f.let(f"icmp ult <{width} x i64> <{self.numbers()}>, {left}"), "bool")

    def here(self, first: str, live: str | None) -> LaneValue | None:
        """The lanes for which there are rows that matter. None: all."""
        inside = self.inside(first)
        if live is None:
            return inside
        flags = self.load("bool", live, first, 1, 0, inside)
        return flags if inside is None else self.w.both(inside, flags)

    def load(self, dtype: str, base: str, first: str, size: int, element: int, mask: LaneValue | None) -> LaneValue:
        """One number of the row of each lane."""
        f, width, of = self.f, self.w.width, stored(dtype)
        align, vector = BYTES[of], self.w.vector(of)
        if width == 1:
            place = f.let(f"getelementptr {of}, ptr {base}, i64 {f.add(f.mul(first, size), element)}")
            found = f.let(f"load {of}, ptr {place}, align {align}")
        elif size == 1:
            place = f.let(f"getelementptr {of}, ptr {base}, i64 {first}")
            assert mask is not None
            suffix = self.w.suffix(of)
            f.declare(f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, {self.w.vector('i1')}, {vector})")
            operands = f"ptr {place}, i32 {align}, {self.w.vector('i1')} {mask.text}, {vector} zeroinitializer"
            found = f.let(f"call {vector} @llvm.masked.load.{suffix}.p0({operands})")
        else:
            assert mask is not None
            return self.w.gathered(dtype, self.places(of, base, first, size, element), mask.text)
        if dtype == "bool":
            found = f.let(f"trunc {vector} {found} to {self.w.vector('i1')}")
        return LaneValue(found, dtype)

    def places(self, of: str, base: str, first: str, size: int, element: int) -> str:
        """Where one number of the row of each lane lies: so far behind the first row of the gang, in 32 bits: one
        gather, where 64 make two."""
        begin = self.f.let(f"getelementptr {of}, ptr {base}, i64 {self.f.mul(first, size)}")
        lanes = ", ".join(f"i32 {n * size + element}" for n in range(self.w.width))
        return self.f.let(f"getelementptr {of}, ptr {begin}, <{self.w.width} x i32> <{lanes}>")

    def save(self, x: LaneValue, base: str, first: str, size: int, element: int, mask: LaneValue | None) -> None:
        f, width, of = self.f, self.w.width, stored(x.dtype)
        align, vector = BYTES[of], self.w.vector(of)
        x = self.w.spread(x)
        text = x.text
        if x.dtype == "bool":
            text = f.let(f"zext {self.w.vector('i1')} {text} to {vector}")
        if width == 1:
            place = f.let(f"getelementptr {of}, ptr {base}, i64 {f.add(f.mul(first, size), element)}")
            f.do(f"store {of} {text}, ptr {place}, align {align}")
        elif size == 1:
            assert mask is not None
            place = f.let(f"getelementptr {of}, ptr {base}, i64 {first}")
            suffix, lanes = self.w.suffix(of), self.w.vector("i1")
            f.declare(f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, {lanes})")
            operands = f"{vector} {text}, ptr {place}, i32 {align}, {lanes} {mask.text}"
            f.do(f"call void @llvm.masked.store.{suffix}.p0({operands})")
        else:
            assert mask is not None
            self.w.scatter(x, self.places(of, base, first, size, element), mask.text)

    # ---- operands and results

    def operand(self, x: CodeOperand, base: str, first: str) -> Tensor:
        w, dtype, many = self.w, word(x.dtype), words(x.dtype)
        if not x.varies:
            shared = MemoryTensor(w, base, x.dtype, x.shape, shared=True).final
            if not in_registers(math.prod(x.shape)):
                return shared
            return registers(w, x.dtype, x.shape, [shared.at(index) for index in every(x.shape)])
        size = math.prod(x.shape) * many
        if w.width == 1 and not in_registers(math.prod(x.shape)):
            row = self.f.at(base, self.f.mul(first, size * BYTES[stored(dtype)]))
            return MemoryTensor(w, row, x.dtype, x.shape).final
        inside = self.inside(first)

        def element(index: Indices) -> Element:
            place = flat(w, index, x.shape)
            assert isinstance(place, int)
            return tuple(self.load(dtype, base, first, size, place * many + k, inside) for k in range(many))

        if in_registers(math.prod(x.shape)):
            return registers(w, x.dtype, x.shape, [element(index) for index in every(x.shape)])
        if math.prod(x.shape) > SMALL * SMALL:
            raise RefusedError("a large array in each lane of a gang")
        memory = fresh(w, x.dtype, x.shape)
        for index in every(x.shape):
            memory.write(index, element(index))
        return memory.final

    def store(self, found: Sequence[Tensor | None], out: Sequence[str], first: str) -> None:
        inside = self.inside(first)
        for x, result, base in zip(found, self.signature.results, out, strict=True):
            if x is None:
                continue  # it has been added up
            if x.dtype != result.dtype or x.shape != result.shape:
                raise RefusedError(
                    f"a result of {x.dtype}{list(x.shape)} instead of {result.dtype}{list(result.shape)}"
                )
            if result.summed and stored(word(x.dtype)) not in ("float", "double"):
                raise RefusedError(f"a sum over rows of numbers of {x.dtype}")
            if result.summed:
                self.add_up(x, base, first)
            elif result.seldom:
                self.store_seldom(x, base, first, inside)
            else:
                self.store_rows(x, base, first, inside)

    def store_seldom(self, x: Tensor, base: str, first: str, inside: LaneValue | None) -> None:
        """A number where it is not zero: memory that nobody reads need not go through the caches."""
        w, number = self.w, self.w.spread(x.one())
        some = w.instruction("icmp ne", number, w.constant(0, number.dtype), "bool")
        for mask in (inside, self.gang.mask):
            some = w.both(mask, some)
        with self.f.when(w.any(some), rarely=True):
            self.store_rows(x, base, first, inside)

    def store_rows(self, x: Tensor, base: str, first: str, inside: LaneValue | None) -> None:
        w, many = self.w, words(x.dtype)
        size = x.size * many
        if w.width == 1 and not in_registers(x.size):
            row = self.f.at(base, self.f.mul(first, size * BYTES[stored(word(x.dtype))]))
            MemoryTensor(w, row, x.dtype, x.shape).fill(x)
            return
        if x.size > SMALL * SMALL:
            raise RefusedError("a large array in each lane of a gang")
        for k, index in enumerate(every(x.shape)):
            for j, number in enumerate(x.at(index)):
                if self.gang.mask is not None:
                    number = w.select(self.gang.mask, number, w.constant(0, number.dtype))
                self.save(number, base, first, size, k * many + j, inside)

    def store_zeros(self, out: Sequence[str], first: str) -> None:
        inside = self.inside(first)
        for result, base in zip(self.signature.results, out, strict=True):
            if not result.summed:
                self.store_rows(zeros(self.w, result.dtype, result.shape), base, first, inside)

    # ---- sums over rows

    def total(self, result: Result, base: str) -> MemoryTensor | None:
        """Where a large sum lies, to which one row after another is added as it comes."""
        is_large = result.summed and math.prod(result.shape) > MOST_SUMMED
        return MemoryTensor(self.w, base, result.dtype, result.shape) if is_large else None

    def sums(self, out: Sequence[str]) -> list[str]:
        """Where what is summed is added to, and zeros there."""
        found = []
        for result, base in zip(self.signature.results, out, strict=True):
            size = math.prod(result.shape)
            if not result.summed or result.column is not None:
                found.append(base)
                continue
            parts = PARTS if size <= MOST_SUMMED else 1
            place = base if parts == 1 else self.gang.memory(result.dtype, PARTS * size, shared=True)
            found.append(place)
            of = stored(result.dtype)
            with self.w.loop(max(1, parts * size)) as k:
                zero = "0.0" if of in ("float", "double") else "0"
                self.f.do(f"store {of} {zero}, ptr {self.f.let(f'getelementptr {of}, ptr {place}, i64 {k}')}")
        return found

    def add_up(self, x: Tensor, base: str, first: str) -> None:
        """Row r is added to part r % PARTS, whatever the number of lanes; what is large has one part, to which one row
        of a gang is added after the other (`total`: where there is one lane)."""
        w, f, of = self.w, self.f, stored(x.dtype)
        in_parts = x.size <= MOST_SUMMED
        assert PARTS % w.width == 0 or not in_parts
        vector, align = w.vector(of), BYTES[of]
        part = f.let(f"and i64 {first}, {PARTS - 1}")

        def one(index: Indices) -> None:
            (number,) = x.at(index)
            number = w.spread(number)
            if self.gang.mask is not None:
                number = w.select(self.gang.mask, number, w.constant(0, number.dtype))
            at: Index = flat(w, index, x.shape)
            if in_parts:
                place = f.let(f"getelementptr {of}, ptr {base}, i64 {add(w, multiply(w, at, PARTS), part)}")
                held = f.let(f"load {vector}, ptr {place}, align {align}")
                f.do(f"store {vector} {f.let(f'fadd {vector} {held}, {number.text}')}, ptr {place}, align {align}")
                return
            place = f.let(f"getelementptr {of}, ptr {base}, i64 {at}")
            held = f.let(f"load {of}, ptr {place}")
            suffix = w.suffix_of(number.dtype, False)
            f.declare(f"declare {of} @llvm.vector.reduce.fadd.{suffix}({of}, {vector})")
            found = f.let(f"call {of} @llvm.vector.reduce.fadd.{suffix}({of} {held}, {vector} {number.text})")
            f.do(f"store {of} {found}, ptr {place}")

        over(w, x.shape, one)

    def join(self, sums: Sequence[str], out: Sequence[str]) -> None:
        """What is left of the parts."""
        for result, place, base in zip(self.signature.results, sums, out, strict=True):
            if place == base:
                continue
            of = stored(result.dtype)
            with self.f.loop(0, math.prod(result.shape), 1) as k:
                parts = self.f.at(place, self.f.mul(k, PARTS * BYTES[of]))
                found = joined_vector(self.w, "fadd", parts, result.dtype, PARTS)
                self.f.do(f"store {of} {found.text}, ptr {self.f.let(f'getelementptr {of}, ptr {base}, i64 {k}')}")


# ---- handing
#
# How numbers get from one function of machine code into another one.
#
#     few numbers of a value     arguments: a vector each, or one number where all lanes share it; a mask is an integer
#     many                       an argument: where they lie
#     what never changes         a table of addresses, which every function is given
#
# The table also has the operands of the whole call, which functions read constants of the program from.


def is_large(type: Type) -> bool:
    _, shape = shape_of(type)
    return not in_registers(math.prod(shape))


def types_of(w: LaneWriter, type: Type, shared: bool) -> list[str]:
    """LLVM's types of what stands for a value of a type."""
    dtype, shape = shape_of(type)
    if not in_registers(math.prod(shape)):
        return ["ptr"]
    one = w.type_of(word(dtype), shared)
    if dtype == "bool" and not shared and w.width > 1:
        one = f"i{w.width}"
    return [one] * (math.prod(shape) * words(dtype))


def handed(w: LaneWriter, x: Tensor, type: Type, shared: bool) -> list[str]:
    """A value as arguments, with their types."""
    _, shape = shape_of(type)
    if not in_registers(math.prod(shape)):
        memory = x.memory
        if memory is None or memory.shared:
            memory = fresh(w, x.dtype, x.shape)
            memory.fill(x)
        return [f"ptr {memory.pointer}"]
    (of, *_) = [*types_of(w, type, shared), ""]
    return [f"{of} {_text(w, number, shared)}" for index in every(shape) for number in x.at(index)]


def _text(w: LaneWriter, x: LaneValue, shared: bool) -> str:
    if shared:
        assert x.shared or w.width == 1
        return x.text
    text = w.spread(x).text
    if x.dtype == "bool" and w.width > 1:
        return w.f.let(f"bitcast {w.vector('i1')} {text} to i{w.width}")
    return text


def received(w: LaneWriter, texts: list[str], type: Type, shared: bool) -> Tensor:
    """What was handed on."""
    dtype, shape = shape_of(type)
    if not in_registers(math.prod(shape)):
        return MemoryTensor(w, texts[0], dtype, shape).final

    def number(text: str) -> LaneValue:
        if dtype == "bool" and not shared and w.width > 1:
            text = w.f.let(f"bitcast i{w.width} {text} to {w.vector('i1')}")
        return LaneValue(text, word(dtype), shared)

    numbers = [number(text) for text in texts]
    many = words(dtype)
    elements = [tuple(numbers[k : k + many]) for k in range(0, len(numbers), many)]
    return registers(w, dtype, shape, elements)


class AddressTable:
    """Addresses that functions read from a pointer. `captured`: values that never change; those that all lanes share
    are one number each."""

    def __init__(self, gang: Gang, captured: Mapping[Value, Tensor]) -> None:
        self.gang, self.values = gang, captured
        self.entries: dict[tuple[str, object], int] = {}
        self.makers: list[Callable[[], str]] = []

    def pointer(self, f: LlvmFunction, key: tuple[str, object], make: Callable[[], str]) -> str:
        """The address of an entry, in a function that has the table; `make`: gives it where the table is made."""
        if key not in self.entries:
            self.entries[key] = len(self.makers)
            self.makers.append(make)
        return f.load("ptr", "%table", 8 * self.entries[key])

    def frame(self, f: LlvmFunction) -> FromTable:
        return FromTable(self, f)

    def captured(self, w: LaneWriter, v: Value, lane: str | None = None) -> Tensor:
        """A value that never changes; `lane`: that of one lane, for a function of one row."""
        x, held = self.values[v], self.gang.w
        dtype, shape = shape_of(v.type)
        shared = is_shared(x)
        pointer = self.pointer(w.f, ("captured", v), lambda: laid_out(held, x, shared))
        if shared or lane is None:
            return MemoryTensor(w, pointer, dtype, shape, shared).final
        return of_lane(w, pointer, dtype, shape, held.width, lane).final

    def filled(self, w: LaneWriter) -> str:
        """The table itself."""
        made = [make() for make in self.makers]
        place = w.f.array_slot("ptr", max(1, len(made)))
        for k, pointer in enumerate(made):
            w.f.do(f"store ptr {pointer}, ptr {w.f.at(place, 8 * k)}")
        return place


@dataclass(frozen=True)
class FromTable:
    """The frame of a function that is called inside of a call."""

    table: AddressTable
    f: LlvmFunction

    def argument(self, number: int) -> str:
        table = self.table
        return table.pointer(self.f, ("argument", number), lambda: table.gang.frame.argument(number))

    def result(self, number: int) -> str:
        table = self.table
        return table.pointer(self.f, ("result", number), lambda: table.gang.frame.result(number))


def is_shared(x: Tensor) -> bool:
    """Do all lanes share an array?"""
    if x.memory is not None:
        return x.memory.shared
    return in_registers(x.size) and all(number.shared for index in every(x.shape) for number in x.at(index))


def laid_out(w: LaneWriter, x: Tensor, shared: bool) -> str:
    """Where an array lies in memory, whose lanes are neighbours; `shared`: that has one number for all lanes."""
    if x.memory is not None and x.memory.shared == shared:
        return x.memory.pointer
    if not shared:
        memory = fresh(w, x.dtype, x.shape)
        memory.fill(x)
        return memory.pointer
    of = stored(word(x.dtype))
    place = w.f.array_slot(of, max(1, x.size * words(x.dtype)))
    for k, index in enumerate(every(x.shape)):
        for j, number in enumerate(x.at(index)):
            text = number.text
            if number.dtype == "bool":
                text = w.f.let(f"zext i1 {text} to i8")
            w.f.do(f"store {of} {text}, ptr {w.f.at(place, BYTES[of] * (k * words(x.dtype) + j))}")
    return place


def of_lane(w: LaneWriter, pointer: str, dtype: str, shape: tuple[int, ...], lanes: int, lane: str) -> MemoryTensor:
    """What a lane has of an array in memory, for code of one lane."""
    begin = w.f.at(pointer, w.f.mul(lane, BYTES[stored(word(dtype))]))
    return MemoryTensor(w, begin, dtype, shape, threads=lanes)
