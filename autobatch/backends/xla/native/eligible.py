"""Will the kernel run all level loops of a schedule? Asked before any array is there: what windows cost on a machine is
measured for XLA's loops alone."""

from __future__ import annotations

from collections.abc import Sequence

from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError
from autobatch.backends.xla.native.values import check
from autobatch.backends.xla.products import build
from autobatch.backends.xla.products.choice import LARGEST, MANY, available_cores
from autobatch.ir import jax_compat
from autobatch.ir.system import Compute, Equation, results
from autobatch.passes.schedule.contractions import RowProduct, row_product
from autobatch.passes.schedule.fission import Recurrence, Schedule

DTYPE = "float32"
"""Of the numbers that `numbers.py` has functions for."""


def all_by_kernel(schedule: Schedule, loops: str, products: str, widths: Sequence[int]) -> bool:
    """`loops`, `products`, `widths`: the options of these names."""
    if loops == "xla" or (loops == "auto" and products == "xla"):
        return False
    try:
        build.registered(DTYPE)
        for step in schedule.steps:
            for equation in (e for t in step.tasks for e in t.equations) if isinstance(step, Recurrence) else ():
                _check(equation, max(widths) if loops == "auto" else 1)
    except (RefusedError, UnavailableError):
        return False
    return True


def _check(equation: Equation, rows: int) -> None:
    if (product := row_product(equation)) is not None:
        check_product(product, rows)
    elif isinstance(equation, Compute):
        check(equation, DTYPE)
    elif any(str(jax_compat.device_dtype(r.type)) != DTYPE for r in results(equation)):
        raise RefusedError("rows of other numbers")


def check_product(product: RowProduct, rows: int) -> None:
    """RefusedError where a product is none for the kernel, or where XLA's is as fast, of so many rows at once."""
    types = (product.row.type, product.weight.type, product.equation.results[0].type)
    if {str(jax_compat.device_dtype(t)) for t in types} != {DTYPE}:
        raise RefusedError("a product of other numbers")
    numbers = product.contracted * product.columns
    if not numbers:
        raise RefusedError("an empty matrix")
    if numbers >= LARGEST:
        raise RefusedError("a matrix so large that XLA's product is as fast")
    if rows * numbers >= MANY and available_cores() > 1:
        raise RefusedError(f"XLA cuts so much work among {available_cores()} cores")
