"""Leaf operations over rows some of which do not use the results, or have failed (`passes/autodiff/cut.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from autobatch.backends.xla.lanes import is_float, over_rows
from autobatch.ir.elementwise import FINITE_DERIVATIVE, INFINITE
from autobatch.ir.ops import Op
from autobatch.ir.types import Array
from autobatch.passes.autodiff.cut import in_part


def over_rows_in_part(op: Op, types: Sequence[Array], xs: Sequence[Any], varying: Sequence[bool]) -> Sequence[Any]:
    """As `over_rows`; a row whose cotangents are zero contributes nothing to derivatives where they are not finite."""
    moves = any(is_float(x) and v for x, v in zip(xs, varying, strict=True))
    if op.name in FINITE_DERIVATIVE or not moves:
        return over_rows(op, types, xs, varying)
    if op.name in INFINITE:  # the rows of what all rows share are added up where they are no longer infinite
        rows = next(x.shape[0] for x, v in zip(xs, varying, strict=True) if v)
        xs = [
            x if v or not is_float(x) else jnp.broadcast_to(x, (rows, *jnp.shape(x)))
            for x, v in zip(xs, varying, strict=True)
        ]
        varying = [v or is_float(x) for x, v in zip(xs, varying, strict=True)]
    return in_part(lambda xs: over_rows(op, types, xs, varying), xs, varying)
