"""Rows that were read of a table, from all rows of a space: their indices, and their cotangents.

of = dynamic_slice(table, word)    word [7, 2, _]    cotangent [[a], [b], [_]]    live 2
                                   indices [7, 2, V]        rows [a, b, 0]        V: no row of the table
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.xla.rows import take
from autobatch.ir.system import Compute, Variable
from autobatch.passes.schedule.row_reads import filling, row_indices, row_values, values_of_rows


def rows_read(of: Compute, indices: Sequence[Any], cotangent: Any, live: Any, clean: bool) -> tuple[Any, Any]:
    """`indices` int32[n] and `rows` [n, ...] of what `of` has read: the operands behind the table, and the cotangent.

    `live` bool[rows] says which rows count, None where it was read once. The index of the others is one past the last
    row of the table; what lies there is zero if it is to be `clean`."""
    if live is None:
        return row_indices(of, indices, _count(of)), row_values(of, cotangent)
    found = _of_all(of, indices, len(live))
    rows = jax.vmap(lambda ct: row_values(of, ct))(cotangent)
    if clean:
        rows = jnp.where(live.reshape(-1, *(1,) * (rows.ndim - 1)), rows, jnp.zeros_like(rows))
    found = jnp.where(live[:, None], found, _count(of))
    return found.reshape(-1), rows.reshape(-1, *rows.shape[2:])


def rows_of_each(of: Compute, indices: Sequence[Any], tables: Any, which: Any) -> Any:
    """What `of` reads where row k has the table `tables[which[k]]`: no row has a copy of its own."""
    count = _count(of)
    found = _of_all(of, indices, len(which))
    held = tables.reshape(-1, *tables.shape[2:])
    rows = take(held, which[:, None] * count + jnp.clip(found, 0, count - 1))
    if (other := filling(of)) is not None:
        inside = (found >= 0) & (found < count)
        rows = jnp.where(inside.reshape(*inside.shape, *(1,) * (rows.ndim - 2)), rows, jnp.asarray(other, rows.dtype))
    return jax.vmap(lambda r: values_of_rows(of, r))(rows)


def in_tables(indices: Any, which: Any, shape: tuple[int, ...]) -> Any:
    """Indices of rows, as many for each of `which`, the table that it reads, in all tables end to end; past the end
    where either is out of range. `shape`: tables, rows, ..."""
    tables, count = shape[:2]
    held = jnp.repeat(which, indices.shape[0] // which.shape[0], total_repeat_length=indices.shape[0])
    inside = (indices >= 0) & (indices < count) & (held < tables)
    return jnp.where(inside, held * count + indices, tables * count)


def _count(of: Compute) -> int:
    table = of.operands[0]
    assert isinstance(table, Variable)
    return table.type.shape[0]


def _of_all(of: Compute, indices: Sequence[Any], rows: int) -> Any:
    """int32[rows, n]: `row_indices` of all rows."""
    varying = [isinstance(x, Variable) and x.space is not None for x in of.operands[1:]]

    def one(*own: Any) -> Any:
        rest = iter(own)
        return row_indices(of, [next(rest) if v else x for v, x in zip(varying, indices, strict=True)], _count(of))

    if not any(varying):
        found = one()
        return jnp.broadcast_to(found, (rows, *found.shape))
    return jax.vmap(one)(*(x for v, x in zip(varying, indices, strict=True) if v))
