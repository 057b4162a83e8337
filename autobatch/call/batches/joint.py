"""Batches that were packed apart and are passed together: one group of tuples, planned for all of them.

f(p, left, right)              columns of pairs, made once and kept on left: the second call plans nothing
f(p, left[idx], right[idx])    cut from the pairs of the whole data sets, where those are planned for f
f(p, left, [t, ...])           a list is packed anew at each call, so nothing is kept
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autobatch.call.batches.groups import Group, Planner
from autobatch.data.columns import Columns
from autobatch.data.together import columns_together


@dataclass(frozen=True)
class JointPart:
    """One argument: a group, or one component of a group of several. `fleeting`: it is gone after this call."""

    group: Group
    component: int | None
    fleeting: bool = False

    @property
    def columns(self) -> Columns:
        return self.group.columns if self.component is None else self.group.components[self.component]

    @property
    def key(self) -> Any:
        return self.group.token, self.component


def join(parts: Sequence[JointPart], planner: Planner) -> Group:
    """The group whose examples are tuples of those of the parts."""
    if any(p.fleeting for p in parts):
        return _made(parts)
    found = _kept(parts)
    if found is None:
        found = _cut(parts, planner) or _made(parts)
        _keep(parts, found)
    return found


def _keep(parts: Sequence[JointPart], joined: Group) -> None:
    """Keep a group on the first of its parts for as long as all others live."""
    key = tuple(p.key for p in parts)
    owner = weakref.ref(parts[0].group)

    def forget(_: object) -> None:
        held = owner()
        if held is not None:
            held.joined.drop(key)

    others = {p.group.token: p.group for p in parts[1:] if p.group is not parts[0].group}
    parts[0].group.joined.put(key, (joined, [weakref.ref(g, forget) for g in others.values()]))


def _made(parts: Sequence[JointPart]) -> Group:
    return Group(columns_together([p.columns for p in parts]), len(parts))


def _kept(parts: Sequence[JointPart]) -> Group | None:
    """What an earlier call has put together."""
    entry = parts[0].group.joined.get(tuple(p.key for p in parts))
    return None if entry is None else entry[0]


def _cut(parts: Sequence[JointPart], planner: Planner) -> Group | None:
    """The same examples of several data sets are cut from what those are together, where that is planned."""
    origins = [p.group.origin for p in parts]
    known = [o for o in origins if o is not None]
    if len(known) < len(parts) or any(not np.array_equal(o[1], known[0][1]) for o in known):
        return None
    whole = [JointPart(o[0], p.component) for o, p in zip(known, parts, strict=True)]
    pairs = _kept(whole)
    if pairs is None and all(planner in p.group.planners for p in whole):
        pairs = join(whole, planner)
        pairs.mark(planner)
    if pairs is None or not pairs.is_planned_for(planner):
        return None
    return pairs.take(known[0][1])


def cut_together(groups: Sequence[Group]) -> list[Group]:
    """What these groups, which are the same examples of several data sets, will be in a call: cut from what earlier
    calls have put together of those data sets. Kept, so that the call finds it."""
    cuts = {g.origin[0].token: g for g in groups if g.origin is not None}
    found = []
    for group in cuts.values():
        assert group.origin is not None
        for key, (whole, _) in group.origin[0].joined.items():
            if all(token in cuts for token, _ in key):
                parts = [JointPart(cuts[token], component) for token, component in key]
                found += [join(parts, planner) for planner in whole.planners]
    return found
