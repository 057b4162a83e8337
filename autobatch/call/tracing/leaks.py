"""Symbols that a run leaves behind: in a list, dict, set or object that the function finds outside of it.

    SEEN = []
    def f(w, xs):
        SEEN.append(xs[0] * w)      a symbol, which means nothing once the trace has ended
        return xs[0]

Where one is found, all that the run has changed there is put back, and the function is refused. What it leaves there
that is no symbol stays, as plain Python leaves it: it is not looked at.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import jax

from autobatch.call.tracing.free import LARGE, FreeVariables
from autobatch.call.tracing.symbols import Symbol

DEEP = 4
"""Containers inside of so many others are not looked into."""


class LeakWatch:
    """What free variables hold, before a run."""

    def __init__(self, free: FreeVariables) -> None:
        self._before = [(where, x, _copy(x)) for where, x in _containers(free)]
        self._names = dict(free.held)

    def leaked(self, now: FreeVariables) -> str | None:
        """The variable that holds a symbol now, where there is one: then everything is as it was before."""
        found = next((where for where, x in _containers(now) if any(map(_is_symbol, _parts(x)))), None)
        found = found or next((where for where, x in now.held.items() if _is_symbol(x)), None)
        if found is None:
            return None
        for _, container, copy in self._before:
            _restore(container, copy)
        for where, x in now.held.items():
            if _is_symbol(x):
                now.rebind(where, self._names.get(where, FreeVariables.MISSING))
        return found[1]


def _containers(free: FreeVariables) -> Iterator[tuple[tuple[int, str], Any]]:
    """Everything in free variables that can be changed, with the variable that it is found by."""
    seen = set[int]()
    for where, value in free.held.items():
        level = [value]
        for _ in range(DEEP):
            below: list[Any] = []
            for x in level:
                parts = _parts(x)
                if not parts and not _is_changeable(x):
                    continue
                if id(x) in seen or len(parts) > LARGE:
                    continue
                seen.add(id(x))
                if _is_changeable(x):
                    yield where, x
                below += parts
            level = below


def _is_changeable(x: Any) -> bool:
    return isinstance(x, (list, dict, set, deque)) or _has_fields(x)


def _has_fields(x: Any) -> bool:
    """Is it an object of the user's with a dict of its own?"""
    kind = type(x)
    return (
        isinstance(getattr(x, "__dict__", None), dict)
        and not isinstance(x, (type, types.FunctionType, types.ModuleType, types.MethodType, jax.core.Tracer))
        and kind.__module__.split(".")[0] not in ("autobatch", "jax", "jaxlib", "numpy", "builtins")
    )


def _parts(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [*x.keys(), *x.values()]
    if isinstance(x, (list, tuple, set, frozenset, deque)):
        return [*x]
    return [*vars(x).values()] if _has_fields(x) else []


def _is_symbol(x: Any) -> bool:
    return isinstance(x, (Symbol, jax.core.Tracer))


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, (list, dict, set, deque)) else dict(vars(x))


def _restore(x: Any, copy: Any) -> None:
    """Give a container what it held."""
    held = vars(x) if _has_fields(x) else x
    held.clear()
    held.extend(copy) if isinstance(held, (list, deque)) else held.update(copy)
