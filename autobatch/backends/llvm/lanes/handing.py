"""How numbers get from one function of machine code into another one.

    few numbers of a value     arguments: a vector each, or one number where all lanes share it; a mask is an integer
    many                       an argument: where they lie
    what never changes         a table of addresses, which every function is given

The table also has the operands of the whole call, which functions read constants of the program from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    MemoryTensor,
    Tensor,
    every,
    fresh,
    registers,
    word,
    words,
)
from autobatch.backends.llvm.lanes.writer import BYTES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.ir.core import Value
from autobatch.ir.types import Type


def is_large(type: Type) -> bool:
    _, shape = shape_of(type)
    return math.prod(shape) > SMALL


def types_of(w: LaneWriter, type: Type, shared: bool) -> list[str]:
    """LLVM's types of what stands for a value of a type."""
    dtype, shape = shape_of(type)
    if math.prod(shape) > SMALL:
        return ["ptr"]
    one = w.type_of(word(dtype), shared)
    if dtype == "bool" and not shared and w.width > 1:
        one = f"i{w.width}"
    return [one] * (math.prod(shape) * words(dtype))


def handed(w: LaneWriter, x: Tensor, type: Type, shared: bool) -> list[str]:
    """A value as arguments, with their types."""
    _, shape = shape_of(type)
    if math.prod(shape) > SMALL:
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
    if math.prod(shape) > SMALL:
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
    return x.size <= SMALL and all(number.shared for index in every(x.shape) for number in x.at(index))


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
