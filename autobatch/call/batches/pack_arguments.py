"""The arguments of `f.pack`: the batched ones alone, in their order."""

from __future__ import annotations

import inspect
from typing import Any

import jax

from autobatch.call.arguments import AxisEntries, BoundArguments, Raw, bind, parts
from autobatch.errors import BatchError


def bound_to_pack(
    function: str, signature: inspect.Signature, entries: AxisEntries, is_method: bool, args: tuple[Any, ...]
) -> BoundArguments:
    """A call with the batched leaves among arguments that are given for the batched parameters alone, in order."""
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    batched = [p for p in parameters if p.kind is not p.VAR_KEYWORD and _has_axis(entries, p.name, function)]
    if len(args) != len(batched) and not any(p.kind is p.VAR_POSITIONAL for p in batched):
        raise BatchError(
            f"{function}.pack takes the batched arguments ({', '.join(p.name for p in batched)}), "
            f"{len(batched)} of them; {len(args)} were given"
        )
    alone = inspect.Signature(
        [p.replace(kind=p.POSITIONAL_ONLY, default=p.empty) if p.kind is not p.VAR_POSITIONAL else p for p in batched]
    )
    bound = bind(function, alone, entries, frozenset(), args, {})
    if any(not raw.static for form in bound.forms.values() for raw in parts(form, Raw)):
        raise BatchError(f"{function}.pack takes batched arguments only; a part of one is shared")
    return bound


def _has_axis(entries: AxisEntries, name: str, function: str) -> bool:
    if name not in entries.axes and not entries.has_default:
        return False
    entry = entries.of(name, function)
    return any(leaf is not None for leaf in jax.tree.leaves(entry, is_leaf=lambda x: x is None))
