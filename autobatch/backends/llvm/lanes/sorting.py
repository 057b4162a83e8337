"""Sorting along an axis: Batcher's network, whose comparisons are at places that all lanes share.

    for each stage: for each pair (i, i + d) of it: if key[i + d] < key[i]: exchange them

Few numbers are sorted in registers, many in memory, by a loop over the pairs of each stage. Equal keys stay in order:
the place is the last key.

Source: K. E. Batcher, "Sorting networks and their applications", 1968; D. E. Knuth, The Art of Computer Programming,
volume 3, algorithm 5.2.2M.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autobatch.backends.llvm.lanes.by_number import BY_NUMBER
from autobatch.backends.llvm.lanes.moves import Shapes, of_index
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    MemoryTensor,
    Tensor,
    add,
    every,
    fresh,
    multiply,
    over,
    registers,
)
from autobatch.backends.llvm.lanes.writer import COMPLEX, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

LONGEST = 4096
"""Numbers along an axis that are sorted."""

Row = list[LaneValue]
"""One number of each array that is sorted together, and the place where they were."""

Less = Callable[[LaneWriter, Row, Row], LaneValue]


@dataclass(frozen=True)
class SortStage:
    """Pairs of places: from `first` on, `run` of them side by side, then `run` that are none; each with the one
    `distance` behind it, where that is one of `count`."""

    first: int
    run: int
    distance: int
    count: int

    def __len__(self) -> int:
        """How many there are."""
        left = self.count - self.distance - self.first
        whole, rest = divmod(max(left, 0), 2 * self.run)
        return whole * self.run + min(rest, self.run)

    def place(self, number: int) -> int:
        return self.first + number // self.run * 2 * self.run + number % self.run


def stages(count: int) -> Iterator[SortStage]:
    """Those of a network for so many numbers."""
    if count < 2:
        return
    top = 1 << ((count - 1).bit_length() - 1)
    run = top
    while run:
        end, first, distance = top, 0, run
        while True:
            yield SortStage(first, run, distance, count)
            if end == run:
                break
            distance, end, first = end - run, end // 2, run
        run //= 2


def before(w: LaneWriter, a: LaneValue, b: LaneValue) -> LaneValue:
    """Is a before b in rising order? NaN is behind all others."""
    less = BY_NUMBER["lt"](w, Op("lt"), a, b)
    if not a.is_float:
        return less
    only = w.both(w.instruction("fcmp uno", b, b, "bool"), w.instruction("fcmp ord", a, a, "bool"))
    return w.instruction("or", less, only)


def by_keys(count: int, falling: bool = False) -> Less:
    """By the first numbers of a row, then by its place."""

    def less(w: LaneWriter, x: Row, y: Row) -> LaneValue:
        found = BY_NUMBER["lt"](w, Op("lt"), x[-1], y[-1])
        for a, b in reversed(list(zip(x[:count], y[:count], strict=True))):
            ahead, behind = before(w, a, b), before(w, b, a)
            if falling:
                ahead, behind = behind, ahead
            found = w.instruction("or", ahead, w.both(w.negated(behind), found))
        return found

    return less


def sorted_together(w: LaneWriter, xs: Sequence[Tensor], axis: int, less: Less) -> list[Tensor]:
    """Arrays of one shape, each line along an axis in the order of its rows; then where they were."""
    shape = xs[0].shape
    if any(x.dtype in COMPLEX or len(x.at((0,) * len(shape))) != 1 for x in xs if x.size):
        raise RefusedError("an order of what are no numbers")
    if shape[axis] > LONGEST:
        raise RefusedError(f"an order of more than {LONGEST:,} numbers")
    dtypes = [*(x.dtype for x in xs), "int32"]
    places = Tensor("int32", shape, lambda index: (of_index(w, index[axis], "int32"),))
    if math.prod(shape) <= SMALL:
        return _in_registers(w, [*xs, places], axis, less)
    memory = [fresh(w, dtype, shape) for dtype in dtypes]
    for m, x in zip(memory, [*xs, places], strict=True):
        m.fill(x)
    other = [n for k, n in enumerate(shape) if k != axis]
    over(w, other, lambda rest: _line(w, memory, shape[axis], lambda i: (*rest[:axis], i, *rest[axis:]), less))
    return [m.final for m in memory]


def _exchanged(w: LaneWriter, low: Row, high: Row, less: Less) -> tuple[Row, Row]:
    wrong = less(w, high, low)
    pairs = list(zip(low, high, strict=True))
    return [w.select(wrong, b, a) for a, b in pairs], [w.select(wrong, a, b) for a, b in pairs]


def _in_registers(w: LaneWriter, xs: Sequence[Tensor], axis: int, less: Less) -> list[Tensor]:
    shape = xs[0].shape
    held = {index: [x.one(index) for x in xs] for index in every(shape)}
    for rest in every([n for k, n in enumerate(shape) if k != axis]):
        for stage in stages(shape[axis]):
            for k in range(len(stage)):
                i = stage.place(k)
                low, high = ((*rest[:axis], j, *rest[axis:]) for j in (i, i + stage.distance))
                held[low], held[high] = _exchanged(w, held[low], held[high], less)
    return [registers(w, x.dtype, shape, [(held[i][k],) for i in every(shape)]) for k, x in enumerate(xs)]


def _line(
    w: LaneWriter, memory: Sequence[MemoryTensor], count: int, index: Callable[[Index], Indices], less: Less
) -> None:
    for stage in stages(count):

        def exchange(number: Index, stage: SortStage = stage) -> None:
            i = _place(w, stage, number)
            low, high = index(i), index(add(w, i, stage.distance))
            rows = [[m.read(at)[0] for m in memory] for at in (low, high)]
            for at, row in zip((low, high), _exchanged(w, rows[0], rows[1], less), strict=True):
                for m, x in zip(memory, row, strict=True):
                    m.write(at, (x,))

        if len(stage) == 1:
            exchange(0)
        elif len(stage):
            with w.f.loop(0, len(stage), 1) as number:
                exchange(number)


def _place(w: LaneWriter, stage: SortStage, number: Index) -> Index:
    if isinstance(number, int):
        return stage.place(number)
    block = w.f.let(f"lshr i64 {number}, {stage.run.bit_length() - 1}")
    inside = w.f.let(f"and i64 {number}, {stage.run - 1}")
    return add(w, add(w, multiply(w, block, 2 * stage.run), inside), stage.first)


def sort(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    return sorted_together(w, xs, op["dimension"], by_keys(op["num_keys"]))[:-1]


def top_k(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The largest numbers of an axis, NaN before all others, and their places."""
    (x,), params = xs, dict(op.params)
    axis = params.get("axis", -1) % len(x.shape)
    found = sorted_together(w, [x], axis, by_keys(1, falling=True))

    def first(x: Tensor, dtype: str, shape: tuple[int, ...]) -> Tensor:
        def at(index: Indices) -> Element:
            return (w.cast("sext", x.one(index), dtype),)

        return Tensor(dtype, shape, at, x.held, x.fixed)

    return [first(x, dtype, shape) for x, (dtype, shape) in zip(found, results, strict=True)]


SORTING: Mapping[str, Callable[..., list[Tensor]]] = {"sort": sort, "top_k": top_k}
