"""Reads and writes of memory at places that each lane of a gang has for itself.

    %places = getelementptr float, ptr %array, <16 x i32> %index        one array for all lanes
    %found = call <16 x float> @llvm.masked.gather(%places, ...)

Places are in range in every lane, so reads have no mask; rows of columns are so in the lanes that are there. Places
stay 32 bits wide as long as the array allows: a gather
by 64 bits is two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autobatch.backends.llvm.lanes.tensors import (
    Element,
    Indices,
    MemoryTensor,
    Tensor,
    add,
    flat,
    multiply,
    word,
    words,
)
from autobatch.backends.llvm.lanes.writer import BYTES, LaneValue, LaneWriter, stored

Places = Sequence[int | str | LaneValue]
"""An index; a Number is one for each lane."""

WIDE = 1 << 31
"""Numbers from which on an array needs indices of 64 bits."""


def gathered(w: LaneWriter, memory: MemoryTensor, places: Places, mask: LaneValue | None = None) -> Element:
    """What each lane finds at its place; in the lanes of a mask, zeros in the others."""
    return tuple(_gather(w, memory, _addresses(w, memory, places, k), mask) for k in range(words(memory.dtype)))


def neighbours(w: LaneWriter, memory: MemoryTensor, place: LaneValue, mask: LaneValue) -> tuple[LaneValue, LaneValue]:
    """What the lanes of a mask find at their places in an array of numbers of 32 bits, and behind these."""
    address = _addresses(w, memory, [place], 0)
    both = _gather(w, MemoryTensor(w, memory.pointer, "uint64", memory.shape, shared=True), address, mask, align=4)
    of, element = f"<{2 * w.width} x {stored(memory.dtype)}>", stored(memory.dtype)
    halves = w.f.let(f"bitcast {w.vector('i64')} {both.text} to {of}")

    def half(first: int) -> LaneValue:
        numbers = ", ".join(f"i32 {k}" for k in range(first, 2 * w.width, 2))
        lanes = f"<{w.width} x i32> <{numbers}>"
        return LaneValue(w.f.let(f"shufflevector {of} {halves}, {of} poison, {lanes}"), memory.dtype)

    assert BYTES[element] == 4, "two of them are one of 64 bits"
    return half(0), half(1)


def taken(w: LaneWriter, column: MemoryTensor, row: LaneValue, mask: LaneValue | None) -> Tensor:
    """A row of a column. Rows are in range in the lanes of a mask."""
    shape, count = column.shape[1:], math.prod(column.shape[1:]) * words(column.dtype)
    if row.shared or w.width == 1:
        of = stored(word(column.dtype))
        wide = row.text if row.bits == 64 else w.f.let(f"sext {row.element} {row.text} to i64")
        place = w.f.let(f"getelementptr {of}, ptr {column.pointer}, i64 {wide if count == 1 else w.f.mul(wide, count)}")
        return MemoryTensor(w, place, column.dtype, shape, shared=True).final
    first = _times(w, row, count)

    def at(index: Indices) -> Element:
        return tuple(one(index, k) for k in range(words(column.dtype)))

    def one(index: Indices, number: int) -> LaneValue:
        place = add(w, multiply(w, flat(w, index, shape), words(column.dtype)), number)
        rows = first if place == 0 else _plus(w, first, _index(w, place, row.dtype))
        of = stored(word(column.dtype))
        found = w.f.let(f"getelementptr {of}, ptr {column.pointer}, {w.type_of(row.dtype)} {w.spread(rows).text}")
        return _gather(w, column, found, mask)

    return Tensor(column.dtype, shape, at)


def scattered(w: LaneWriter, memory: MemoryTensor, places: Places, element: Element, where: LaneValue | None) -> None:
    """Write what each lane has for its place, in memory of its own; `where`: in the lanes of a mask."""
    assert not memory.shared
    for k, x in enumerate(element):
        _scatter(w, memory, _addresses(w, memory, places, k), w.spread(x), where)


def _addresses(w: LaneWriter, memory: MemoryTensor, places: Places, number: int) -> str:
    """Where the lanes' numbers lie: `number` is which of those of an element."""
    many = 1 if memory.shared else w.width
    count = math.prod(memory.shape) * words(memory.dtype) * many
    narrow = count < WIDE and all(p.bits <= 32 for p in places if isinstance(p, LaneValue))
    dtype = "int32" if narrow else "int64"
    found = w.constant(0, dtype)
    for place, size in zip(places, memory.shape, strict=True):
        found = _plus(w, _times(w, found, size), _index(w, place, dtype))
    found = _plus(w, _times(w, found, words(memory.dtype)), w.constant(number, dtype))
    if not memory.shared:
        element = "i32" if narrow else "i64"
        lanes = LaneValue(f"<{', '.join(f'{element} {n}' for n in range(w.width))}>", dtype)
        found = _plus(w, _times(w, found, w.width), lanes)
    of, index = stored(word(memory.dtype)), w.spread(found)
    return w.f.let(f"getelementptr {of}, ptr {memory.pointer}, {w.type_of(dtype)} {index.text}")


def _index(w: LaneWriter, place: int | str | LaneValue, dtype: str) -> LaneValue:
    if isinstance(place, int):
        return w.constant(place, dtype)
    if isinstance(place, str):
        return w.cast("trunc", LaneValue(place, "int64", True), dtype)
    return w.cast("sext", place, dtype)


def _plus(w: LaneWriter, a: LaneValue, b: LaneValue) -> LaneValue:
    if "0" in (a.text, b.text):
        return b if a.text == "0" else a
    return w.instruction("add", a, b)


def _times(w: LaneWriter, a: LaneValue, by: int) -> LaneValue:
    return a if by == 1 or a.text == "0" else w.instruction("mul", a, w.constant(by, a.dtype))


def _gather(
    w: LaneWriter, memory: MemoryTensor, addresses: str, mask: LaneValue | None = None, align: int | None = None
) -> LaneValue:
    """What stands at addresses; in the lanes of a mask, zeros in the others. `align`: of the addresses, where it is
    less than that of numbers."""
    dtype = word(memory.dtype)
    of, vector, pointers, lanes = stored(dtype), w.vector(stored(dtype)), w.vector("ptr"), w.vector("i1")
    name = f"@llvm.masked.gather.{_suffix(w, of)}"
    w.f.declare(f"declare {vector} {name}({pointers}, i32, {lanes}, {vector})")
    where = w.spread(mask or w.constant(True, "bool")).text
    otherwise = "poison" if mask is None else "zeroinitializer"
    operands = f"{pointers} {addresses}, i32 {align or BYTES[of]}, {lanes} {where}, {vector} {otherwise}"
    found = w.f.let(f"call {vector} {name}({operands})")
    if dtype == "bool":
        found = w.f.let(f"trunc {vector} {found} to {lanes}")
    return LaneValue(found, dtype)


def _scatter(w: LaneWriter, memory: MemoryTensor, addresses: str, x: LaneValue, where: LaneValue | None) -> None:
    of, vector, pointers, lanes = stored(x.dtype), w.vector(stored(x.dtype)), w.vector("ptr"), w.vector("i1")
    text = x.text
    if x.dtype == "bool":
        text = w.f.let(f"zext {lanes} {text} to {vector}")
    name = f"@llvm.masked.scatter.{_suffix(w, of)}"
    w.f.declare(f"declare void {name}({vector}, {pointers}, i32, {lanes})")
    mask = w.spread(where or w.constant(True, "bool")).text
    w.f.do(f"call void {name}({vector} {text}, {pointers} {addresses}, i32 {BYTES[of]}, {lanes} {mask})")


def _suffix(w: LaneWriter, of: str) -> str:
    """How the names of gathers and scatters end."""
    return f"v{w.width}{of if of.startswith('i') else f'f{8 * BYTES[of]}'}.v{w.width}p0"
