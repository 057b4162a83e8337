"""Calls on examples whose arrays differ in shape: one call for each group of examples of one shape.

    f([Photo(3x4), Photo(5x6), Photo(3x4)])
    f([Photo(3x4), Photo(3x4)])    f([Photo(5x6)])        each its own types, its own program, its own plan
    results in the order of the examples

Arrays that differ in the first axis only are ragged columns, which a function may iterate, index, reduce and take the
length of. Where it needs the whole array (`W @ x`), the compiler refuses the ragged column; then the batch is cut by
the length of these arrays too, and the function remembers it.

The rest of the library knows one shape at a time. Packing says which examples differ (`data/ragged.py`), and
`GroupedBatch` is a batch of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import ArgumentSlot, BoundArguments, canonical, is_array, one_level
from autobatch.call.batch import Batch, GroupedBatch, order_of, pack, rounded_up, whole_arrays
from autobatch.call.examples import KnownTypes, NeedsWhole
from autobatch.call.packed import BatchForm, BatchLeaves
from autobatch.call.results import Failures, unbatch
from autobatch.data.columns import ROOT, Ints, Schema, offsets_of
from autobatch.data.ragged import Ragged, ShapesDiffer
from autobatch.errors import BatchError, Error, ExampleError, Failure, PlanError, SourceError
from autobatch.frontend.lowering.state import DictsDiffer
from autobatch.ir.jax_compat import row_type

# ---- group results
#
# The results of groups of examples, put together in the order of the examples.
#
# examples 0, 2: [[1. 2.] [5. 6.]]    example 1: [[3. 4.]]      ->   [[1. 2.] [3. 4.] [5. 6.]]     one array
# examples 0, 2: [2, 3, 4]            example 1: [1, 5, 6]      ->   Batch of arrays [3, 4] [5, 6] [3, 4]
# Ragged, Ragged -> Ragged;   Batch, Batch -> Batch;   containers: part by part;   any mixture -> Batch


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
            _cleared(inner.value([parts[k].values for k in some]), position < offsets[-1]),
            offsets,
            parts[0].is_tuples,
            parts[0].is_arrays,
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


class RaggedRefused(Exception):
    """The function does not compile for the ragged columns `names` of examples of `width` components; perhaps it does
    for their arrays as a whole."""

    def __init__(self, error: SourceError, names: Sequence[str], width: int) -> None:
        self.error, self.names, self.width = error, tuple(names), width
        super().__init__(str(error))


@dataclass(frozen=True, eq=False)
class GroupPart:
    """What a call gives for one group of examples. `members` are their numbers."""

    members: Ints
    result: Any


@dataclass
class ByShape:
    """Calls of one function. `call` runs it for examples of one shape; it may raise ShapesDiffer, NeedsWhole and
    RaggedRefused. `masks`: its result is `(result, failures)`. `apart`: results are not put together, but listed by
    group, each a `GroupPart`. `rounded`: the sizes of groups are rounded up, so that calls fall into few size
    classes."""

    function: str
    call: Callable[[BoundArguments], Any]
    known: KnownTypes
    limit: int
    out_axes: Any = 0
    masks: bool = False
    apart: bool = False
    rounded: bool = True
    groups: int = 1

    def run(self, bound: BoundArguments) -> Any:
        """The result for a batch, in groups where its shapes differ."""
        if any(isinstance(s.values, GroupedBatch) for s in bound.slots):
            return self.in_groups(*along(self.function, bound))
        found = self.attempt(bound)
        match found:
            case ShapesDiffer():
                members = found.members(self.limit - self.groups + 1)
                rows = [rounded_up(m) for m in members] if self.rounded else members
                return self.in_groups(*cut(self.function, bound, rows, members))
            case NeedsWhole(group=group, reasons=reasons):
                batches = whole_arrays(group, reasons, self.limit - self.groups + 1).args
                given = iter(batches)
                return self.run(
                    bound.with_slots(lambda s: s if s.kind == "array" else replace(s, kind="batch", values=next(given)))
                )
            case RaggedRefused():
                return self.whole(bound, found)
            case (result,):
                return [GroupPart(np.arange(bound.size), result)] if self.apart else result
            case _:
                assert_never(found)

    def attempt(self, bound: BoundArguments) -> tuple[Any] | ShapesDiffer | NeedsWhole | RaggedRefused:
        """The result, or why the examples have to be cut first."""
        try:
            return (self.call(bound),)
        except (ShapesDiffer, NeedsWhole, RaggedRefused) as why:
            return why
        except DictsDiffer:
            if not self.known.may_read_keys(bound.slots):
                raise
            return self.with_keys_as_data(bound)

    def with_keys_as_data(self, bound: BoundArguments) -> tuple[Any] | ShapesDiffer | NeedsWhole | RaggedRefused:
        """The same where the keys of dicts of strings are data, from here on; as before where that does not compile."""
        self.known.keys_are_data = True
        try:
            return self.attempt(bound)
        except (SourceError, BatchError):
            self.known.keys_are_data = False
            return self.attempt(bound)

    def whole(self, bound: BoundArguments, refused: RaggedRefused) -> Any:
        """The result where some ragged columns are arrays as a whole: one of them, or all."""
        names = refused.names
        attempts = [*([n] for n in names), [*names]] if len(names) > 1 else [[*names]]
        reason = f"{self.function} needs them whole ({refused.error.span}: {refused.error.message})"
        failed: Error = refused.error
        for attempt in attempts:
            undo = self.known.require_whole(refused.width, attempt, reason)
            groups = self.groups
            try:
                return self.run(bound)
            except (SourceError, BatchError) as error:
                undo()
                self.groups = groups
                failed = error
        raise failed from None

    def in_groups(self, parts: Sequence[BoundArguments], order: Any) -> Any:
        """The results of groups of examples, put together."""
        self.groups += len(parts) - 1
        if self.apart:
            if isinstance(order, jax.core.Tracer):
                raise BatchError(f"{self.function}: programs of groups by shape are shown outside jax.jit only")
            return self.listed(parts, _known(self.function, order))
        together = JoinedResults(self.function, order, tuple(p.size for p in parts))
        results, failures, count, base = [], list[Failure](), 0, 0
        for part in parts:
            try:
                results.append(self.run(part))
            except ExampleError as error:
                if isinstance(order, jax.core.Tracer):
                    raise  # the numbers are those of the group: its place in the batch is not known
                mine = renumbered(error.failures, base, order)
                failures += mine
                count += len(mine) if error.count == len(error.failures) else error.count
            base += part.size
        if failures:
            raise ExampleError(sorted(failures, key=lambda f: f.index), count)
        return self.combine(results, together)

    def combine(self, parts: Sequence[Any], together: JoinedResults) -> Any:
        """What the calls of all groups give, as one."""
        return self.results(parts, together, self.out_axes)

    def results(self, parts: Sequence[Any], together: JoinedResults, out_axes: Any) -> Any:
        """The results of all groups, in the order of the examples."""
        if self.masks:
            masked = together.value([r for r, _ in parts], out_axes)
            return masked, failures_together([f for _, f in parts], together)
        return together.value(parts, out_axes)

    def listed(self, parts: Sequence[BoundArguments], order: Ints) -> list[GroupPart]:
        """The results of groups of examples, each with the numbers of its examples; repeated ones are left out."""
        example = np.full(sum(p.size for p in parts), -1, np.int64)
        example[order] = np.arange(len(order))
        found, base = [], 0
        for part in parts:
            for inner in self.run(part):
                members = example[base + inner.members]
                found.append(GroupPart(members[members >= 0], inner.result))
            base += part.size
        return found


# ---- cutting the arguments of a call


def along(function: str, bound: BoundArguments) -> tuple[list[BoundArguments], Any]:
    """The calls of the groups of batches that are in groups already, and the order of the examples in them."""
    grouped = [s.values for s in bound.slots if isinstance(s.values, GroupedBatch)]
    first = grouped[0]
    if not _one_partition(grouped):
        order = [_known(function, b.order) for b in grouped]
        groups = np.stack([b.place(o)[0] for b, o in zip(grouped, order, strict=True)], 1)
        _, group = np.unique(groups, axis=0, return_inverse=True)
        members = [np.flatnonzero(group.reshape(-1) == k) for k in range(int(group.max()) + 1)]
        return cut(function, bound, [rounded_up(m) for m in members], members)
    examples = _examples(first)
    bounds = offsets_of(np.array([len(g) for g in first.groups], np.int64))
    return (
        [
            bound.with_slots(lambda s, k=k, rows=examples[a:b]: _part(function, s, k, rows))  # type: ignore[misc]
            for k, (a, b) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        ],
        first.order,
    )


def _part(function: str, slot: ArgumentSlot, group: int, rows: Any) -> ArgumentSlot:
    if isinstance(slot.values, GroupedBatch):
        return replace(slot, values=slot.values.groups[group])
    return _cut_slot(function, slot, rows)


def cut(
    function: str, bound: BoundArguments, rows: Sequence[Ints], members: Sequence[Ints]
) -> tuple[list[BoundArguments], Ints]:
    """The calls for some rows of the examples each; each begins with its members, and may repeat some."""
    parts = [bound.with_slots(lambda s, r=r: _cut_slot(function, s, r)) for r in rows]  # type: ignore[misc]
    return parts, order_of(members, list(map(len, rows)))


def _cut_slot(function: str, slot: ArgumentSlot, rows: Any) -> ArgumentSlot:
    """Some examples of one batched leaf."""
    if slot.kind == "array":
        return replace(slot, values=slot.leading()[rows], axis=0)
    known = _known(function, rows)
    if slot.kind == "list":
        return replace(slot, values=[slot.values[k] for k in known.tolist()])
    values = slot.values
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(values)):
        raise _apart(function)
    made = values[known]
    return replace(slot, values=made.groups[0] if isinstance(made, GroupedBatch) and len(made.groups) == 1 else made)


def _known(function: str, rows: Any) -> Ints:
    if isinstance(rows, jax.core.Tracer):
        raise _apart(function)
    return np.asarray(rows)


def _apart(function: str) -> PlanError:
    return PlanError(
        f"{function}: a batch whose examples differ in shape and another batched argument were packed apart; under "
        f"jax.jit pack them together: pairs = {function}.pack(...), then {function}(..., *pairs.args)"
    )


def _one_partition(batches: Sequence[GroupedBatch]) -> bool:
    """Are the examples of all these batches in the same groups?"""
    first = batches[0]
    if all(b.order is first.order for b in batches):
        return True
    if [b.component for b in batches] != list(range(len(batches))):
        return False
    forms = [[replace(g.parts()[1], component=None) for g in b.groups] for b in batches]
    return forms[0][0].width == len(batches) and all(f == forms[0] for f in forms)


def _examples(batch: GroupedBatch) -> Any:
    """The example of each position in the groups of a batch; for repeated ones, the first of their group."""
    sizes = np.array([len(g) for g in batch.groups], np.int64)
    first = np.repeat(offsets_of(sizes)[:-1], sizes)
    count, total = len(batch), int(sizes.sum())
    if isinstance(batch.order, jax.core.Tracer):
        found = jnp.full(total, -1, jnp.int32).at[batch.order].set(jnp.arange(count, dtype=jnp.int32))
        return jnp.where(found < 0, found[first], found)
    held = np.full(total, -1, np.int64)
    held[np.asarray(batch.order)] = np.arange(count)
    return np.where(held < 0, held[first], held)
