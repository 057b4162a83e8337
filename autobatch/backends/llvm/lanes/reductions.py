"""Sums, products, maxima along axes; products of matrices; running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from autobatch.backends.llvm.lanes.by_number import BY_NUMBER
from autobatch.backends.llvm.lanes.moves import Shapes, of_index
from autobatch.backends.llvm.lanes.sums import total_of_floats
from autobatch.backends.llvm.lanes.tensors import (
    SMALL,
    Element,
    Index,
    Indices,
    Tensor,
    every,
    fresh,
    kept,
    one_by_one,
    over,
)
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

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
