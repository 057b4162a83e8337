"""One of several static alternatives, picked by an integer of the program: tables by tag, lists of parameters."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from autobatch.frontend.library.numpy_arrays import kind_of
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import coerce, operand_of, traced
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.tracing.tracing import trace
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import LeafLayout, NotStored, layout_of
from autobatch.frontend.types.unify import LayoutConflict, unify
from autobatch.ir.core import Array, Operand


def select(s: LoweringState, index: Operand, alternatives: Sequence[v.Abstract]) -> v.Abstract:
    """`alternatives[index]`; the index is in range. Containers of one shape are picked part by part, so that their
    numbers are rows of columns; what differs in type stays a choice, whose parts and results are picked."""
    if len(alternatives) == 1 or all(a == alternatives[0] for a in alternatives):
        return alternatives[0]
    containers = [expand(s, a) for a in alternatives]
    first = containers[0]
    if isinstance(first, v.Record) and all(_is_like(first, c) for c in containers):
        parts = {k: [c.get(k) for c in containers if isinstance(c, v.Record)] for k in first.keys}
        items = tuple(select(s, index, [x for x in xs if x is not None]) for xs in parts.values())
        made = v.Record(first.kind, first.keys, items, first.cls, first.treedef)
        s.context.identities.same(made, *containers)
        return made
    try:
        layout = layout_of(alternatives[0])
        for other in alternatives[1:]:
            layout = unify(layout, layout_of(other))
    except (LayoutConflict, NotStored):
        return v.Choice(index, tuple(alternatives))
    if isinstance(layout, LeafLayout) and isinstance(layout.type, Array) and not layout.type.dtype.startswith("key"):
        row = gather(s, index, alternatives, layout.type)
        s.context.identities.same(row, *alternatives)
        return row
    return chain(s, index, alternatives)


def _is_like(record: v.Record, other: v.Abstract) -> bool:
    """Is it a container of the same kind with the same parts?"""
    return (
        isinstance(other, v.Record)
        and (record.kind, record.cls, record.treedef) == (other.kind, other.cls, other.treedef)
        and set(record.keys) == set(other.keys)
    )


def gather(s: LoweringState, index: Operand, alternatives: Sequence[v.Abstract], type: Array) -> v.Abstract:
    """Numbers and arrays of one type: a row of the stacked alternatives."""
    rows = tuple(v.Leaf(coerce(s, operand_of(s, a), type)) for a in alternatives)
    picked = trace(s, _pick, [v.Leaf(index), *rows], {})
    assert isinstance(picked, v.Leaf)
    return v.Leaf(coerce(s, picked.operand, type), numpy=kind_of(alternatives) if type.shape else None)


def _pick(index: Any, *rows: Any) -> Any:
    return jnp.stack([jnp.asarray(r) for r in rows])[index]


def chain(s: LoweringState, index: Operand, alternatives: Sequence[v.Abstract]) -> v.Abstract:
    """Anything else: a chain of branches."""

    def at(t: LoweringState, position: int) -> v.Abstract:
        if position == len(alternatives) - 1:
            return alternatives[position]
        hit = traced(t, operator.eq, v.Leaf(index), v.Static(position)).operand
        return conditional(t, hit, lambda _: alternatives[position], lambda u: at(u, position + 1))

    return at(s, 0)


def of_each(s: LoweringState, values: Sequence[v.Abstract], use: Any) -> v.Abstract | None:
    """`use(state, *values)` of each alternative, where one of the values is a choice between classes, or values that
    are no functions (those are passed on as they are); None where none is."""
    for k, value in enumerate(values):
        if isinstance(value, v.Choice) and not all(map(_is_function, value.alternatives)):
            return apply_choice(s, value, lambda t, x, k=k: use(t, *values[:k], x, *values[k + 1 :]))
    return None


def _is_function(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return callable(value.value) and not isinstance(value.value, type)
    return isinstance(value, v.LocalFunction | v.Method)


def apply_choice(s: LoweringState, choice: v.Choice, use: Any) -> v.Abstract:
    """The result of `use` on the alternative picked at run time."""

    def at(t: LoweringState, position: int) -> v.Abstract:
        if position == len(choice.alternatives) - 1:
            result: v.Abstract = use(t, choice.alternatives[position])
            return result
        hit = traced(t, operator.eq, v.Leaf(choice.index), v.Static(position)).operand
        return conditional(t, hit, lambda u: use(u, choice.alternatives[position]), lambda u: at(u, position + 1))

    return at(s, 0)
