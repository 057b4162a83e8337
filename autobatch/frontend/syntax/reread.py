"""Free variables read again: what a function read while it was lowered, as it is now."""

from __future__ import annotations

import types
from typing import Any

from autobatch.frontend.lowering.state import FreeVariable
from autobatch.frontend.types.statics import MISSING, follow


def read(free: FreeVariable, otherwise: Any) -> Any:
    """The present value of a free variable; `otherwise` where it is gone."""
    owner, held = free.owner, free.owner
    if isinstance(owner, types.FunctionType):
        names = owner.__code__.co_freevars
        try:
            if free.name in ("__defaults__", "__kwdefaults__"):
                held = getattr(owner, free.name)
            elif free.name in names and owner.__closure__ is not None:
                held = owner.__closure__[names.index(free.name)].cell_contents
            else:
                held = owner.__globals__[free.name]
        except (ValueError, KeyError):
            return otherwise if not free.path else MISSING
    try:
        return follow(held, free.path)
    except (AttributeError, KeyError, IndexError, TypeError):
        return MISSING
