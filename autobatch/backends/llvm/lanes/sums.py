"""Sums and products of the floats of an array: the order is fixed, and the same with any number of lanes.

    n numbers, P parts      part j = x[j] + x[j + P] + x[j + 2 P] + ...
    P = 4                   sum    = (part 0 + part 2) + (part 1 + part 3)

An addition waits for the one before, four cycles or so; parts do not wait for each other. With one lane a part is a
number of a vector; in a gang, where each number is a vector already, one part comes after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Index,
    Indices,
    MemoryTensor,
    add,
    constant,
    every,
    fresh,
    multiply,
    over,
)
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter

MOST_PARTS = 64
"""Four vectors of 16 numbers: as many additions are on their way at once."""

TERMS = 4
"""Numbers of a part, at least."""

At = Callable[[Indices], LaneValue]


def parts_of(count: int) -> int:
    """How many parts a sum of so many numbers has: a power of two."""
    parts = 1
    while parts < MOST_PARTS and 2 * parts * TERMS <= count:
        parts *= 2
    return parts


def total_of_floats(w: LaneWriter, kind: str, dtype: str, shape: Sequence[int], at: At) -> LaneValue:
    """What is left of all numbers of a shape: their sum or their product."""
    combine = LaneWriter.sum if kind == "sum" else LaneWriter.product
    neutral = 0.0 if kind == "sum" else 1.0
    if math.prod(shape) == 0:
        return w.constant(neutral, dtype)
    if math.prod(shape) <= SMALL:
        found = _few(w, combine, list(every(shape)), at)
        return w.sum(found, w.constant(0.0, dtype)) if kind == "sum" else found  # of negative zeros alone it is 0.0
    axis = max(range(len(shape)), key=lambda k: (shape[k], k))
    parts = parts_of(shape[axis])
    memory = fresh(w, dtype, (parts,))
    many = _Many(w, combine, list(shape), at, axis, parts)
    (many.in_vectors if w.width == 1 else many.by_parts)(memory, neutral)
    if w.width == 1:
        return joined_vector(w, "fadd" if kind == "sum" else "fmul", memory.pointer, dtype, parts)
    return _joined(w, combine, [memory.read((j,))[0] for j in range(parts)])


def _few(
    w: LaneWriter, combine: Callable[[LaneWriter, LaneValue, LaneValue], LaneValue], places: list[Indices], at: At
) -> LaneValue:
    parts = parts_of(len(places))
    found: list[LaneValue] = []
    for k, index in enumerate(places):
        if k < parts:
            found.append(at(index))
        else:
            found[k % parts] = combine(w, found[k % parts], at(index))
    return _joined(w, combine, found)


def _joined(
    w: LaneWriter, combine: Callable[[LaneWriter, LaneValue, LaneValue], LaneValue], parts: list[LaneValue]
) -> LaneValue:
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(w, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def joined_vector(w: LaneWriter, instruction: str, pointer: str, dtype: str, parts: int) -> LaneValue:
    """The same of numbers that lie in memory side by side."""
    f, of = w.f, w.type_of(dtype, shared=True)
    if parts == 1:
        return LaneValue(f.let(f"load {of}, ptr {pointer}"), dtype)
    held = f.let(f"load <{parts} x {of}>, ptr {pointer}, align {w.bytes_of(dtype)}")
    while parts > 1:
        half = parts // 2
        sides = [
            f.let(
                f"shufflevector <{parts} x {of}> {held}, <{parts} x {of}> poison, "
                f"<{half} x i32> <{', '.join(f'i32 {k}' for k in range(begin, begin + half))}>"
            )
            for begin in (0, half)
        ]
        held, parts = f.let(f"{instruction} <{half} x {of}> {sides[0]}, {sides[1]}"), half
    return LaneValue(f.let(f"extractelement <1 x {of}> {held}, i64 0"), dtype)


def _powers(count: int) -> list[int]:
    """The powers of two that a number is the sum of, from the largest."""
    return [1 << k for k in reversed(range(count.bit_length())) if count >> k & 1]


class _Many:
    """`parts` parts along an axis, of numbers that are asked for in loops."""

    def __init__(
        self,
        w: LaneWriter,
        combine: Callable[[LaneWriter, LaneValue, LaneValue], LaneValue],
        shape: list[int],
        at: At,
        axis: int,
        parts: int,
    ) -> None:
        self.w, self.combine, self.at, self.axis, self.parts = w, combine, at, axis, parts
        self.outer = [*shape[:axis], *shape[axis + 1 :]]
        self.turns, self.left = divmod(shape[axis], parts)

    def number(self, outer: Indices, turn: Index, part: Index) -> LaneValue:
        place = add(self.w, multiply(self.w, turn, self.parts), part)
        return self.at((*outer[: self.axis], place, *outer[self.axis :]))

    def in_vectors(self, memory: MemoryTensor, neutral: float) -> None:
        """A turn of the loop adds a number to each part, as one vector."""
        w = self.w
        memory.fill(constant(w, neutral, memory.dtype, memory.shape))

        def turn(outer: Indices, number: Index, begin: int, count: int) -> None:
            def one(part: Index) -> None:
                memory.write((part,), (self.combine(w, memory.read((part,))[0], self.number(outer, number, part)),))

            if count <= 2:
                for k in range(count):
                    one(begin + k)
                return
            with w.as_vector(count) as part:
                one(add(w, part, begin))

        def line(outer: Indices) -> None:
            with w.f.loop(0, self.turns, 1) as number:
                turn(outer, number, 0, self.parts)
            begin = 0
            for count in _powers(self.left):
                turn(outer, self.turns, begin, count)
                begin += count

        with ExitStack() as loops:  # not for LLVM to make vectors of
            line(tuple(loops.enter_context(w.f.loop(0, n, 1)) for n in self.outer))

    def by_parts(self, memory: MemoryTensor, neutral: float) -> None:
        """All of a part, then all of the next."""
        w = self.w
        held = w.slot(memory.dtype)

        def part(j: Index, turns: int) -> None:
            held.set(w.constant(neutral, memory.dtype))

            def line(outer: Indices) -> None:
                def term(inner: Indices) -> None:
                    held.set(self.combine(w, held.get(), self.number(outer, inner[0], j)))

                over(w, (turns,), term)

            over(w, self.outer, line)
            memory.write((j,), (held.get(),))

        for begin, end, turns in ((0, self.left, self.turns + 1), (self.left, self.parts, self.turns)):
            if end - begin == 1:
                part(begin, turns)
            elif begin < end:
                with w.loop(end - begin) as j:
                    part(add(w, j, begin), turns)
