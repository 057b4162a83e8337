"""Reads and writes at computed places: `dynamic_slice`, `dynamic_update_slice`, `gather`, `scatter`.

A place that all lanes share is an address. One that lanes compute is an address too where there is one lane; in a gang
it is chosen among few numbers in registers, bit by bit of the place, and gathered from memory. No lane reads or writes
outside of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jax.lax import GatherScatterMode

from autobatch.backends.llvm.lanes.by_number import BY_NUMBER, convert
from autobatch.backends.llvm.lanes.gathers import gathered, scattered
from autobatch.backends.llvm.lanes.moves import Shapes, clamped
from autobatch.backends.llvm.lanes.reductions import least, most
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    Tensor,
    add,
    element,
    every,
    fresh,
    kept,
    over,
    registers,
)
from autobatch.backends.llvm.lanes.writer import COMPLEX, Number, Writer, rounded
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

FEW = 32
"""Places along an axis among which a lane of a gang chooses its own, where they are in no memory."""

Place = int | str | Number
"""An index, or one that each lane of a gang has for itself: an int32 where that is enough for the number it stems from,
else an int64."""


def place_of(w: Writer, x: Number) -> Place:
    """A number as an index."""
    if x.shared or w.width == 1:
        return convert(w, x, "int64").text
    return convert(w, x, "int32" if x.bits < 32 or (x.is_signed and x.bits == 32) else "int64")


def bounded(w: Writer, place: Place, size: int) -> Place:
    if isinstance(place, Number):
        low = w.intrinsic("smax", place, w.constant(0, place.dtype))
        return w.intrinsic("smin", low, w.constant(size - 1, place.dtype))
    return clamped(w, place, size)


def moved(w: Writer, place: Place, by: Index) -> Place:
    if isinstance(place, Number):
        if by == 0:
            return place
        other = Number(by, "int64", True) if isinstance(by, str) else w.constant(by, place.dtype)
        return w.instruction("add", place, convert(w, other, place.dtype))
    return add(w, place, by)


def read(w: Writer, x: Tensor, places: Sequence[Place]) -> Element:
    """The element at places that are in range."""
    axis = next((k for k, place in enumerate(places) if isinstance(place, Number)), None)
    if axis is None:
        return x.at(tuple(i for i in places if not isinstance(i, Number)))
    if x.memory is not None:
        return gathered(w, x.memory, places)
    place, size = places[axis], x.shape[axis]
    assert isinstance(place, Number)
    if size > FEW:
        raise RefusedError("a read at a place that each lane of a gang has for itself, from a large array that is none")
    return _chosen(w, place, [read(w, x, [*places[:axis], k, *places[axis + 1 :]]) for k in range(size)])


def _chosen(w: Writer, place: Number, among: list[Element]) -> Element:
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


def dynamic_slice(w: Writer, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, *starts = xs
    (dtype, shape), x = results[0], kept(w, x)
    begin = [bounded(w, place_of(w, s.one()), n - size + 1) for s, n, size in zip(starts, x.shape, shape, strict=True)]

    def at(index: Indices) -> Element:
        return read(w, x, [moved(w, b, i) for b, i in zip(begin, index, strict=True)])

    return [Tensor(dtype, shape, at)]


def dynamic_update_slice(w: Writer, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, new, *starts = xs
    begin = [bounded(w, place_of(w, s.one()), n - m + 1) for s, n, m in zip(starts, x.shape, new.shape, strict=True)]

    def write(into: _Into) -> None:
        held = kept(w, new)
        over(
            w,
            new.shape,
            lambda i: into.write([moved(w, b, k) for b, k in zip(begin, i, strict=True)], held.at(i), None),
        )

    return [_changed(w, x, write)]


class _Into:
    """An array that is written to here and there: few numbers in registers, many in memory."""

    def __init__(self, w: Writer, x: Tensor) -> None:
        self.w, self.x = w, x
        self.memory = None
        if x.given is not None and x.memory is not None:
            self.memory = x.memory
        elif w.width == 1 or x.size > SMALL:
            self.memory = fresh(w, x.dtype, x.shape)
            self.memory.fill(x)
        else:
            self.elements = {index: tuple(map(rounded, x.at(index))) for index in every(x.shape)}

    def write(self, places: Sequence[Place], element: Element, where: Number | None) -> None:
        """Write at places in range, in the lanes of a mask."""
        self.update(places, lambda _: element, where)

    def update(self, places: Sequence[Place], make: Callable[[Element], Element], where: Number | None) -> None:
        w = self.w
        if self.x.given is not None and self.x.given.mask is not None:
            where = self.x.given.mask if where is None else w.both(self.x.given.mask, where)
        if self.memory is not None:
            if any(isinstance(p, Number) for p in places):
                scattered(w, self.memory, places, make(gathered(w, self.memory, places)), where)
                return
            index = tuple(p for p in places if not isinstance(p, Number))
            old = self.memory.read(index)
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
                number = p if isinstance(p, Number) else Number(p, "int64", True)
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


def _changed(w: Writer, x: Tensor, change: Callable[[_Into], None]) -> Tensor:
    into = _Into(w, x)
    change(into)
    return into.tensor


def _inside(w: Writer, places: Sequence[Place], most: Sequence[int]) -> Number | None:
    """Is each place from 0 to a bound? None: always."""
    found: Number | None = None
    for place, bound in zip(places, most, strict=True):
        if isinstance(place, int):
            if not 0 <= place <= bound:
                return w.constant(False, "bool")
            continue
        number = place if isinstance(place, Number) else Number(place, "int64", True)
        found = w.both(found, w.instruction("icmp ule", number, w.constant(bound, number.dtype), "bool"))
    return found


def gather(w: Writer, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, indices = (kept(w, t) for t in xs)
    (dtype, shape), numbers, sizes = results[0], op["dimension_numbers"], op["slice_sizes"]
    mode = GatherScatterMode.from_any(op["mode"])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [k for k in range(len(x.shape)) if k not in dropped]
    batch = [k for k in range(len(shape)) if k not in numbers.offset_dims]

    def at(index: Indices) -> Element:
        outer = tuple(index[k] for k in batch)
        starts: list[Place] = [0] * len(x.shape)
        for k, axis in enumerate(numbers.start_index_map):
            starts[axis] = place_of(w, indices.one((*outer, k)))
        for axis, of in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            starts[axis] = outer[of]
        room = [n - size for n, size in zip(x.shape, sizes, strict=True)]
        inside = None
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = _inside(w, starts, room)
        places = [bounded(w, s, r + 1) for s, r in zip(starts, room, strict=True)]
        for axis, k in zip(window, numbers.offset_dims, strict=True):
            places[axis] = moved(w, places[axis], index[k])
        found = read(w, x, places)
        if inside is None:
            return found
        filling = _filling(w, op["fill_value"], dtype)
        return tuple(w.select(inside, a, b) for a, b in zip(found, filling, strict=True))

    return [Tensor(dtype, shape, at)]


def _filling(w: Writer, value: object, dtype: str) -> Element:
    """What JAX reads outside of an array: NaN, the least of signed numbers, the largest of others."""
    if value is not None:
        return element(w, np.asarray(value).item(), dtype)
    if dtype in COMPLEX or dtype.startswith(("float", "bfloat")):
        return element(w, float("nan"), dtype)
    return element(w, least(dtype) if dtype.startswith("int") else most(dtype), dtype)


def scatter(combine: str | None) -> Callable[..., list[Tensor]]:
    def rule(w: Writer, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        x, indices, updates = xs[0], kept(w, xs[1]), kept(w, xs[2])
        numbers = op["dimension_numbers"]
        window_dims = numbers.update_window_dims
        mode = GatherScatterMode.from_any(op["mode"])
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        window = [k for k in range(len(x.shape)) if k not in dropped]
        batch = [k for k in range(len(updates.shape)) if k not in numbers.update_window_dims]
        sizes = [1] * len(x.shape)
        for axis, k in zip(window, numbers.update_window_dims, strict=True):
            sizes[axis] = updates.shape[k]
        room = [n - size for n, size in zip(x.shape, sizes, strict=True)]

        def write(into: _Into) -> None:
            def one(index: Indices) -> None:
                outer = tuple(index[k] for k in batch)
                starts: list[Place] = [0] * len(x.shape)
                for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
                    starts[axis] = place_of(w, indices.one((*outer, k)))
                for axis, of in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
                    starts[axis] = outer[of]
                inside = (
                    _inside(w, starts, room) if mode != GatherScatterMode.CLIP else None
                )  # as XLA: it drops the rest
                places = [bounded(w, s, r + 1) for s, r in zip(starts, room, strict=True)]
                for axis, k in zip(window, numbers.update_window_dims, strict=True):
                    places[axis] = moved(w, places[axis], index[k])
                new = updates.at(index)

                def made(old: Element) -> Element:
                    if combine is None:
                        return new
                    return tuple(BY_NUMBER[combine](w, Op(combine), a, b) for a, b in zip(old, new, strict=True))

                into.update(places, made, inside)

            last = max((k for k, n in enumerate(updates.shape) if n > 1), default=-1)
            over(w, updates.shape, one, vectors=last in window_dims)  # two others may be at one place

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
