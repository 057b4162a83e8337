"""Floats of 16 bits: in registers and in memory they are their bits, arithmetic is that of float32.

    add(a: bfloat16, b: bfloat16)   ->   narrowed(add(widened(a), widened(b)))

The conversions are written with integers, so they are the same on a processor that has instructions for them and on
one that has none, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autobatch.backends.llvm.lanes.moves import Shapes
from autobatch.backends.llvm.lanes.tensors import Element, Indices, Tensor
from autobatch.backends.llvm.lanes.writer import HALVES, LaneValue, LaneWriter
from autobatch.ir.ops import Op

Rule = Callable[[LaneWriter, Op, Sequence[Tensor], Shapes], list[Tensor]]


def widened(w: LaneWriter, x: LaneValue) -> LaneValue:
    """A float of 16 bits as the float32 that it is."""
    bits = w.cast("zext", x, "uint32")
    if x.dtype == "bfloat16":
        return w.cast("bitcast", _with(w, "shl", bits, 16), "float32")
    size = _with(w, "shl", _with(w, "and", bits, 0x7FFF), 13)
    # the exponent is less by 112 than float32 has it; a product with a power of two does subnormal numbers as well
    found = w.instruction("fmul", w.cast("bitcast", size, "float32"), w.constant(2.0**112, "float32"))
    endless = w.instruction("icmp uge", size, w.constant(0x0F800000, "uint32"), "bool")
    special = w.cast("bitcast", _with(w, "or", size, 0x7F800000), "float32")
    found = w.select(endless, special, found)
    sign = _with(w, "shl", _with(w, "and", bits, 0x8000), 16)
    return w.cast("bitcast", w.instruction("or", w.cast("bitcast", found, "uint32"), sign), "float32")


def narrowed(w: LaneWriter, x: LaneValue, dtype: str) -> LaneValue:
    """A float32 as the nearest float of 16 bits, of two the one whose last bit is 0."""
    bits = w.cast("bitcast", x, "uint32")
    size, sign = _with(w, "and", bits, 0x7FFFFFFF), _with(w, "lshr", _with(w, "and", bits, 0x80000000), 16)
    nan = w.instruction("icmp ugt", size, w.constant(0x7F800000, "uint32"), "bool")
    if dtype == "bfloat16":
        found, quiet = _rounded(w, size, 16), 0x7FC0
    else:
        shifted = w.instruction("sub", size, w.constant(112 << 23, "uint32"))
        found, quiet = _rounded(w, shifted, 13), 0x7E00
        large = w.instruction("icmp uge", size, w.constant(0x47800000, "uint32"), "bool")
        found = w.select(large, w.constant(0x7C00, "uint32"), found)
        # added to 1/2, a number below 2^-14 has its last digit where that of 1/2 is
        half = w.constant(0.5, "float32")
        low = w.cast("bitcast", w.instruction("fadd", w.cast("bitcast", size, "float32"), half), "uint32")
        low = w.instruction("sub", low, w.constant(0x3F000000, "uint32"))
        found = w.select(w.instruction("icmp ult", size, w.constant(0x38800000, "uint32"), "bool"), low, found)
    found = w.select(nan, w.constant(quiet, "uint32"), found)
    return w.cast("trunc", w.instruction("or", found, sign), dtype)


def _with(w: LaneWriter, name: str, x: LaneValue, value: int) -> LaneValue:
    return w.instruction(name, x, w.constant(value, x.dtype))


def _rounded(w: LaneWriter, bits: LaneValue, away: int) -> LaneValue:
    """Without its last bits, to the nearest, of two to the even one."""
    last = _with(w, "and", _with(w, "lshr", bits, away), 1)
    more = w.instruction("add", _with(w, "add", bits, (1 << (away - 1)) - 1), last)
    return _with(w, "lshr", more, away)


def in_single(rule: Rule, convert: Callable[[LaneWriter, LaneValue, str], LaneValue]) -> Rule:
    """A rule for numbers of float32, for floats of 16 bits: each result is rounded once."""

    def as_dtype(w: LaneWriter, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x

        def at(index: Indices) -> Element:
            return (convert(w, x.one(index), dtype),)

        return Tensor(dtype, x.shape, at)

    def wider(dtype: str) -> str:
        return "float32" if dtype in HALVES else dtype

    def made(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        held = [as_dtype(w, x, wider(x.dtype)) for x in xs]
        found = rule(w, op, held, [(wider(dtype), shape) for dtype, shape in results])
        return [as_dtype(w, x, dtype) for x, (dtype, _) in zip(found, results, strict=True)]

    return made
