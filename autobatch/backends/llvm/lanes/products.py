"""Products of matrices in machine code: by loops of our own, or by BLAS.

A gang multiplies its rows with a matrix that they share: each number of that is read once for all lanes. With one lane
a product is that of a row alone, and BLAS computes it from some thousand multiplications on, where its operands lie in
the order of rows or of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.backends.llvm.lanes.by_number import convert
from autobatch.backends.llvm.lanes.moves import Shapes
from autobatch.backends.llvm.lanes.reductions import add_numbers, multiply_numbers, total
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    MemoryTensor,
    Tensor,
    add,
    fresh,
    kept,
    multiply,
    over,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import HALVES, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.outside import BLAS_NAME
from autobatch.ir.ops import Op

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
    if dtype.startswith("float") and shape and math.prod(sizes) > SMALL and shape[-1] > 1:
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
