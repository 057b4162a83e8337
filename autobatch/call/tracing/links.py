"""Where the numbers of traces lie in the examples: rows of traces hold what the columns of the examples hold.

    Node.value   0.5  2.0  4.0          the column of the examples, source 0
    Row.row_k0   2    0    0            where number k0 of each row of traces lies in it, counted from its example on
    Row.k0       4.0  0.5  7.0          what it is; of the last, whose source is -1, a number of the function's own

So floats of the examples may move, and may be known under `jax.jit` alone: what decides structure is all that a trace
depends on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.tracing.log import ExampleNumber
from autobatch.call.tracing.rows import ROW, SOURCE
from autobatch.common.collecting import collecting_later
from autobatch.data.columns import Columns, columns_of, host_dtype
from autobatch.data.leaves import is_sparse_class
from autobatch.data.schema import Schema
from autobatch.data.unpack import NumberUnpacker, unpack
from autobatch.ir.types import Array


@dataclass(frozen=True)
class NumberOrigin:
    """A column of numbers of the examples. `space`: its rows are those of this space, None: the examples."""

    name: str
    space: str | None
    type: Array

    def starts(self, columns: Columns | None, count: int) -> np.ndarray[Any, Any]:
        """int64[count]: the first row of each example."""
        if self.space is None or columns is None:
            return np.arange(count)
        return columns.starts[self.space][:-1]

    @property
    def dtype(self) -> Any:
        """That of its numbers on a device."""
        return jax.dtypes.canonicalize_dtype(host_dtype(self.type))


@dataclass(frozen=True)
class NumberOrigins:
    """Where the numbers of some examples may lie: in columns, then in arrays that are batched arguments, by slot."""

    columns: tuple[NumberOrigin, ...]
    arrays: Mapping[int, NumberOrigin]

    @classmethod
    def of(cls, schema: Schema | None, arrays: Mapping[int, Array]) -> NumberOrigins:
        """The origins of packed examples, and of arrays beside them by the types of their rows."""
        every = () if schema is None else columns_of(schema)
        typed = [(c.name, c.space, c.type) for c in every if isinstance(c.type, Array)]
        held = [NumberOrigin(name, space, type) for name, space, type in typed if is_float(type)]
        return cls(tuple(held), {k: NumberOrigin(f"array {k}", None, t) for k, t in arrays.items() if is_float(t)})

    @property
    def all(self) -> list[NumberOrigin]:
        return [*self.columns, *self.arrays.values()]

    @collecting_later
    def unpacked(self, columns: Columns) -> list[Any]:
        """The examples, with `ExampleNumber` in the place of their numbers."""
        return unpack(columns, _References({c.name: k for k, c in enumerate(self.columns)}))

    def rows_of(self, slot: int, count: int) -> list[ExampleNumber]:
        """The numbers that an array gives to the examples."""
        number = len(self.columns) + list(self.arrays).index(slot)
        return _References({}).rows(self.arrays[slot].type, number, range(count))


def is_float(type: Array) -> bool:
    """Is it a number that has a derivative?"""
    return not type.dtype.startswith("key<") and bool(jnp.issubdtype(host_dtype(type), jnp.inexact))


def refuses_references(schema: Schema) -> str:
    """The class of a library that wants the numbers themselves; an empty string where there is none."""
    sparse = [c.name for s in schema.stores for c in s.classes if c.cls is not None and is_sparse_class(c.cls)]
    return sparse[0] if sparse else ""


class _References(NumberUnpacker):
    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers

    def each(self, type: Array, column: str, array: Any, rows: Any) -> list[Any]:
        if column not in self.numbers:
            return super().each(type, column, array, rows)
        return self.rows(type, self.numbers[column], range(len(array)) if rows is None else rows.tolist())

    def rows(self, type: Array, number: int, rows: Sequence[int]) -> list[ExampleNumber]:
        dtype = jax.dtypes.canonicalize_dtype(host_dtype(type))
        return [ExampleNumber(type.shape, dtype, type.weak, number, row) for row in rows]

    def slices(self, type: Array, column: str, array: Any, offsets: Sequence[int]) -> list[Any]:
        if column not in self.numbers:
            return super().slices(type, column, array, offsets)
        number = self.numbers[column]
        return [ExampleNumber((b - a, *type.shape), array.dtype, False, number, a) for a, b in pairwise(offsets)]


# ---- columns of traces


@dataclass(frozen=True)
class Links:
    """The columns of traces whose numbers lie in the examples: of each, the columns of its sources and rows, and the
    space."""

    of: Mapping[str, tuple[str, str, str]]

    @classmethod
    def find(cls, schema: Schema) -> Links:
        """The links of the columns of traces of this schema."""
        made: dict[str, tuple[str, str, str]] = {}
        for store in schema.stores:
            for field in store.fields:
                if isinstance(field.type, Array) and is_float(field.type):
                    beside = {f.name: f.column for f in store.fields if f.classes == field.classes}
                    if SOURCE + field.name in beside:
                        place = beside[SOURCE + field.name], beside[ROW + field.name]
                        made[field.column] = (*place, store.name)
        return cls(made)

    def relative(self, traces: Columns, origins: NumberOrigins, columns: Columns | None) -> Columns:
        """Traces whose rows count from the first row of their example on, which those of minibatches do too."""
        starts = [o.starts(columns, traces.count) for o in origins.all]
        return self._shifted(traces, starts, -1)

    def absolute(self, traces: Columns, origins: NumberOrigins, columns: Columns | None) -> Columns:
        """The same, counted from the first row of all."""
        return self._shifted(traces, [o.starts(columns, traces.count) for o in origins.all], 1)

    def _shifted(self, traces: Columns, starts: Sequence[Any], sign: int) -> Columns:
        arrays = dict(traces.arrays)
        for source, row, space in set(self.of.values()):
            example = np.repeat(np.arange(traces.count), np.diff(traces.starts[space]))
            held, number = arrays[row].copy(), arrays[source]
            for k, first in enumerate(starts):
                mine = number == k
                held[mine] += sign * first[example[mine]]
            arrays[row] = held
        return replace(traces, arrays=arrays)

    def with_values(self, traces: Columns, given: Sequence[Any]) -> Columns:
        """Traces, whose rows count from the first of all, with the numbers that the examples have. `given`: arrays of
        all origins."""
        made = {
            c: gathered(traces.arrays[c], traces.arrays[source], traces.arrays[row], given, np)
            for c, (source, row, _) in self.of.items()
        }
        return replace(traces, arrays={**traces.arrays, **made})


def gathered(own: Any, source: Any, row: Any, given: Sequence[Any], xp: Any) -> Any:
    """A column of traces: what lies in the examples is read there, from `given`; the rest is its own."""
    shape, made = own.shape[1:], own
    for is_list in (False, True):
        fits = [
            k for k, x in enumerate(given)
            if x.shape[0] and jax.dtypes.canonicalize_dtype(x.dtype) == own.dtype
            and (x.shape[1:] == shape[1:] and shape if is_list else x.shape[1:] == shape)
        ]  # fmt: skip
        if not fits:
            continue
        first = np.full(len(given), -1, np.int64)
        first[fits] = np.cumsum([0, *(given[k].shape[0] for k in fits[:-1])])
        flat = xp.concatenate([given[k] for k in fits]) if len(fits) > 1 else given[fits[0]]
        begin = xp.asarray(first)[xp.maximum(source, 0)]
        mine = (source >= 0) & (begin >= 0)
        if is_list:
            mine = mine & (row >= 0)
        places = xp.where(mine, begin + row, 0)
        if is_list:
            places = xp.minimum(places[:, None] + xp.arange(shape[0]), flat.shape[0] - 1)
        found = flat[places].astype(own.dtype)
        made = xp.where(mine.reshape(-1, *(1,) * len(shape)), found, made)
    return made
