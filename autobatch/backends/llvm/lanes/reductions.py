"""Sums, products, maxima along axes; products of matrices; running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

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
    constant,
    every,
    fresh,
    kept,
    multiply,
    one_by_one,
    over,
)
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

# ---- sums
#
# Sums and products of the floats of an array: the order is fixed, and the same with any number of lanes.
#
#     n numbers, P parts      part j = x[j] + x[j + P] + x[j + 2 P] + ...
#     P = 4                   sum    = (part 0 + part 2) + (part 1 + part 3)
#
# An addition waits for the one before, four cycles or so; parts do not wait for each other. With one lane a part is a
# number of a vector; in a gang, where each number is a vector already, one part comes after the other.


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


Combine = Callable[[LaneWriter, LaneValue, LaneValue], LaneValue]


def _combine(name: str) -> Combine:
    make, op = BY_NUMBER[name], Op(name)
    return lambda w, a, b: make(w, op, a, b)


def add_numbers(w: LaneWriter, a: LaneValue, b: LaneValue) -> LaneValue:
    return w.sum(a, b) if a.is_float else _combine("add")(w, a, b)


def multiply_numbers(w: LaneWriter, a: LaneValue, b: LaneValue) -> LaneValue:
    return w.product(a, b) if a.is_float else _combine("mul")(w, a, b)


def least(dtype: str) -> float | int:
    if dtype == "bool":
        return False
    if dtype.startswith("float"):
        return -math.inf
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return 0 if dtype.startswith("u") else -(1 << (bits - 1))


def most(dtype: str) -> float | int:
    if dtype == "bool":
        return True
    if dtype.startswith("float"):
        return math.inf
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (1 << bits) - 1 if dtype.startswith("u") else (1 << (bits - 1)) - 1


KINDS: Mapping[str, tuple[Combine, Callable[[str], float | int]]] = {
    "sum": (add_numbers, lambda _: 0),
    "prod": (multiply_numbers, lambda _: 1),
    "max": (_combine("max"), least),
    "min": (_combine("min"), most),
    "and": (_combine("and"), lambda d: True if d == "bool" else -1),
    "or": (_combine("or"), lambda _: 0),
    "xor": (_combine("xor"), lambda _: 0),
}


def total(w: LaneWriter, kind: str, dtype: str, shape: Sequence[int], at: Callable[[Indices], LaneValue]) -> LaneValue:
    """What is left of all numbers of a shape."""
    combine, neutral = KINDS[kind]
    if kind in ("sum", "prod") and dtype.startswith("float"):
        return total_of_floats(w, kind, dtype, shape, at)
    if math.prod(shape) <= SMALL:
        found: LaneValue | None = None
        for index in every(shape):
            found = at(index) if found is None else combine(w, found, at(index))
        return w.constant(neutral(dtype), dtype) if found is None else found
    held = w.slot(dtype)
    held.set(w.constant(neutral(dtype), dtype))
    over(w, shape, lambda index: held.set(combine(w, held.get(), at(index))))
    return held.get()


def reduction(kind: str) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        (x,), axes, (dtype, shape) = xs, op["axes"], results[0]
        again = math.prod(shape) > 1 or kind in ("max", "min")  # LLVM knows a maximum of numbers in memory as such
        if axes and x.size > SMALL and again and not x.held:
            x = kept(w, x)

        def at(index: Indices) -> Element:
            rest = iter(index)
            outer = [None if k in axes else next(rest) for k in range(len(x.shape))]

            def number(inner: Indices) -> LaneValue:
                inside = iter(inner)
                return x.one(tuple(next(inside) if i is None else i for i in outer))

            return (total(w, kind, dtype, [x.shape[k] for k in range(len(x.shape)) if k in axes], number),)

        return [Tensor(dtype, shape, at)]

    return rule


def extreme_index(kind: str) -> Callable[..., list[Tensor]]:
    """The first place of the largest or least number; of NaN where there is one."""

    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        (axis,), (dtype, shape) = op["axes"], results[0]
        x = kept(w, xs[0])

        def at(index: Indices) -> Element:
            def number(i: Index) -> LaneValue:
                return x.one((*index[:axis], i, *index[axis:]))

            best, place = w.slot(x.dtype), w.slot(dtype)
            best.set(number(0))
            place.set(w.constant(0, dtype))

            def step(inner: Indices) -> None:
                new, old = number(inner[0]), best.get()
                better = BY_NUMBER["gt" if kind == "max" else "lt"](w, Op(""), new, old)
                if new.is_float:
                    nan = w.instruction("fcmp uno", new, new, "bool")
                    was = w.instruction("fcmp uno", old, old, "bool")
                    first = w.both(nan, w.negated(was))
                    better = w.instruction("or", w.both(better, w.negated(was)), first)
                best.set(w.select(better, new, old))
                place.set(w.select(better, of_index(w, inner[0], dtype), place.get()))

            over(w, (x.shape[axis],), step, vectors=False)
            return (place.get(),)

        return [Tensor(dtype, shape, at)]

    return rule


def running(kind: str) -> Callable[..., list[Tensor]]:
    """Each number with all before it."""

    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        return _running(w, op, xs, results, *KINDS[kind])

    return rule


def _running(
    w: LaneWriter,
    op: Op,
    xs: Sequence[Tensor],
    results: Shapes,
    combine: Combine,
    neutral: Callable[[str], float | int],
) -> list[Tensor]:
    (x,), axis, backward, (dtype, shape) = xs, op["axis"], op["reverse"], results[0]
    if x.size > SMALL * SMALL and len(shape) > 1:
        raise RefusedError("a running sum over an axis of a large array")
    x = kept(w, x)
    memory = fresh(w, dtype, shape)
    held = w.slot(dtype)

    def line(outer: Indices) -> None:
        held.set(w.constant(neutral(dtype), dtype))

        def step(i: Index) -> None:
            if backward:
                i = shape[axis] - 1 - i if isinstance(i, int) else w.f.sub(str(shape[axis] - 1), i)
            index = (*outer[:axis], i, *outer[axis:])
            held.set(combine(w, held.get(), x.one(index)))
            memory.write(index, (held.get(),))

        one_by_one(w, shape[axis], step)

    for outer in every([n for k, n in enumerate(shape) if k != axis]):
        line(outer)
    return [memory.final]


def running_logsumexp(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """log(exp(x[0]) + ... + exp(x[k])): of two such numbers it is the larger and log1p(exp(-|a - b|))."""

    def do(name: str, *numbers: LaneValue) -> LaneValue:
        return BY_NUMBER[name](w, Op(name), *numbers)

    def combine(w: LaneWriter, a: LaneValue, b: LaneValue) -> LaneValue:
        large = do("max", a, b)
        same = do("eq", a, b)  # also where both are infinite
        apart = w.select(same, w.constant(0.0, a.dtype), do("neg", do("abs", do("sub", a, b))))
        more = BY_NUMBER["log1p"](w, Op("log1p"), do("exp", apart))
        least = do("eq", large, w.constant(-math.inf, a.dtype))
        return w.select(least, large, do("add", large, more))

    return _running(w, op, xs, results, combine, lambda _: -math.inf)


REDUCTIONS: Mapping[str, Callable[..., list[Tensor]]] = {
    **{f"reduce_{kind}": reduction(kind) for kind in KINDS},
    "argmax": extreme_index("max"),
    "argmin": extreme_index("min"),
    "cumsum": running("sum"),
    "cumlogsumexp": running_logsumexp,
    "cumprod": running("prod"),
    "cummax": running("max"),
    "cummin": running("min"),
}
