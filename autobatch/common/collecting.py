"""Python's garbage collection, put off while a program is compiled, and while examples are traced.

Both make a great many small objects, nearly all of which are in no cycle: Python looks through them again and again,
and through everything that JAX has in memory, for a fifth of the time that a compilation takes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def collecting_later(run: Callable[P, R]) -> Callable[P, R]:
    """The same function, during which no garbage is collected that is in cycles. Threads may run it side by side: then
    it is collected from the end of the first on."""

    @wraps(run)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return run(*args, **kwargs)
        gc.disable()
        try:
            return run(*args, **kwargs)
        finally:
            gc.enable()

    return quietly
