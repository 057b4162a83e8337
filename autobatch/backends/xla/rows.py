"""What equations compute on rows: leaf operations, gathers, reductions of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.folds import NEUTRAL
from autobatch.backends.xla.lanes import over_rows
from autobatch.backends.xla.masks import LiveRows, on_rows
from autobatch.ir import jax_compat
from autobatch.ir.masked import is_masked
from autobatch.ir.system import Compute, Fold, Variable


def take(array: Any, index: Any) -> Any:
    """Rows of an array; the planner guarantees the range. It is what `array.at[index].get` makes of integers that are
    not negative. It is traced for each window of each loop, and NumPy's rules of indexing take ten times as long."""
    inner = array.shape[1:]
    offsets = tuple(range(index.ndim, index.ndim + len(inner)))
    numbers = jax.lax.GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=(0,), start_index_map=(0,))
    mode = jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return jax.lax.gather(array, jax.lax.expand_dims(index, (index.ndim,)), numbers, (1, *inner), mode=mode)


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


def counted(fold: Fold, values: Any, owner: Any) -> Any:
    """The elements of the runs of a fold without those that do not count: a NaN behind the first element, as
    `leaf.extreme` has it. The least (greatest) number is in their place."""
    if fold.even or fold.kind not in ("max", "min"):
        return values
    first = jnp.concatenate([jnp.ones(1, bool), owner[1:] != owner[:-1]])
    counts = (values == values) | first.reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(counts, values, NEUTRAL[fold.kind](values.dtype))


def compute_live(
    equation: Compute, xs: Sequence[Any], rows: int, live: Any, first: Any = 0, loops: str = "xla"
) -> Sequence[Any]:
    """As `compute`, on `rows` rows of which those of `first:live` matter: an operation that holds a loop runs on the
    operands of the row `first` in place of the others, whose loops might never end. `loops`: the option."""
    varying = _varying(equation)
    if not any(varying):
        return [jnp.broadcast_to(y, (rows, *y.shape)) for y in compute(equation, xs)]
    masked = is_masked(equation.op)
    if not (masked or jax_compat.holds_loop(equation.op)):
        return compute(equation, xs)
    row = jnp.arange(rows)
    lives = (row >= first) & (row < live)
    if masked:
        return on_rows(equation.op, xs, varying, LiveRows(rows, lives, loops))
    chosen = jnp.where(lives, row, first)

    def run() -> list[Any]:
        return list(compute(equation, [take(x, chosen) if v else x for v, x in zip(varying, xs, strict=True)]))

    def skip() -> list[Any]:
        return [jax_compat.zeros(a.shape, a.dtype) for a in jax.eval_shape(run)]

    found: Sequence[Any] = jax.lax.cond(live > first, run, skip)
    return found


def compute(equation: Compute, xs: Sequence[Any]) -> Sequence[Any]:
    """The results of a computation on all rows: a leading axis where an operand has one (`lanes.over_rows`)."""
    if is_masked(equation.op):
        return on_rows(equation.op, xs, _varying(equation), None)
    return over_rows(equation.op, [r.type for r in equation.results], xs, _varying(equation))


def _varying(equation: Compute) -> list[bool]:
    return [isinstance(x, Variable) and x.space is not None for x in equation.operands]
