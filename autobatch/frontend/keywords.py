"""The named arguments of a call, `**` among them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend import list_heap
from autobatch.frontend import values as v
from autobatch.frontend.access import expand
from autobatch.frontend.state import State


def named_arguments(s: State, keywords: Sequence[ast.keyword]) -> dict[str, v.Abstract]:
    """By name, evaluated in their order."""
    named: dict[str, v.Abstract] = {}
    for keyword in keywords:
        value = s.evaluate(keyword.value)
        if keyword.arg is not None:
            named[keyword.arg] = value
            continue
        spread = expand(s, list_heap.copied(s, value))
        if not isinstance(spread, v.Record) or spread.kind != "dict":
            s.refuse("`**` spreads only dicts with constant keys", "write the keys out")
        named |= dict(zip(spread.keys, spread.items, strict=True))
    return named
