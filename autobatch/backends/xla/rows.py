"""What equations compute on rows: leaf operations, gathers, reductions of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.row_operations import NEUTRAL, over_rows
from autobatch.backends.xla.masks import LiveRows, on_rows
from autobatch.ir import jax_compat
from autobatch.ir.masked import is_masked
from autobatch.ir.system import Compute, Fold, Variable
from autobatch.passes.equations import filling, row_indices, row_values, values_of_rows


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


# ---- inverse
#
# The inverse of tables of pointers: what has read each row.
#
# Cotangents go from the rows that have read to the rows that were read; the tables of the primal say the opposite.


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


# ---- row reads
#
# Rows that were read of a table, from all rows of a space: their indices, and their cotangents.
#
# of = dynamic_slice(table, word)    word [7, 2, _]    cotangent [[a], [b], [_]]    live 2
#                                    indices [7, 2, V]        rows [a, b, 0]        V: no row of the table


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
