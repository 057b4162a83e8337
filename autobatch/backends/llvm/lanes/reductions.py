"""Sums, products, maxima along axes; products of matrices; running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from autobatch.backends.llvm.lanes.elementwise import BY_NUMBER, convert, joined, real_and_imaginary
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    MemoryTensor,
    Shapes,
    Tensor,
    add,
    constant,
    every,
    fresh,
    in_registers,
    kept,
    multiply,
    of_index,
    one_by_one,
    over,
    registers,
    word,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import COMPLEX, HALVES, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import BLAS_NAME
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
    if in_registers(math.prod(shape)):
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
    if in_registers(math.prod(shape)):
        found: LaneValue | None = None
        for index in every(shape):
            found = at(index) if found is None else combine(w, found, at(index))
        return w.constant(neutral(dtype), dtype) if found is None else found
    held = w.slot(dtype)
    held.set(w.constant(neutral(dtype), dtype))
    step = lambda index: held.set(combine(w, held.get(), at(index)))
    over(w, shape, step, vectors=dtype != "bool")  # LLVM may leave such a loop early, and says what it makes of none
    return held.get()


def reduction(kind: str) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        (x,), axes, (dtype, shape) = xs, op["axes"], results[0]
        again = math.prod(shape) > 1 or kind in ("max", "min")  # LLVM knows a maximum of numbers in memory as such
        if axes and not in_registers(x.size) and again and not x.held:
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


# ---- products
#
# Products of matrices in machine code: by loops of our own, or by BLAS.
#
# A gang multiplies its rows with a matrix that they share: each number of that is read once for all lanes. With one
# lane a product is that of a row alone, and BLAS computes it from some thousand multiplications on, where its operands
# lie in the order of rows or of columns.


TILE = 8
"""Sums that are added to at once: additions wait for the one before, four cycles or so."""

LARGEST_PRODUCT = 4096
"""Multiplications of one row from which on a product of matrices is left to a kernel for all rows, where there are
such kernels."""

LEAST_OF_BLAS = 4096
"""Multiplications from which a call of BLAS is worth it."""


def too_large(w: LaneWriter, multiplications: int) -> bool:
    """Is a product left to others?"""
    return multiplications > LARGEST_PRODUCT and not w.whole


def converted(w: LaneWriter, x: Tensor, dtype: str) -> Tensor:
    if x.dtype == dtype:
        return x
    return Tensor(dtype, x.shape, lambda index: (convert(w, x.one(index), dtype),))


def product(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (a, b), (dtype, shape) = xs, results[0]
    (left, right), (left_batch, right_batch) = op["dimension_numbers"]
    precision = op["preferred_element_type"]
    if dtype.startswith(("int", "uint")):  # exact in the wider type
        a, b = (converted(w, x, dtype) for x in (a, b))
    wanted = (None, dtype, *(HALVES if dtype == "float32" else ()))  # of halves it is computed in single precision
    if {a.dtype, b.dtype} != {dtype} or (precision is not None and str(precision) not in wanted):
        raise RefusedError(f"a product of {a.dtype} and {b.dtype} as {dtype}")
    sizes = [a.shape[k] for k in left]
    if too_large(w, math.prod(shape) * math.prod(sizes)):
        raise RefusedError("a product of matrices of that size")
    if math.prod(shape) > 1:
        a, b = kept(w, a), kept(w, b)
    batch = len(left_batch)
    a_free = [k for k in range(len(a.shape)) if k not in (*left, *left_batch)]
    b_free = [k for k in range(len(b.shape)) if k not in (*right, *right_batch)]

    def factors(index: Indices, inner: Indices) -> LaneValue:
        places = []
        for x, own, batched, free, first in (
            (a, left, left_batch, a_free, batch),
            (b, right, right_batch, b_free, batch + len(a_free)),
        ):
            where: list[Index] = [0] * len(x.shape)
            for k, i in zip(own, inner, strict=True):
                where[k] = i
            for k, i in zip(batched, index, strict=False):
                where[k] = i
            for k, i in zip(free, index[first:], strict=False):
                where[k] = i
            places.append(x.one(tuple(where)))
        one, other = places
        return multiply_numbers(w, one, other) if dtype != "bool" else w.instruction("and", one, other)

    if (found := by_blas(w, a, b, op["dimension_numbers"], dtype, shape)) is not None:
        return [found]
    if dtype.startswith("float") and shape and not in_registers(math.prod(sizes)) and shape[-1] > 1:
        return [_side_by_side(w, dtype, shape, sizes, factors)]

    def at(index: Indices) -> Element:
        return (total(w, "sum" if dtype != "bool" else "or", dtype, sizes, lambda inner: factors(index, inner)),)

    return [Tensor(dtype, shape, at)]


def _side_by_side(
    w: LaneWriter,
    dtype: str,
    shape: tuple[int, ...],
    sizes: Sequence[int],
    factors: Callable[[Indices, Indices], LaneValue],
) -> Tensor:
    """Sums of products, several of the last axis at once: one alone would wait for each of its additions. With one lane
    all of the axis is added to in memory, by vectors."""
    memory = fresh(w, dtype, shape)
    outer, last = shape[:-1], shape[-1]
    if w.width == 1:
        memory.fill(zeros(w, dtype, shape))

        def row(index: Indices) -> None:
            def term(inner: Indices) -> None:
                def add_to(place: Index) -> None:
                    at = (*index, place)
                    memory.write(at, (add_numbers(w, memory.read(at)[0], factors(at, inner)),))

                with w.loop(last, parallel=True) as place:
                    add_to(place)

            over(w, sizes, term, vectors=False)

        over(w, outer, row, vectors=False)
        return memory.final

    def tile(index: Indices, begin: Index, count: int) -> None:
        held = [w.slot(dtype) for _ in range(count)]
        for slot in held:
            slot.set(w.constant(0, dtype))

        def term(inner: Indices) -> None:
            for c, slot in enumerate(held):
                slot.set(add_numbers(w, slot.get(), factors((*index, add(w, begin, c)), inner)))

        over(w, sizes, term)
        for c, slot in enumerate(held):
            memory.write((*index, add(w, begin, c)), (slot.get(),))

    def rows(index: Indices) -> None:
        if last >= TILE:
            with w.loop(last // TILE) as number:
                tile(index, multiply(w, number, TILE), TILE)
        if last % TILE:
            tile(index, last - last % TILE, last % TILE)

    over(w, outer, rows, vectors=False)
    return memory.final


def by_blas(w: LaneWriter, a: Tensor, b: Tensor, numbers: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """A product by BLAS; None where it has none, or our loops are as fast. BLAS has matrices in the order of columns,
    where the rows of ours are: so it computes the transpose, of transposes."""
    (left, right), (batch, _) = numbers
    if w.width > 1 or not w.whole or dtype not in ("float32", "float64") or batch:
        return None
    inner = math.prod(a.shape[k] for k in left)
    m, n = a.size // max(inner, 1), b.size // max(inner, 1)
    if m * n * inner < LEAST_OF_BLAS or inner == 1:
        return None
    first, second = _behind(a, left), _behind(b, right)
    if first is None or second is None:
        return None
    out, of = fresh(w, dtype, shape), "s" if dtype == "float32" else "d"
    x, y = _in_memory(w, a), _in_memory(w, b)
    # `first`: a has [m, inner], else [inner, m]; `second`: b has [n, inner], else [inner, n]
    if m == 1 or n == 1:
        matrix, vector, turned = (y, x, second) if m == 1 else (x, y, first)
        rows = n if m == 1 else m
        sizes = (inner, rows) if turned else (rows, inner)
        _call(w, f"{of}gemv", dtype, ["T" if turned else "N"], sizes, matrix, sizes[0], vector, 1, out)
    else:
        ways = ["T" if second else "N", "N" if first else "T"]
        _call(w, f"{of}gemm", dtype, ways, (n, m, inner), y, inner if second else n, x, inner if first else m, out, n)
    return out.final


def _behind(x: Tensor, summed: Sequence[int]) -> bool | None:
    """Are the axes that are summed the last ones, in their order, or the first? None: neither."""
    count = len(summed)
    if list(summed) == list(range(len(x.shape) - count, len(x.shape))):
        return True
    return False if list(summed) == list(range(count)) else None


def _in_memory(w: LaneWriter, x: Tensor) -> MemoryTensor:
    """Where an array lies as a whole, in the order of rows."""
    held = x.memory
    if held is not None and held.shape == x.shape and held.dtype == x.dtype and held.threads == 1:
        return held
    made = fresh(w, x.dtype, x.shape)
    made.fill(x)
    return made


def _call(
    w: LaneWriter,
    name: str,
    dtype: str,
    ways: Sequence[str],
    sizes: Sequence[int],
    a: MemoryTensor,
    of_a: int,
    b: MemoryTensor,
    of_b: int,
    out: MemoryTensor,
    of_out: int = 1,
) -> None:
    """Call a function of BLAS: ways, sizes, 1, a matrix and the length of its columns, another one, 0, the result. (Of
    a vector there is the distance of its numbers in place of that, which is 1.)"""
    f = w.f
    kind, size = ("float", 4) if dtype == "float32" else ("double", 8)
    letters = f.array_slot("i8", 8)
    integers, at = f.array_slot("i32", 8), 0
    numbers = f.array_slot(kind, 2)

    def integer(value: int) -> str:
        nonlocal at
        place = f.at(integers, 4 * at)
        at += 1
        f.do(f"store i32 {value}, ptr {place}")
        return f"ptr {place}"

    def number(value: int) -> str:
        place = f.at(numbers, size * (1 - value))
        f.do(f"store {kind} {value}.0, ptr {place}")
        return f"ptr {place}"

    given = []
    for k, way in enumerate(ways):
        place = f.at(letters, k)
        f.do(f"store i8 {ord(way)}, ptr {place}")
        given.append(f"ptr {place}")
    given += map(integer, sizes)
    given += [number(1), f"ptr {a.pointer}", integer(of_a), f"ptr {b.pointer}", integer(of_b)]
    given += [number(0), f"ptr {out.pointer}", integer(of_out)]
    name = BLAS_NAME.format(name)
    f.declare(f"declare void @{name}({', '.join(['ptr'] * len(given))})")
    f.do(f"call void @{name}({', '.join(given)})")


# ---- sorting
#
# Sorting along an axis: Batcher's network, whose comparisons are at places that all lanes share.
#
#     for each stage: for each pair (i, i + d) of it: if key[i + d] < key[i]: exchange them
#
# Few numbers are sorted in registers, many in memory, by a loop over the pairs of each stage. Equal keys stay in order:
# the place is the last key.
#
# Source: K. E. Batcher, "Sorting networks and their applications", 1968; D. E. Knuth, The Art of Computer Programming,
# volume 3, algorithm 5.2.2M.


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
    if in_registers(math.prod(shape)):
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


# ---- complex
#
# Sums and products of complex numbers, by those of their parts.


def _of_parts(name: str) -> Callable[..., list[Tensor]]:
    """What is linear in real numbers."""

    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        dtype, shape = results[0]
        found = [REDUCTIONS[name](w, op, [p], [(word(dtype), shape)])[0] for p in real_and_imaginary(kept(w, xs[0]))]
        return [joined(dtype, found[0], found[1])]

    return rule


def _complex_product(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """A product of matrices, as four."""
    dtype, shape = results[0]
    params = tuple((k, None if k == "preferred_element_type" else v) for k, v in op.params)
    real, (left, right) = Op(op.name, params, op.primitive), (real_and_imaginary(kept(w, x)) for x in xs)

    def of(a: Tensor, b: Tensor) -> Tensor:
        return kept(w, product(w, real, [a, b], [(word(dtype), shape)])[0])

    (a, b), (c, d) = left, right
    ac, bd, ad, bc = of(a, c), of(b, d), of(a, d), of(b, c)

    def at(index: Indices) -> Element:
        return w.instruction("fsub", ac.one(index), bd.one(index)), w.instruction("fadd", ad.one(index), bc.one(index))

    return [Tensor(dtype, shape, at)]


COMPLEX_REDUCTIONS: Mapping[str, Callable[..., list[Tensor]]] = {
    "cumsum": _of_parts("cumsum"),
    "dot_general": _complex_product,
    "reduce_sum": _of_parts("reduce_sum"),
}
"""By the name of the operation, where an operand or a result is complex."""
