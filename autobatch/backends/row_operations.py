"""Leaf operations over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import leaf
from autobatch.ir.core import BY_NUMBER, FINITE_DERIVATIVE, INFINITE, Array
from autobatch.ir.ops import Op
from autobatch.passes.adjoint import in_part

OverRows = Callable[[Op, Sequence[Array], Sequence[Any], Sequence[bool]], Sequence[Any]]

WITH_CONTROL: dict[str, OverRows] = {}
"""Operations that hold control on numbers and may stand inside of others: `masks.py`, which runs those, enters them."""


def over_rows(op: Op, types: Sequence[Array], xs: Sequence[Any], varying: Sequence[bool]) -> Sequence[Any]:
    """A leaf operation on rows: JAX's batching rule of the one primitive, batch axis 0, uniform operands (those that do
    not vary) unbatched. `types` are those of the results of one row.

    What works number by number is its own batching rule; `jax.vmap` would trace it again for each window width."""
    if op.name in WITH_CONTROL:
        return WITH_CONTROL[op.name](op, types, xs, varying)
    by_number = all(varying) and op.name in BY_NUMBER and len({x.shape for x in xs}) == 1
    if by_number or not any(varying):
        return leaf.evaluate(op, types, *xs)

    def lane(*rows: Any) -> Sequence[Any]:
        rest = iter(rows)
        return leaf.evaluate(op, types, *(next(rest) if v else x for v, x in zip(varying, xs, strict=True)))

    return jax.vmap(lane)(*(x for v, x in zip(varying, xs, strict=True) if v))


def select_rows(mask: Any, x: Any, y: Any) -> Any:
    """`x` in the rows of a mask, `y` in the others."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)


def is_float(x: Any) -> bool:
    """Can it move: is it of floats, or of complex numbers?"""
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.inexact))


# ---- cut
#
# Leaf operations over rows some of which do not use the results, or have failed (`passes/adjoint.py`).


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
