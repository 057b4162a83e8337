"""Which dicts the function runs over: the order of their keys is a part of the program, that of others is not.

    p["W"], "b" in p, len(p), p.get("b")              any order of the keys of p is the same program
    for k in p, p.items(), {**p}, tree.map(g, p)      the order that p has now; another is another program

JAX hands dicts back with their keys sorted, so that a dict comes in several orders where nobody thinks of one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from autobatch.frontend.lowering.state import Context
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import children

_SCALARS = (int, float, complex, str, bytes, type(None))


def names_of(dicts: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """The names of shared dicts, by identity; a dict that stands twice has two."""
    found: dict[int, tuple[str, ...]] = {}
    for name, held in dicts.items():
        found[id(held)] = (*found.get(id(held), ()), name)
    return found


def run_over(context: Context, value: v.Abstract) -> None:
    """Note that the keys of a value, if it is a dict, are met in their order."""
    match value:
        case v.Static(value=held):
            context.memory.ordered.update(context.memory.dicts.get(id(held), ()))
        case v.Record(kind="dict"):
            context.memory.orders_batched = True  # which dict it stems from, nobody remembers


def hand_out(context: Context, *values: Any) -> None:
    """Note that Python code gets these objects, and may run over any dict inside."""
    if not context.memory.dicts:
        return
    todo, seen = list(values), set[int]()
    while todo:
        held = todo.pop()
        if isinstance(held, _SCALARS) or id(held) in seen:
            continue
        seen.add(id(held))
        context.memory.ordered.update(context.memory.dicts.get(id(held), ()))
        todo += (part for _, part in children(held))
        if isinstance(held, functools.partial):
            todo += (held.func, held.args, held.keywords)
