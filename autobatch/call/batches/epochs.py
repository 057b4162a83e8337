"""Minibatches of one size class, stacked on a leading axis: what `batch.epoch` gives to `jax.lax.scan`.

    order = [[0, 1], [2, 3]]        examples of each step
    step 0      integers int32[4096], Node.value float32[24]        bound alone, each in a size class of its own
    step 1      integers int32[5120], Node.value float32[30]
    epoch       integers int32[2, 5120], Node.value float32[2, 30]  bound for capacities that hold every step

Capacities of an epoch never fall below those of an earlier epoch of the same data set and batch size, so that epochs
which are shuffled anew run on the executable that is there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from autobatch.call import transfer
from autobatch.call.batches.groups import BatchForm, BatchLeaves, Group, Specialised, flatten
from autobatch.errors import PlanError


@dataclass
class Capacities:
    """What the epochs of one data set and batch size had room for: rows of each space of the columns, and for each
    program the signature that its tables were bound for."""

    rows: Mapping[str, int] = field(default_factory=dict)
    signatures: dict[str, Hashable] = field(default_factory=dict)


def stack(group: Group, steps: np.ndarray[Any, Any], component: int | None) -> tuple[BatchLeaves, BatchForm]:
    """The minibatches `steps[k]` of a group as leaves with a leading axis of steps."""
    groups = [group.take(row) for row in steps]
    programs = tuple(s for p in groups[0].planners for s in p.specialisations_for(groups[0]))
    if not programs:
        raise PlanError(
            "no function that the batch is planned for was ever called: plan it and call it on a small batch "
            "first, so that the types of its shared arguments are known"
        )
    met = _data_set(groups[0]).epochs.setdefault((steps.shape[1], group.schema), Capacities())
    for program in programs:
        met.signatures[program.fingerprint] = _bind_alike(groups, program, met.signatures.get(program.fingerprint))
    met.rows = _rows(groups, met.rows)
    parts = [flatten(g, programs, met.rows) for g in groups]
    columns, tables = jax.tree.map(lambda *xs: np.stack(xs), *((leaves.columns, leaves.tables) for leaves, _ in parts))
    plans = tuple(
        replace(held[0], failures=tuple(f for p in held for f in p.failures))
        for held in zip(*(form.plans for _, form in parts), strict=True)
    )
    return BatchLeaves(columns, tables), replace(parts[0][1], plans=plans, component=component, like=None)


def _data_set(group: Group) -> Group:
    """The group that a minibatch is cut from."""
    return group if group.origin is None else group.origin[0]


def _bind_alike(groups: Sequence[Group], program: Specialised, before: Hashable | None) -> Hashable:
    """Bind all groups for one signature, which is at least that of `before`."""
    own = [g.tables(program)[1] for g in groups]
    tables, common = program.bind(groups[0].plan(program), own if before is None else [*own, before])
    groups[0].keep_tables(program, tables, common)
    for group, signature in zip(groups[1:], own[1:], strict=True):
        if signature != common:
            group.keep_tables(program, *program.bind(group.plan(program), [common]))
    return common


def _rows(groups: Sequence[Group], before: Mapping[str, int]) -> dict[str, int]:
    """Capacities of the spaces of the columns that hold those of all groups, and what was there before."""
    found = [transfer.capacities(g.columns, g.profile) for g in groups]
    return {space: max(before.get(space, 0), *(c[space] for c in found)) for space in found[0]}
