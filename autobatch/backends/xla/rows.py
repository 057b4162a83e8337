"""What equations compute on rows: leaf operations, gathers, reductions of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.protocol import NEUTRAL
from autobatch.ir import jax_compat, leaf
from autobatch.ir.elementwise import BY_NUMBER
from autobatch.ir.system import Compute, Variable


def take(array: Any, index: Any) -> Any:
    """Rows of an array; the planner guarantees the range."""
    return array.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def segment_reduce(kind: str, values: Any, owner: Any, rows: int, *, ordered: bool = True) -> Any:
    """Reduce values by owners, which are sorted where `ordered`; an owner of `rows` is dropped."""
    logical = kind in ("any", "all")
    held = values.astype(jnp.int32) if logical else values
    neutral = jnp.asarray(NEUTRAL[kind](values.dtype)).astype(held.dtype)
    at = jnp.full((rows + 1, *values.shape[1:]), neutral, held.dtype).at[owner]
    scatters: dict[str, Any] = {
        "sum": at.add,
        "prod": at.multiply,
        "max": at.max,
        "any": at.max,
        "min": at.min,
        "all": at.min,
    }
    reduced = scatters[kind](held, indices_are_sorted=ordered, mode="promise_in_bounds")[:rows]
    return reduced.astype(values.dtype)


def compute_live(equation: Compute, xs: Sequence[Any], rows: int, live: Any, first: Any = 0) -> Sequence[Any]:
    """As `compute`, on `rows` rows of which those of `first:live` matter: an operation that holds a loop runs on the
    operands of the row `first` in place of the others, whose loops might never end."""
    if not any(isinstance(x, Variable) and x.space is not None for x in equation.operands):
        return [jnp.broadcast_to(y, (rows, *y.shape)) for y in compute(equation, xs)]
    if not jax_compat.holds_loop(equation.op):
        return compute(equation, xs)
    row = jnp.arange(rows)
    chosen = jnp.where((row >= first) & (row < live), row, first)
    varying = [isinstance(x, Variable) and x.space is not None for x in equation.operands]

    def run() -> list[Any]:
        return list(compute(equation, [take(x, chosen) if v else x for v, x in zip(varying, xs, strict=True)]))

    def skip() -> list[Any]:
        return [jax_compat.zeros(a.shape, a.dtype) for a in jax.eval_shape(run)]

    found: Sequence[Any] = jax.lax.cond(live > first, run, skip)
    return found


def compute(equation: Compute, xs: Sequence[Any]) -> Sequence[Any]:
    """A leaf operation on rows: JAX's batching rule of the one primitive, batch axis 0, uniform operands unbatched.

    What works number by number is its own batching rule; `jax.vmap` would trace it again for each window width."""
    types = [r.type for r in equation.results]
    varying = [isinstance(x, Variable) and x.space is not None for x in equation.operands]
    by_number = all(varying) and equation.op.name in BY_NUMBER and len({x.shape for x in xs}) == 1
    if by_number or not any(varying):
        return leaf.evaluate(equation.op, types, *xs)

    def lane(*rows: Any) -> Sequence[Any]:
        rest = iter(rows)
        return leaf.evaluate(equation.op, types, *(next(rest) if v else x for v, x in zip(varying, xs, strict=True)))

    return jax.vmap(lane)(*(x for v, x in zip(varying, xs, strict=True) if v))
