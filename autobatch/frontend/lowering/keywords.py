"""The named arguments of a call, `**` among them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend.lowering.access import expand
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import list_heap
from autobatch.frontend.types import values as v


def named_arguments(s: LoweringState, keywords: Sequence[ast.keyword]) -> dict[str, v.Abstract]:
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
