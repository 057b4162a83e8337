"""Will the kernel run all level loops of a schedule? Asked before any array is there: what windows cost on a machine is
measured for XLA's loops alone."""

from __future__ import annotations

from collections.abc import Sequence

from autobatch.backends.xla.native.values import RefusedError, check
from autobatch.backends.xla.products import build
from autobatch.backends.xla.products.choice import LARGEST, MANY, available_cores
from autobatch.ir import jax_compat
from autobatch.ir.system import Compute, Equation, results
from autobatch.optimize.contractions import row_product
from autobatch.optimize.fission import Recurrence, Schedule

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
    except (RefusedError, build.UnavailableError):
        return False
    return True


def _check(equation: Equation, rows: int) -> None:
    product = row_product(equation)
    if product is not None:
        numbers = product.contracted * product.columns
        if numbers >= LARGEST or (rows * numbers >= MANY and available_cores() > 1):
            raise RefusedError("a large product")
    elif isinstance(equation, Compute):
        check(equation, DTYPE)
    if any(str(jax_compat.device_dtype(r.type)) not in (DTYPE, "bool") for r in results(equation)):
        raise RefusedError("other numbers")
