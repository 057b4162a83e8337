"""Operations on the bits of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autobatch.backends.llvm.lanes.moves import Shapes, of_index
from autobatch.backends.llvm.lanes.tensors import Element, Indices, Tensor
from autobatch.backends.llvm.lanes.writer import BYTES, ELEMENTS, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

DIGITS = {"float32": (8, 23), "float64": (11, 52)}
"""Bits of the exponent and of the fraction."""


def _bits(w: LaneWriter, x: LaneValue) -> LaneValue:
    """As an unsigned number of the same size."""
    return same_bits(w, x, f"uint{x.bits}")


def same_bits(w: LaneWriter, x: LaneValue, dtype: str) -> LaneValue:
    if ELEMENTS[dtype] == x.element:
        return LaneValue(x.text, dtype, x.shared)
    return w.cast("bitcast", x, dtype)


def bitcast(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The bits as numbers of another type; a wider number is several narrower ones, the last bits first."""
    (x,), (dtype, shape) = xs, results[0]
    if dtype not in ELEMENTS or x.dtype not in ELEMENTS or "bool" in (dtype, x.dtype):
        raise RefusedError(f"the bits of {x.dtype} as {dtype}")
    own, new = 8 * BYTES[ELEMENTS[x.dtype]], 8 * BYTES[ELEMENTS[dtype]]
    wide, narrow = f"uint{max(own, new)}", f"uint{min(own, new)}"

    def at(index: Indices) -> Element:
        if own == new:
            return (same_bits(w, x.one(index), dtype),)
        if own > new:
            by = w.instruction("mul", of_index(w, index[-1], wide), w.constant(new, wide))
            part = w.cast("trunc", w.instruction("lshr", _bits(w, x.one(index[:-1])), by), narrow)
            return (same_bits(w, part, dtype),)
        total = w.constant(0, wide)
        for k in range(new // own):
            part = w.cast("zext", _bits(w, x.one((*index, k))), wide)
            total = w.instruction("or", total, w.instruction("shl", part, w.constant(k * own, wide)))
        return (same_bits(w, total, dtype),)

    return [Tensor(dtype, shape, at)]


def reduce_precision(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Rounded to what has fewer bits of an exponent and of a fraction; what is subnormal there is 0, with its sign."""
    (x,), (dtype, shape) = xs, results[0]
    if dtype not in DIGITS:
        raise RefusedError(f"another precision of {dtype}")
    exponent, fraction = DIGITS[dtype]
    kept, digits = op["exponent_bits"], op["mantissa_bits"]
    of = f"uint{1 + exponent + fraction}"

    def number(value: int) -> LaneValue:
        return w.constant(value, of)

    def at(index: Indices) -> Element:
        given = x.one(index)
        bits = _bits(w, given)
        sign = w.instruction("and", bits, number(1 << (exponent + fraction)))
        size = w.instruction("xor", bits, sign)
        away = fraction - digits
        if away > 0:
            last = w.instruction("and", w.instruction("lshr", size, number(away)), number(1))
            size = w.instruction("add", size, w.instruction("add", last, number((1 << (away - 1)) - 1)))
            size = w.instruction("and", size, number(-1 << away))
        if kept < exponent:
            middle, reach = (1 << (exponent - 1)) - 1, (1 << (kept - 1)) - 1
            most, least = (middle + reach) << fraction, (middle - reach) << fraction
            above = w.instruction("icmp uge", size, number(most + (1 << fraction)), "bool")
            size = w.select(above, number(((1 << exponent) - 1) << fraction), size)
            below = w.instruction("icmp ult", size, number(least + (1 << fraction)), "bool")
            size = w.select(below, number(0), size)
        found = same_bits(w, w.instruction("or", size, sign), dtype)
        return (w.select(w.instruction("fcmp uno", given, given, "bool"), given, found),)

    return [Tensor(dtype, shape, at)]


BITS: Mapping[str, Callable[..., list[Tensor]]] = {
    "bitcast_convert_type": bitcast,
    "reduce_precision": reduce_precision,
}
