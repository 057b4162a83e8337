"""Rows that were read of a table, from all rows of a space: their indices, and their cotangents.

of = dynamic_slice(table, word)    word [7, 2, _]    cotangent [[a], [b], [_]]    live 2
                                   indices [7, 2, V]        rows [a, b, 0]        V: no row of the table
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.autodiff.row_reads import row_indices, row_values
from autobatch.ir.system import Compute, Variable


def rows_read(of: Compute, indices: Sequence[Any], cotangent: Any, live: Any, clean: bool) -> tuple[Any, Any]:
    """`indices` int32[n] and `rows` [n, ...] of what `of` has read: the operands behind the table, and the cotangent.

    `live` bool[rows] says which rows count, None where it was read once. The index of the others is one past the last
    row of the table; what lies there is zero if it is to be `clean`."""
    table, *others = of.operands
    assert isinstance(table, Variable)
    count = table.type.shape[0]
    varying = [isinstance(x, Variable) and x.space is not None for x in others]

    def one(*own: Any) -> Any:
        rest = iter(own)
        return row_indices(of, [next(rest) if v else x for v, x in zip(varying, indices, strict=True)], count)

    if live is None:
        return one(), row_values(of, cotangent)
    found = jax.vmap(one)(*(x for v, x in zip(varying, indices, strict=True) if v))
    rows = jax.vmap(lambda ct: row_values(of, ct))(cotangent)
    if clean:
        rows = jnp.where(live.reshape(-1, *(1,) * (rows.ndim - 1)), rows, jnp.zeros_like(rows))
    found = jnp.where(live[:, None], found, count)
    return found.reshape(-1), rows.reshape(-1, *rows.shape[2:])
