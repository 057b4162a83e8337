"""A function of numbers as machine code that is called directly: XLA would take subnormal numbers for zero."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.ops import LeafOperations, of_jaxpr
from autobatch.backends.llvm.lanes.tensors import registers
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.text import LlvmFunction, library
from autobatch.ir.core import Array

BLOCK = 64
"""Numbers that are computed at once: a multiple of all widths."""
SIZES = {"float32": 4, "float64": 8}


def kernel(function: Callable[..., Any], dtype: str, count: int, lanes: int) -> Callable[..., np.ndarray]:
    """`function` of `count` numbers over arrays of them, `lanes` at once."""
    name, text = written(function, dtype, count, lanes)
    code = machine_code.load(machine_code.target_name(name, text), text, ("run",), library())
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 2))(code.functions["run"])

    def call(*xs: np.ndarray) -> np.ndarray:
        size = len(xs[0])
        room = -(-size // BLOCK) * BLOCK
        held = [np.ones(room, dtype) for _ in xs] if room != size else [np.ascontiguousarray(x, dtype) for x in xs]
        if room != size:
            for a, x in zip(held, xs, strict=True):
                a[:size] = x
        out, rows = np.empty(room, dtype), np.array([room])
        run(out.ctypes.data, rows.ctypes.data, *(x.ctypes.data for x in held))
        return out[:size]

    return call


def written(function: Callable[..., Any], dtype: str, count: int, lanes: int) -> tuple[str, str]:
    """A module with a loop over arrays: `run(out, rows, x0, ...)`, and its name."""
    with jax.enable_x64(True):
        equations = of_jaxpr(jax.make_jaxpr(function)(*[np.ones((), dtype)] * count), [Array(dtype, ())] * count)
        f = LlvmFunction(f"void @run(ptr %out, ptr %rows, {', '.join(f'ptr %x{k}' for k in range(count))}) nounwind")
        w, size = LaneWriter(f, lanes), SIZES[dtype]
        leaves, of = LeafOperations(w, _no_constants), w.type_of(dtype)
        with f.loop(0, f.load("i64", "%rows"), lanes) as first:
            begin = f.mul(first, size)
            xs = [LaneValue(f.load(of, f"%x{k}", begin, size), dtype) for k in range(count)]
            (found,) = leaves.expansion(equations, [registers(w, dtype, (), [(x,)]) for x in xs])
            place = f.at("%out", begin)
            f.do(f"store {of} {w.spread(found.one(())).text}, ptr {place}, align {size}")
        f.do("ret void")
    text = "\n".join([*f.declarations, "declare i64 @llvm.umin.i64(i64, i64)", str(f), *f.metadata])
    return f"ulp_{dtype}_{lanes}", text


def _no_constants(value: Any) -> Any:
    raise AssertionError("a function of numbers has no arrays")
