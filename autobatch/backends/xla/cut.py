"""Leaf operations over rows some of which have failed: those contribute nothing to a derivative (`autodiff/cut.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.xla.lanes import is_float, over_rows
from autobatch.ir.elementwise import INFINITE
from autobatch.ir.ops import Op
from autobatch.ir.types import Array


def over_rows_that_may_fail(
    op: Op, types: Sequence[Array], xs: Sequence[Any], varying: Sequence[bool]
) -> Sequence[Any]:
    """As `over_rows`; a row whose cotangents are zero has derivatives of zero where they would not be finite.

    JAX can push the derivative forward, but not differentiate the operation itself in forward mode."""
    if not any(varying) or not any(is_float(x) and v for x, v in zip(xs, varying, strict=True)):
        return over_rows(op, types, xs, varying)
    if op.name in INFINITE:  # the rows of what all rows share are added up where they are no longer infinite
        rows = next(x.shape[0] for x, v in zip(xs, varying, strict=True) if v)
        xs = [
            x if v or not is_float(x) else jnp.broadcast_to(x, (rows, *jnp.shape(x)))
            for x, v in zip(xs, varying, strict=True)
        ]
        varying = [v or is_float(x) for x, v in zip(xs, varying, strict=True)]
    moving = [k for k, x in enumerate(xs) if is_float(x)]
    of_rows = [varying[k] for k in moving]

    def run(moved: Sequence[Any], held: Sequence[Any]) -> list[Any]:
        whole = list(held)
        for k, x in zip(moving, moved, strict=True):
            whole[k] = x
        return list(over_rows(op, types, whole, varying))

    @jax.custom_vjp
    def apply(moved: list[Any], held: list[Any]) -> list[Any]:
        return run(moved, held)

    def forward(moved: list[Any], held: list[Any]) -> tuple[list[Any], Any]:
        return run(moved, held), (moved, held)

    def backward(residuals: Any, cotangents: list[Any]) -> Any:
        moved, held = residuals
        idle = reduce(jnp.logical_and, [_is_zero(ct) for ct in cotangents if is_float(ct)], jnp.bool_(True))

        def finite(x: Any) -> Any:
            return jnp.where(jnp.isfinite(x) | ~idle.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x))

        safe = [finite(x) if v else x for x, v in zip(moved, of_rows, strict=True)]
        _, pull = jax.vjp(lambda moved: run(moved, held), safe)
        (found,) = pull(cotangents)
        return [finite(x) if v else x for x, v in zip(found, of_rows, strict=True)], None

    apply.defvjp(forward, backward)
    made: list[Any] = apply(
        [jnp.asarray(xs[k]) for k in moving], [None if k in moving else x for k, x in enumerate(xs)]
    )
    return made


def _is_zero(ct: Any) -> Any:
    return jnp.all(ct == 0, axis=tuple(range(1, ct.ndim)))
