"""Operations that only say where numbers come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    Tensor,
    add,
    constant,
    flat,
    fresh,
    multiply,
    over,
    unflat,
    word,
)
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

Shapes = Sequence[tuple[str, tuple[int, ...]]]
"""Dtype and shape of each result."""


def _moved(x: Tensor, shape: tuple[int, ...], where: Callable[[Indices], Indices]) -> Tensor:
    return Tensor(x.dtype, shape, lambda index: x.at(where(index)), x.held, x.fixed)


def reshape(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), ((_, shape),) = xs, results
    if op.name == "reshape" and op["dimensions"] is not None:
        raise RefusedError("reshape with another order of axes")
    kept = [k for k, n in enumerate(x.shape) if n != 1]
    if [x.shape[k] for k in kept] == [n for n in shape if n != 1]:  # only axes of one element come or go
        there = [k for k, n in enumerate(shape) if n != 1]

        def where(index: Indices) -> Indices:
            found: list[Index] = [0] * len(x.shape)
            for k, j in zip(kept, there, strict=True):
                found[k] = index[j]
            return tuple(found)

        return [_moved(x, shape, where)]
    return [_moved(x, shape, lambda index: unflat(w, flat(w, index, shape), x.shape))]


def broadcast(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, (_, shape) = xs[0], results[0]
    axes = op["broadcast_dimensions"]

    def where(index: Indices) -> Indices:
        return tuple(0 if n == 1 else index[axis] for axis, n in zip(axes, x.shape, strict=True))

    return [_moved(x, shape, where)]


def transpose(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), order = xs, op["permutation"]
    return [_moved(x, results[0][1], lambda index: tuple(index[order.index(k)] for k in range(len(order))))]


def reverse(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), axes = xs, op["dimensions"]

    def where(index: Indices) -> Indices:
        return tuple(
            add(w, n - 1, multiply(w, i, -1)) if k in axes else i
            for k, (i, n) in enumerate(zip(index, x.shape, strict=True))
        )

    return [_moved(x, x.shape, where)]


def part(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), starts = xs, op["start_indices"]
    strides = op["strides"] or (1,) * len(starts)

    def where(index: Indices) -> Indices:
        return tuple(add(w, multiply(w, i, s), b) for i, s, b in zip(index, strides, starts, strict=True))

    return [_moved(x, results[0][1], where)]


def split(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), axis = xs, op["axis"]
    starts = [0, *accumulate(op["sizes"])]

    def moved(begin: int, shape: tuple[int, ...]) -> Tensor:
        return _moved(x, shape, lambda i: (*i[:axis], add(w, i[axis], begin), *i[axis + 1 :]))

    return [moved(begin, shape) for begin, (_, shape) in zip(starts, results, strict=False)]


FEW = 3
"""Arrays side by side among which it is chosen at an index that is not known."""


def _written(
    w: LaneWriter, xs: Sequence[Tensor], dtype: str, shape: tuple[int, ...], begin: Sequence[Indices]
) -> Tensor:
    """Many arrays as one, each written where it begins: a choice among all at each index would be as many for each
    number."""
    memory = fresh(w, dtype, shape)
    for x, first in zip(xs, begin, strict=True):

        def write(index: Indices, x: Tensor = x, first: Indices = first) -> None:
            memory.write(tuple(add(w, i, k) for i, k in zip(index, first, strict=True)), x.at(index))

        over(w, x.shape, write, parallel=True)
    return memory.final


def concatenate(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    axis, (dtype, shape) = op["dimension"], results[0]
    ends = list(accumulate(x.shape[axis] for x in xs))
    if len(xs) > FEW and math.prod(shape) > SMALL:
        begin = [tuple(n if k == axis else 0 for k in range(len(shape))) for n in (0, *ends[:-1])]
        return [_written(w, xs, dtype, shape, begin)]

    def at(index: Indices) -> Element:
        place, begin = index[axis], 0
        found: Element | None = None
        for x, end in zip(xs, ends, strict=True):
            if isinstance(place, int):
                if begin <= place < end:
                    return x.at((*index[:axis], place - begin, *index[axis + 1 :]))
            elif begin < end:
                inside = clamped(w, add(w, place, -begin), end - begin)
                here = x.at((*index[:axis], inside, *index[axis + 1 :]))
                if found is not None:
                    past = LaneValue(w.f.let(f"icmp uge i64 {place}, {begin}"), "bool", True)
                    here = tuple(w.select(past, a, b) for a, b in zip(here, found, strict=True))
                found = here
            begin = end
        assert found is not None
        return found

    return [Tensor(dtype, shape, at)]


def clamped(w: LaneWriter, place: Index, size: int) -> Index:
    """A place, or the nearest one of 0 to `size - 1`."""
    if isinstance(place, int):
        return min(max(place, 0), size - 1)
    if size == 1:
        return 0
    for name, bound in (("smax", 0), ("smin", size - 1)):
        w.f.declare(f"declare i64 @llvm.{name}.i64(i64, i64)")
        place = w.f.let(f"call i64 @llvm.{name}.i64(i64 {place}, i64 {bound})")
    return place


def stack(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Arrays side by side along a new axis."""
    axis, (dtype, shape) = op["axis"], results[0]
    axis = axis % len(shape)
    if len(xs) > FEW and math.prod(shape) > SMALL:
        thin = [_moved(x, (*shape[:axis], 1, *shape[axis + 1 :]), lambda i: (*i[:axis], *i[axis + 1 :])) for x in xs]
        begin = [tuple(n if k == axis else 0 for k in range(len(shape))) for n in range(len(xs))]
        return [_written(w, thin, dtype, shape, begin)]

    def at(index: Indices) -> Element:
        place, rest = index[axis], (*index[:axis], *index[axis + 1 :])
        if isinstance(place, int):
            return xs[place].at(rest)
        found = xs[0].at(rest)
        for k, x in enumerate(xs[1:], 1):
            here = LaneValue(w.f.let(f"icmp eq i64 {place}, {k}"), "bool", True)
            found = tuple(w.select(here, a, b) for a, b in zip(x.at(rest), found, strict=True))
        return found

    return [Tensor(dtype, shape, at)]


def platform_index(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Which of some branches is meant for a processor: JAX lets libraries write one for each kind of device."""
    names = op["platforms"]
    found = next(k for k, name in enumerate(names) if name is None or "cpu" in name)
    return [constant(w, found, *results[0])]


def tile(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The array again and again, along each axis."""
    (x,), ((_, shape),) = xs, results

    def within(place: Index, size: int) -> Index:
        if isinstance(place, int) or size == 1:
            return place % size if isinstance(place, int) else 0
        return w.f.let(f"urem i64 {place}, {size}")

    return [_moved(x, shape, lambda index: tuple(map(within, index, x.shape)))]


def unstack(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """An array for each place of an axis."""
    (x,) = xs
    axis = op["axis"] % len(x.shape)

    def one(place: int, shape: tuple[int, ...]) -> Tensor:
        return _moved(x, shape, lambda index: (*index[:axis], place, *index[axis:]))

    return [one(k, shape) for k, (_, shape) in enumerate(results)]


def pad(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x, filling), (dtype, shape) = xs, results[0]
    config = op["padding_config"]
    if math.prod(x.shape) == 0:
        return [Tensor(dtype, shape, lambda _: filling.at(()))]

    def at(index: Indices) -> Element:
        inside: LaneValue | None = None
        places: list[Index] = []
        for i, (low, _, between), n in zip(index, config, x.shape, strict=True):
            if isinstance(i, int):
                place, off = divmod(i - low, between + 1)
                if off or not 0 <= place < n:
                    return filling.at(())
                places.append(place)
                continue
            moved = add(w, i, -low)
            held = [f"icmp sge i64 {moved}, 0", f"icmp slt i64 {moved}, {(n - 1) * (between + 1) + 1}"]
            if between:
                held.append(f"icmp eq i64 {w.f.let(f'srem i64 {moved}, {between + 1}')}, 0")
                moved = w.f.let(f"sdiv i64 {moved}, {between + 1}")
            for test in held:
                inside = w.both(inside, LaneValue(w.f.let(test), "bool", True))
            places.append(clamped(w, moved, n))
        found = x.at(tuple(places))
        if inside is None:
            return found
        return tuple(w.select(inside, a, b) for a, b in zip(found, filling.at(()), strict=True))

    return [Tensor(dtype, shape, at)]


def iota(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (dtype, shape), axis = results[0], op["dimension"]

    def at(index: Indices) -> Element:
        return (of_index(w, index[axis], dtype),)

    return [Tensor(dtype, shape, at, held=True, fixed=True)]


def of_index(w: LaneWriter, index: Index, dtype: str) -> LaneValue:
    """An index as a number."""
    if isinstance(index, (int, np.integer)):
        return w.constant(int(index), dtype)
    whole = LaneValue(index, "int64", True)
    if dtype.startswith("float"):
        return w.cast("sitofp", whole, dtype)
    bits = w.constant(0, word(dtype)).bits
    return LaneValue(index, dtype, True) if bits == 64 else w.cast("trunc", whole, dtype)


MOVES: Mapping[str, Callable[..., list[Tensor]]] = {
    "broadcast_in_dim": broadcast,
    "concatenate": concatenate,
    "iota": iota,
    "pad": pad,
    "platform_index": platform_index,
    "reshape": reshape,
    "rev": reverse,
    "slice": part,
    "split": split,
    "squeeze": reshape,
    "stack": stack,
    "tile": tile,
    "transpose": transpose,
    "unstack": unstack,
}
