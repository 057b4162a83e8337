"""Reads and writes of memory at places that each lane of a gang has for itself.

    %places = getelementptr float, ptr %array, <16 x i32> %index        one array for all lanes
    %found = call <16 x float> @llvm.masked.gather(%places, ...)

Places are in range in every lane, so reads have no mask; rows of columns are so in the lanes that are there. Places
stay 32 bits wide as long as the array allows: a gather
by 64 bits is two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax.lax import GatherScatterMode

from autobatch.backends.llvm.lanes.elementwise import BY_NUMBER, convert
from autobatch.backends.llvm.lanes.reductions import least, most
from autobatch.backends.llvm.lanes.tensors import (
    Element,
    Index,
    Indices,
    MemoryTensor,
    Shapes,
    Tensor,
    add,
    clamped,
    element,
    every,
    flat,
    fresh,
    in_registers,
    kept,
    multiply,
    over,
    registers,
    word,
    words,
)
from autobatch.backends.llvm.lanes.writer import BYTES, COMPLEX, ZERO, LaneValue, LaneWriter, rounded, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.core import Apply, Array
from autobatch.ir.ops import Op

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
    where = w.spread(mask or w.constant(True, "bool")).text
    return w.gathered(dtype, addresses, where, align, "poison" if mask is None else ZERO)


def _scatter(w: LaneWriter, memory: MemoryTensor, addresses: str, x: LaneValue, where: LaneValue | None) -> None:
    w.scatter(x, addresses, w.spread(where or w.constant(True, "bool")).text)


# ---- indexing
#
# Reads and writes at computed places: `dynamic_slice`, `dynamic_update_slice`, `gather`, `scatter`.
#
# A place that all lanes share is an address. One that lanes compute is an address too where there is one lane; in a
# gang it is chosen among few numbers in registers, bit by bit of the place, and gathered from memory. No lane reads or
# writes outside of an array.


FEW = 32
"""Places along an axis among which a lane of a gang chooses its own, where they are in no memory."""

Place = int | str | LaneValue
"""An index, or one that each lane of a gang has for itself: an int32 where that is enough for the number it stems from,
else an int64."""


def place_of(w: LaneWriter, x: LaneValue) -> Place:
    """A number as an index."""
    if x.shared or w.width == 1:
        return convert(w, x, "int64").text
    return convert(w, x, "int32" if x.bits < 32 or (x.is_signed and x.bits == 32) else "int64")


def bounded(w: LaneWriter, place: Place, size: int) -> Place:
    if isinstance(place, LaneValue):
        low = w.intrinsic("smax", place, w.constant(0, place.dtype))
        return w.intrinsic("smin", low, w.constant(size - 1, place.dtype))
    return clamped(w, place, size)


def moved(w: LaneWriter, place: Place, by: Index) -> Place:
    if isinstance(place, LaneValue):
        if by == 0:
            return place
        other = LaneValue(by, "int64", True) if isinstance(by, str) else w.constant(by, place.dtype)
        return w.instruction("add", place, convert(w, other, place.dtype))
    return add(w, place, by)


def read(w: LaneWriter, x: Tensor, places: Sequence[Place]) -> Element:
    """The element at places that are in range."""
    axis = next((k for k, place in enumerate(places) if isinstance(place, LaneValue)), None)
    if axis is None:
        return x.at(tuple(i for i in places if not isinstance(i, LaneValue)))
    if x.memory is not None:
        return gathered(w, x.memory, places)
    place, size = places[axis], x.shape[axis]
    assert isinstance(place, LaneValue)
    if size > FEW:
        raise RefusedError("a read at a place that each lane of a gang has for itself, from a large array that is none")
    return _chosen(w, place, [read(w, x, [*places[:axis], k, *places[axis + 1 :]]) for k in range(size)])


def _chosen(w: LaneWriter, place: LaneValue, among: list[Element]) -> Element:
    """One of some elements: neighbours by the lowest bit of the place, those that are left by the next."""
    bit = 1
    while len(among) > 1:
        one = w.instruction("and", place, w.constant(bit, place.dtype))
        odd = w.instruction("icmp ne", one, w.constant(0, place.dtype), "bool")
        pairs = zip(among[1::2], among[::2], strict=False)
        left = among[-1:] if len(among) % 2 else []
        among = [*(tuple(w.select(odd, a, b) for a, b in zip(x, y, strict=True)) for x, y in pairs), *left]
        bit *= 2
    return among[0]


Read = Callable[[Indices], tuple[list[Place], LaneValue | None]]
"""For each element of what is read, the places that it is read at, in range; and whether it is (None: always)."""


def places_of_slice(w: LaneWriter, op: Op, shape: Sequence[int], starts: Sequence[Tensor]) -> Read:
    """Of `dynamic_slice`, from an array of a shape."""
    sizes = zip(starts, shape, op["slice_sizes"], strict=True)
    begin = [bounded(w, place_of(w, s.one()), n - size + 1) for s, n, size in sizes]
    return lambda index: ([moved(w, b, i) for b, i in zip(begin, index, strict=True)], None)


def places_of_constant_slice(w: LaneWriter, op: Op, shape: Sequence[int], others: Sequence[Tensor]) -> Read:
    """Of `slice`."""
    steps = op["strides"] or (1,) * len(shape)

    def places(index: Indices) -> tuple[list[Place], LaneValue | None]:
        found = zip(op["start_indices"], index, steps, strict=True)
        return [add(w, multiply(w, i, step), begin) for begin, i, step in found], None

    return places


def dynamic_slice(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, *starts = xs
    (dtype, shape), x = results[0], kept(w, x)
    places = places_of_slice(w, op, x.shape, starts)
    return [Tensor(dtype, shape, lambda index: read(w, x, places(index)[0]))]


def places_of_update(w: LaneWriter, op: Op, shape: Sequence[int], others: Sequence[Tensor]) -> Read:
    """Of `dynamic_update_slice`, into an array of a shape."""
    new, *starts = others
    begin = [bounded(w, place_of(w, s.one()), n - m + 1) for s, n, m in zip(starts, shape, new.shape, strict=True)]
    return lambda index: ([moved(w, b, k) for b, k in zip(begin, index, strict=True)], None)


def dynamic_update_slice(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, new, *_ = xs
    places = places_of_update(w, op, x.shape, xs[1:])

    def write(into: _Into) -> None:
        held = kept(w, new)
        over(w, new.shape, lambda i: into.write(places(i)[0], held.at(i), None))

    return [_changed(w, x, write)]


class _Into:
    """An array that is written to here and there: few numbers in registers, many in memory."""

    def __init__(self, w: LaneWriter, x: Tensor) -> None:
        self.w, self.x = w, x
        self.memory = None
        if x.given is not None and x.memory is not None:
            self.memory = x.memory
        elif w.width == 1 or not in_registers(x.size):
            self.memory = fresh(w, x.dtype, x.shape)
            self.memory.fill(x)
        else:
            self.elements = {index: tuple(map(rounded, x.at(index))) for index in every(x.shape)}

    def write(self, places: Sequence[Place], element: Element, where: LaneValue | None) -> None:
        """Write at places in range, in the lanes of a mask."""
        self.update(places, lambda _: element, where)

    def update(self, places: Sequence[Place], make: Callable[[Element], Element], where: LaneValue | None) -> None:
        w = self.w
        if self.x.given is not None and self.x.given.mask is not None:
            where = self.x.given.mask if where is None else w.both(self.x.given.mask, where)
        if self.memory is not None:
            if any(isinstance(p, LaneValue) for p in places):
                scattered(w, self.memory, places, make(gathered(w, self.memory, places)), where)
                return
            index = tuple(p for p in places if not isinstance(p, LaneValue))
            old = self.memory.read(index)
            if self.x.given is not None and self.x.given.note is not None:
                self.x.given.note(index, old)
            new = make(old)
            if where is not None:
                new = tuple(w.select(where, a, b) for a, b in zip(new, old, strict=True))
            self.memory.write(index, new)
            return
        for index, old in self.elements.items():
            here = where
            if any(isinstance(p, int) and p != i for p, i in zip(places, index, strict=True)):
                continue
            for p, i in zip(places, index, strict=True):
                if isinstance(p, int):
                    continue
                number = p if isinstance(p, LaneValue) else LaneValue(p, "int64", True)
                here = w.both(here, w.instruction("icmp eq", number, w.constant(i, number.dtype), "bool"))
            new = make(old)
            if here is not None:
                new = tuple(w.select(here, a, b) for a, b in zip(new, old, strict=True))
            self.elements[index] = new

    @property
    def tensor(self) -> Tensor:
        if self.memory is not None:
            return self.memory.tensor if self.x.given is not None else self.memory.final
        return registers(self.w, self.x.dtype, self.x.shape, list(self.elements.values()))


def _changed(w: LaneWriter, x: Tensor, change: Callable[[_Into], None]) -> Tensor:
    into = _Into(w, x)
    change(into)
    return into.tensor


def _inside(w: LaneWriter, places: Sequence[Place], most: Sequence[int]) -> LaneValue | None:
    """Is each place from 0 to a bound? None: always."""
    found: LaneValue | None = None
    for place, bound in zip(places, most, strict=True):
        if isinstance(place, int):
            if not 0 <= place <= bound:
                return w.constant(False, "bool")
            continue
        number = place if isinstance(place, LaneValue) else LaneValue(place, "int64", True)
        found = w.both(found, w.instruction("icmp ule", number, w.constant(bound, number.dtype), "bool"))
    return found


def places_of_gather(w: LaneWriter, op: Op, shape: Sequence[int], others: Sequence[Tensor]) -> Read:
    """Of `gather`, from an array of a shape."""
    indices = kept(w, others[0])
    numbers, sizes = op["dimension_numbers"], op["slice_sizes"]
    mode = GatherScatterMode.from_any(op["mode"])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [k for k in range(len(shape)) if k not in dropped]
    room = [n - size for n, size in zip(shape, sizes, strict=True)]

    def places(index: Indices) -> tuple[list[Place], LaneValue | None]:
        outer = tuple(i for k, i in enumerate(index) if k not in numbers.offset_dims)
        starts: list[Place] = [0] * len(shape)
        for k, axis in enumerate(numbers.start_index_map):
            starts[axis] = place_of(w, indices.one((*outer, k)))
        for axis, of in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            starts[axis] = outer[of]
        inside = _inside(w, starts, room) if mode == GatherScatterMode.FILL_OR_DROP else None
        found = [bounded(w, s, r + 1) for s, r in zip(starts, room, strict=True)]
        for axis, k in zip(window, numbers.offset_dims, strict=True):
            found[axis] = moved(w, found[axis], index[k])
        return found, inside

    return places


def places_of_row(w: LaneWriter, op: Op, shape: Sequence[int], others: Sequence[Tensor]) -> Read:
    """Of `take_row`."""
    row = place_of(w, others[0].one())
    return lambda index: ([row, *index], None)


def gather(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (dtype, shape), x = results[0], kept(w, xs[0])
    places = places_of_gather(w, op, x.shape, xs[1:])

    def at(index: Indices) -> Element:
        there, inside = places(index)
        found = read(w, x, there)
        if inside is None:
            return found
        filling = _filling(w, op["fill_value"], dtype)
        return tuple(w.select(inside, a, b) for a, b in zip(found, filling, strict=True))

    return [Tensor(dtype, shape, at)]


PLACES_READ: Mapping[str, Callable[[LaneWriter, Op, Sequence[int], Sequence[Tensor]], Read]] = {
    "slice": places_of_constant_slice,
    "dynamic_slice": places_of_slice,
    "gather": places_of_gather,
    "take_row": places_of_row,
}
"""Operations that read elements of their first operand, and what tells where."""


def add_read(
    w: LaneWriter, op: Op, to: MemoryTensor, others: Sequence[Tensor], x: Tensor, mask: LaneValue | None
) -> None:
    """The transpose of such an operation, in one lane: add numbers, if `mask`, where it has read those of `x`."""
    places, x = PLACES_READ[op.name](w, op, to.shape, others), kept(w, x)

    def one(index: Indices) -> None:
        there, inside = places(index)
        wanted = mask if inside is None else w.both(mask, inside)
        add_to(w, to, tuple(i for i in there if not isinstance(i, LaneValue)), x.one(index), wanted)

    last = max((k for k, n in enumerate(x.shape) if n > 1), default=-1)
    over(w, x.shape, one, vectors=op.name != "gather" or last in op["dimension_numbers"].offset_dims)


def add_to(w: LaneWriter, to: MemoryTensor, index: Indices, x: LaneValue, mask: LaneValue | None) -> None:
    """Add a number to one in memory, if `mask`."""
    if mask is not None:
        x = w.select(mask, x, w.constant(0, x.dtype))
    to.write(index, (w.instruction("fadd", to.read(index)[0], x),))


def add_all(w: LaneWriter, to: MemoryTensor, x: Tensor, mask: LaneValue | None) -> None:
    over(w, x.shape, lambda index: add_to(w, to, index, x.one(index), mask))


def _filling(w: LaneWriter, value: object, dtype: str) -> Element:
    """What JAX reads outside of an array: NaN, the least of signed numbers, the largest of others."""
    if value is not None:
        return element(w, np.asarray(value).item(), dtype)
    if dtype in COMPLEX or dtype.startswith(("float", "bfloat")):
        return element(w, float("nan"), dtype)
    return element(w, least(dtype) if dtype.startswith("int") else most(dtype), dtype)


def places_of_scatter(w: LaneWriter, op: Op, shape: Sequence[int], others: Sequence[Tensor]) -> Read:
    """Of `scatter`, into an array of a shape."""
    indices, updates = kept(w, others[0]), others[1]
    numbers = op["dimension_numbers"]
    mode = GatherScatterMode.from_any(op["mode"])
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = [k for k in range(len(shape)) if k not in dropped]
    batch = [k for k in range(len(updates.shape)) if k not in numbers.update_window_dims]
    sizes = [1] * len(shape)
    for axis, k in zip(window, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[k]
    room = [n - size for n, size in zip(shape, sizes, strict=True)]

    def places(index: Indices) -> tuple[list[Place], LaneValue | None]:
        outer = tuple(index[k] for k in batch)
        starts: list[Place] = [0] * len(shape)
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            starts[axis] = place_of(w, indices.one((*outer, k)))
        for axis, of in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            starts[axis] = outer[of]
        inside = _inside(w, starts, room) if mode != GatherScatterMode.CLIP else None  # as XLA: it drops the rest
        found = [bounded(w, s, r + 1) for s, r in zip(starts, room, strict=True)]
        for axis, k in zip(window, numbers.update_window_dims, strict=True):
            found[axis] = moved(w, found[axis], index[k])
        return found, inside

    return places


@dataclass(frozen=True)
class WrittenPlaces:
    """An operation that writes numbers of another operand, `new`, into its first: `places` of these; `once`: does an
    instruction write to no place twice?"""

    places: Callable[[LaneWriter, Op, Sequence[int], Sequence[Tensor]], Read]
    new: int
    once: Callable[[Apply], bool]


def _is_one_window(i: Apply) -> bool:
    """Of `scatter`: is all that it writes side by side?"""
    window, new = i.op["dimension_numbers"].update_window_dims, i.operands[2].type
    return isinstance(new, Array) and all(n == 1 for k, n in enumerate(new.shape) if k not in window)


PLACES_WRITTEN: Mapping[str, WrittenPlaces] = {
    "dynamic_update_slice": WrittenPlaces(places_of_update, 1, lambda i: True),
    "scatter": WrittenPlaces(places_of_scatter, 2, _is_one_window),
}
"""Operations whose result is their first operand but for numbers that they write, and what tells where."""


def scatter(combine: str | None) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        x, updates = xs[0], kept(w, xs[2])
        where = places_of_scatter(w, op, x.shape, [xs[1], updates])

        def write(into: _Into) -> None:
            def one(index: Indices) -> None:
                places, inside = where(index)
                new = updates.at(index)

                def made(old: Element) -> Element:
                    if combine is None:
                        return new
                    return tuple(BY_NUMBER[combine](w, Op(combine), a, b) for a, b in zip(old, new, strict=True))

                into.update(places, made, inside)

            last = max((k for k, n in enumerate(updates.shape) if n > 1), default=-1)
            window = op["dimension_numbers"].update_window_dims
            over(w, updates.shape, one, vectors=last in window)  # two others may be at one place

        return [_changed(w, x, write)]

    return rule


INDEXING: Mapping[str, Callable[..., list[Tensor]]] = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    "scatter": scatter(None),
    "scatter-add": scatter("add"),
    "scatter-max": scatter("max"),
    "scatter-min": scatter("min"),
    "scatter-mul": scatter("mul"),
}
