"""Which products the kernel computes, and which XLA: by the option `products`, and by what was measured.

On one core with AVX-512 (XLA's product of JAX 0.10; the same rows gathered in both), the kernel takes 0.5 to 0.9 of
XLA's time from 8 rows on, for matrices from 16x16 to 1024x1024, 1.0 for 2048x2048, and 1.4 for 4096x4096: it packs
nothing in the loop, and needs no gathered rows in memory. One row, and matrices of a few numbers, are as fast by the
loops that XLA writes into the program. The kernel runs on one core, XLA cuts large products among all cores there are.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.xla.products import build
from autobatch.backends.xla.products.build import Registered
from autobatch.backends.xla.products.kernel import Operation
from autobatch.ir import jax_compat
from autobatch.ir.types import Array
from autobatch.options import OptionError
from autobatch.passes.schedule.contractions import RowProduct

logger = logging.getLogger("autobatch")

DTYPES = ("float32", "float64")
LEAST = 1024
"""Multiply-adds from which a call of the kernel is worth it."""
MANY = 12_000_000
"""Multiply-adds that XLA cuts among cores."""
LARGEST = 2**21
"""Numbers in a matrix from which XLA's product is as fast on one core, or faster: it packs for more levels of cache."""

FEW, FEW_OUTER, UNPACKED = 8, 32, 2**16
"""Rows below which XLA's product, and that of two columns of rows, is faster where the matrix has so many numbers and
is not packed already: 0.8 of the time for 4 rows and 256x256, forwards, and 0.7 to 0.8 backwards for 4 and 16."""


@dataclass(frozen=True)
class ProductChoice:
    """The kernel, or None for XLA's product, and why; with the one that packs the matrix for it."""

    kernel: Registered | None
    why: str
    packing: Registered | None = None


def require(option: str) -> None:
    """OptionError where the option wants kernels and there are none on this machine."""
    if option == "native":
        try:
            build.registered("float32")
        except UnavailableError as error:
            raise OptionError(f"option 'products' is 'native', but there is no kernel: {error}") from None


def choose(option: str, product: RowProduct, rows: int, once: bool = False) -> ProductChoice:
    """What computes a product of so many rows at once. `once`: the matrix is packed for it alone."""
    size = product.contracted * product.columns
    slower = "XLA's is as fast for so large a matrix" if size >= LARGEST else _slower(rows * size)
    if once and rows < FEW and size >= UNPACKED:
        slower = "to pack the matrix takes as long as the product of so few rows"
    return _choose(option, _dtype(product), "product", _not_covered(product), slower)


def choose_outer(option: str, product: RowProduct, rows: int) -> ProductChoice:
    """What computes the cotangent of the matrix of a product from so many rows, or fewer: the number is known when the
    program runs, and the kernel reads no others. (On one core, for 1171 of 1456 rows of 300 and 750 numbers, it takes
    0.7 of the time of XLA's product of masked copies.)"""
    size = product.contracted * product.columns
    slower = _slower(rows * size)
    if rows < FEW_OUTER and size >= UNPACKED:
        slower = "XLA's is faster for so few rows"
    return _choose(option, _dtype(product), "outer", _not_covered(product), slower)


def choose_sum(option: str, dtype: Any, entries: int, numbers: int) -> ProductChoice:
    """What adds up rows of so many numbers by owner, of so many entries at most."""
    slower = "too little work for a call" if entries * numbers < LEAST else None
    why = None if str(dtype) in DTYPES else f"the kernel is for float32 and float64 alone, not for {dtype}"
    why = "the rows are empty" if not numbers else why
    return _choose(option, str(dtype), "sum", why, slower)


def choose_empty(option: str, dtype: Any, bytes: int) -> ProductChoice:
    """What makes memory that will be written before it is read. Floats alone: whatever is there, it is a number."""
    slower = "too few bytes for a call" if bytes < LEAST else None
    why = None if str(dtype) in DTYPES else f"the kernel is for float32 and float64 alone, not for {dtype}"
    return _choose(option, str(dtype), "empty", why, slower)


def _choose(option: str, dtype: str, operation: Operation, never: str | None, slower: str | None) -> ProductChoice:
    if option == "xla":
        return ProductChoice(None, "asked for")
    why = slower if never is None and option == "auto" else never
    if why is not None:
        return ProductChoice(None, why)
    try:
        packing = build.registered(dtype, "pack") if operation == "product" else None
        return ProductChoice(build.registered(dtype, operation), "the faster one here", packing)
    except UnavailableError as error:
        if option == "native":
            raise OptionError(f"option 'products' is 'native', but there is no kernel: {error}") from None
        return ProductChoice(None, str(error))


def _dtype(product: RowProduct) -> str:
    return str(jax_compat.device_dtype(product.weight.type))


def _not_covered(product: RowProduct) -> str | None:
    """Why the kernel cannot compute a product."""
    result = product.equation.results[0].type
    assert isinstance(result, Array)
    dtypes = {str(jax_compat.device_dtype(t)) for t in (product.row.type, product.weight.type, result)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return f"the kernel is for float32 and float64 alone, not for {' and '.join(sorted(dtypes))}"
    if not product.contracted or not product.columns:
        return "the matrix is empty"
    return None


def _slower(work: int) -> str | None:
    """Why XLA's product is taken to be the faster one."""
    if work < LEAST:
        return "too little work for a call"
    if work >= MANY and available_cores() > 1:
        return f"XLA cuts so much work among {available_cores()} cores"
    return None


def available_cores() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
