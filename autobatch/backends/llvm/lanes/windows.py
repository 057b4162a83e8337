"""Sums and extremes over windows, and convolutions, of small arrays: as sums over what each result reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from autobatch.backends.llvm.lanes.moves import Shapes, pad
from autobatch.backends.llvm.lanes.products import LARGEST_PRODUCT
from autobatch.backends.llvm.lanes.reductions import KINDS, total
from autobatch.backends.llvm.lanes.tensors import Element, Index, Indices, Tensor, add, constant, kept, multiply
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op


def padded(
    w: LaneWriter, x: Tensor, filling: float | int, around: Sequence[tuple[int, int]], dilation: Sequence[int]
) -> Tensor:
    """An array with more around it, and between its numbers."""
    config = tuple((low, high, apart - 1) for (low, high), apart in zip(around, dilation, strict=True))
    if all(c == (0, 0, 0) for c in config):
        return kept(w, x)
    shape = tuple(
        max(low + high + n + max(n - 1, 0) * more, 0) for (low, high, more), n in zip(config, x.shape, strict=True)
    )
    op = Op("pad", (("padding_config", config),))
    return pad(w, op, [kept(w, x), constant(w, filling, x.dtype)], [(x.dtype, shape)])[0]


def over_windows(kind: str) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        (x,), (dtype, shape) = xs, results[0]
        size = op["window_dimensions"]
        if math.prod(shape) * math.prod(size) > LARGEST_PRODUCT:
            raise RefusedError("windows of that size")
        held = padded(w, x, KINDS[kind][1](dtype), op["padding"], op["base_dilation"])

        def at(index: Indices) -> Element:
            def number(inner: Indices) -> LaneValue:
                places: list[Index] = [
                    add(w, multiply(w, i, stride), multiply(w, k, apart))
                    for i, stride, k, apart in zip(
                        index, op["window_strides"], inner, op["window_dilation"], strict=True
                    )
                ]
                return held.one(tuple(places))

            return (total(w, kind, dtype, size, number),)

        return [Tensor(dtype, shape, at)]

    return rule


def convolution(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x, kernel), (dtype, shape) = xs, results[0]
    if {x.dtype, kernel.dtype} != {dtype} or not dtype.startswith("float"):
        raise RefusedError(f"a convolution of {x.dtype} and {kernel.dtype}")
    if op["batch_group_count"] != 1 or op["feature_group_count"] != 1:
        raise RefusedError("a convolution in groups")
    of_x, of_kernel, of_out = op["dimension_numbers"]
    window = [kernel.shape[k] for k in of_kernel[2:]]
    channels = x.shape[of_x[1]]
    if math.prod(shape) * math.prod(window) * channels > LARGEST_PRODUCT:
        raise RefusedError("a convolution of that size")
    around, apart = [(0, 0)] * len(x.shape), [1] * len(x.shape)
    for axis, space, between in zip(of_x[2:], op["padding"], op["lhs_dilation"], strict=True):
        around[axis], apart[axis] = tuple(space), between
    held, kernel = padded(w, x, 0.0, around, apart), kept(w, kernel)

    def at(index: Indices) -> Element:
        def term(inner: Indices) -> LaneValue:
            a: list[Index] = [0] * len(x.shape)
            b: list[Index] = [0] * len(x.shape)
            a[of_x[0]], a[of_x[1]] = index[of_out[0]], inner[0]
            b[of_kernel[0]], b[of_kernel[1]] = index[of_out[1]], inner[0]
            for k, i in enumerate(inner[1:]):
                step, between = op["window_strides"][k], op["rhs_dilation"][k]
                a[of_x[2 + k]] = add(w, multiply(w, index[of_out[2 + k]], step), multiply(w, i, between))
                b[of_kernel[2 + k]] = i
            return w.product(held.one(tuple(a)), kernel.one(tuple(b)))

        return (total(w, "sum", dtype, [channels, *window], term),)

    return [Tensor(dtype, shape, at)]


WINDOWS: Mapping[str, Callable[..., list[Tensor]]] = {
    "conv_general_dilated": convolution,
    "reduce_window_max": over_windows("max"),
    "reduce_window_min": over_windows("min"),
    "reduce_window_sum": over_windows("sum"),
}
