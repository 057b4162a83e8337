"""The inverse of tables of pointers: what has read each row.

Cotangents go from the rows that have read to the rows that were read; the tables of the primal say the opposite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.xla.rows import take


@dataclass(frozen=True)
class ReadEntries:
    """What the entries of tables have read: `row` is the row that each has read, past the last one where it does not
    count; `source` where its cotangent lies. `count`: how often each row has been read; `once`: none more than once."""

    row: Any
    source: Any
    count: Any
    once: Any

    @property
    def rows(self) -> int:
        rows: int = self.count.shape[0]
        return rows

    def placed(self, room: int) -> Any:
        """The entry that has read each row, where no row has been read more than once."""
        at = jnp.arange(self.row.shape[0], dtype=self.row.dtype)
        where = jnp.where(self.row < self.rows, self.row, room)
        return jnp.zeros(room, self.row.dtype).at[where].set(at, mode="drop")


@dataclass(frozen=True)
class Inverse:
    """Which entries have read each row: `count[row]` ones from `first[row]` on in `entry`, and in `index`, where their
    cotangents lie."""

    first: Any
    count: Any
    index: Any
    entry: Any


def as_rows(weight: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Factors, one for each row or each number of it, for rows of this shape."""
    wide = weight.reshape(weight.shape[0], *(weight.shape[1:] or (1,) * len(shape)))
    return jnp.broadcast_to(wide, (weight.shape[0], *shape)).astype(dtype)


def scaled(values: Any, factors: Any) -> Any:
    """Cotangents times factors. A factor of zero says that nothing was read: zero, whatever the cotangent is."""
    return jnp.where(factors == 0, jnp.zeros_like(values), values * factors)


def entries_of(row: Any, source: Any, rows: int) -> ReadEntries:
    count = jnp.zeros(rows + 1, row.dtype).at[row].add(1, mode="promise_in_bounds")[:rows]
    return ReadEntries(row, source, count, jnp.max(count, initial=0) <= 1)


def invert(found: ReadEntries) -> Inverse:
    """The entries that have read each row, in their order. Where no row is read twice, as in trees, nothing is
    sorted."""
    entries, rows = found.row.shape[0], found.rows
    dtype = found.row.dtype
    room = max(entries, rows)

    def placed() -> tuple[Any, Any]:
        return found.placed(room), jnp.arange(rows, dtype=dtype)

    def ordered() -> tuple[Any, Any]:
        order = jnp.argsort(found.row, stable=True).astype(dtype)
        return jnp.pad(order, (0, room - entries)), jnp.cumsum(found.count, dtype=dtype) - found.count

    entry, first = jax.lax.cond(found.once, placed, ordered)
    return Inverse(first, found.count, take(found.source, entry), entry)


@dataclass(frozen=True)
class Runs:
    """What each row of a loop adds up: `count[row]` entries from `first[row]` on, which are the rows `index` of a
    buffer (negative: none), each multiplied by its factor where there are any. `first` None: one entry a row."""

    first: Any
    count: Any
    index: Any
    factors: Any
