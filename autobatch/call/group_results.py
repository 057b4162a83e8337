"""The results of groups of examples, put together in the order of the examples.

examples 0, 2: [[1. 2.] [5. 6.]]    example 1: [[3. 4.]]      ->   [[1. 2.] [3. 4.] [5. 6.]]     one array
examples 0, 2: [2, 3, 4]            example 1: [1, 5, 6]      ->   Batch of arrays [3, 4] [5, 6] [3, 4]
Ragged, Ragged -> Ragged;   Batch, Batch -> Batch;   containers: part by part;   any mixture -> Batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import canonical, is_array, one_level
from autobatch.call.batches.batch import Batch
from autobatch.call.batches.groups import BatchForm, BatchLeaves
from autobatch.call.grouped import GroupedBatch, pack
from autobatch.call.results import Failures, unbatch
from autobatch.data.columns import ROOT
from autobatch.data.ragged import Ragged
from autobatch.data.schema import Schema
from autobatch.errors import BatchError
from autobatch.ir.jax_compat import row_type


@dataclass(frozen=True)
class JoinedResults:
    """Puts results together. `order[i]` is where example i is among the rows of all groups, one after another; group k
    has `sizes[k]` rows."""

    function: str
    order: Any
    sizes: tuple[int, ...]

    def value(self, parts: Sequence[Any], axis: Any = 0) -> Any:
        """One result: `parts` are those of the groups, `axis` its entry of `out_axes`."""
        if all(p is None for p in parts):
            return None
        if all(isinstance(p, Batch) for p in parts):
            return GroupedBatch(parts, self.order)
        if all(isinstance(p, Ragged) for p in parts):
            return self.ragged(parts)
        if all(is_array(p) for p in parts):
            return self.array(parts, axis)
        levels = [one_level(p) for p in parts]
        children, key, rebuild = levels[0]
        if children is not None and all(other[0] is not None and other[1] == key for other in levels):
            columns = [[v for _, v in level[0] or ()] for level in levels]
            axes = self.axes(axis, parts[0], len(children))
            return rebuild([self.value(row, a) for *row, a in zip(*columns, axes, strict=True)])
        if not any(isinstance(p, (Batch, Ragged)) or is_array(p) for p in parts) and all(p is parts[0] for p in parts):
            return parts[0]
        return self.mixture(parts)

    def axes(self, axis: Any, result: Any, count: int) -> list[Any]:
        """The entries of `out_axes` for the parts of a container."""
        if axis is None or isinstance(axis, int):
            return [axis] * count
        if isinstance(axis, dict) and isinstance(result, dict):
            return [axis[k] for k in canonical(result)]
        return [a for _, a in one_level(axis)[0] or ()]

    def array(self, parts: Sequence[Any], axis: int | None) -> Any:
        """Arrays of the groups: one array where their shapes agree, else a Batch of arrays."""
        if axis is None:
            return parts[0]  # no batched argument reaches it
        rows = [jnp.moveaxis(p, axis, 0) if axis else p for p in parts]
        if len({r.shape[1:] for r in rows}) == 1:
            whole = jnp.concatenate([jnp.asarray(r) for r in rows])[self.order]
            return jnp.moveaxis(whole, 0, axis) if axis else whole
        if axis:
            shapes = ", ".join(str(tuple(r.shape[1:])) for r in rows)
            raise BatchError(
                f"{self.function}: out_axes={axis} puts the results into one array, but they differ in shape between "
                f"examples: {shapes}; pad them to one shape in the function, or leave out_axes at 0 for a Batch"
            )
        return GroupedBatch([_batch_of_arrays(r) for r in rows], self.order)

    def ragged(self, parts: Sequence[Ragged]) -> Ragged:
        """Lists: the rows of all groups, one list after another in the order of the examples."""
        capacities = [_capacity(p.values) for p in parts]
        bases = np.cumsum([0, *capacities[:-1]])
        begins = jnp.concatenate([jnp.asarray(p.offsets[:-1]) + b for p, b in zip(parts, bases.tolist(), strict=True)])
        lengths = jnp.concatenate([jnp.asarray(p.lengths) for p in parts])[self.order]
        offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(lengths)]).astype(jnp.int32)
        capacity = sum(capacities) if isinstance(offsets, jax.core.Tracer) else int(offsets[-1])
        position = jnp.arange(capacity)
        example = jnp.clip(jnp.searchsorted(offsets, position, side="right") - 1, 0, max(len(self.order) - 1, 0))
        rows = begins[self.order][example] + position - offsets[example] if capacity else position
        rows = jnp.where(position < offsets[-1], rows, 0)
        known = rows if isinstance(rows, jax.core.Tracer) else np.asarray(rows)
        some = [k for k, n in enumerate(capacities) if n] or [0]  # where there are no rows, their type is unknown
        inner = JoinedResults(self.function, known, tuple(capacities[k] for k in some))
        return Ragged(
            _cleared(inner.value([parts[k].values for k in some]), position < offsets[-1]), offsets, parts[0].is_tuples
        )

    def mixture(self, parts: Sequence[Any]) -> Batch:
        """Results of different kinds: objects, packed again."""
        if any(isinstance(x, jax.core.Tracer) for p in (*parts, self.order) for x in jax.tree.leaves(p)):
            raise BatchError(
                f"{self.function}: examples of different shapes give results of different structure, which can be put "
                "together outside jax.jit only; return results of one structure"
            )
        rows: list[Any] = []
        arrays = any(is_array(p) for p in parts)
        for part, size in zip(parts, self.sizes, strict=True):
            if arrays and isinstance(part, Ragged) and is_array(part.values):
                rows += map(np.asarray, part)  # arrays that differ in length within this group
            else:
                rows += unbatch(part) if jax.tree.leaves(part) else [part] * size
        return pack([rows[k] for k in np.asarray(self.order).tolist()])


def failures_together(parts: Sequence[Failures], together: JoinedResults) -> Failures:
    """What failed, in all groups. Details are known on the host only."""
    failed = together.value([p.failed for p in parts])
    if isinstance(together.order, jax.core.Tracer):
        return Failures(failed)
    details, bases = [], np.cumsum([0, *together.sizes[:-1]]).tolist()
    for part, base in zip(parts, bases, strict=True):
        details += renumbered(part.details, base, together.order)
    return Failures(failed, tuple(sorted(details, key=lambda f: f.index)))


def renumbered(failures: Sequence[Any], base: int, order: Any) -> list[Any]:
    """Failures of a group whose rows begin at `base`, with the numbers of the examples; those of repeated ones are
    left out."""
    example = {place: k for k, place in enumerate(np.asarray(order).tolist())}
    return [replace(f, index=example[base + f.index]) for f in failures if base + f.index in example]


def _capacity(values: Any) -> int:
    """How many rows the values of a Ragged have."""
    if isinstance(values, (Batch, Ragged)):
        return len(values)
    return int(jax.tree.leaves(values, is_leaf=lambda x: isinstance(x, (Batch, Ragged)))[0].shape[0])


def _cleared(values: Any, used: Any) -> Any:
    """Zero in the rows past the last that is used. Where lengths are known there are none."""
    if not isinstance(used, jax.core.Tracer):
        return values

    def cleared(x: Any) -> Any:
        if isinstance(x, (Batch, Ragged)):
            return x
        return jnp.where(used.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros((), x.dtype))

    return jax.tree.map(cleared, values, is_leaf=lambda x: isinstance(x, (Batch, Ragged)))


def _batch_of_arrays(rows: Any) -> Batch:
    """An array as a batch whose examples are its rows."""
    schema = Schema(row_type(rows))
    return Batch.from_leaves(BatchLeaves({ROOT: rows}), BatchForm(schema, int(rows.shape[0]), 1))
