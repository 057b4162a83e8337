"""Calls on examples whose arrays differ in shape: one call for each group of examples of one shape.

    f([Photo(3x4), Photo(5x6), Photo(3x4)])
    f([Photo(3x4), Photo(3x4)])    f([Photo(5x6)])        each its own types, its own program, its own plan
    results in the order of the examples                  (`group_results.py`)

Arrays that differ in the first axis only are ragged columns, which a function may iterate, index, reduce and take the
length of. Where it needs the whole array (`W @ x`), the compiler refuses the ragged column; then the batch is cut by
the length of these arrays too, and the function remembers it.

The rest of the library knows one shape at a time. Packing says which examples differ (`data/shapes.py`), and
`GroupedBatch` is a batch of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import ArgumentSlot, BoundArguments
from autobatch.call.batches.data import KnownTypes, NeedsWhole
from autobatch.call.group_results import JoinedResults, failures_together, renumbered
from autobatch.call.grouped import GroupedBatch, order_of, rounded_up, whole_arrays
from autobatch.data.columns import Ints, offsets_of
from autobatch.data.shapes import ShapesDiffer
from autobatch.errors import BatchError, Error, ExampleError, Failure, PlanError, SourceError


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
