"""What a function reads that is no argument: closures and globals, of it and of the user's functions that it names.

Arrays among them are hidden shared arguments, so that derivatives reach them and another value is no other trace;
where anything else is no longer what it was, traces that were kept are made again.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autobatch.call.tracing.record import UserCode
from autobatch.call.tracing.symbols import Symbol
from autobatch.ir.constants import same_constant

Name = tuple[int, str, str]
"""The function that reads a variable, by its number, the variable, and the way from it to an array in it."""


class FreeVariables:
    """The free variables of a function, as they are now. `held`: what they hold; in two parts `values` and `arrays`."""

    MISSING = object()
    """What a variable holds that does not exist."""

    def __init__(self, function: Callable[..., Any], user: UserCode) -> None:
        self.held: dict[tuple[int, str], Any] = {}
        self.values: dict[tuple[int, str], Any] = {}
        self.arrays: dict[Name, Any] = {}
        self._user, self._seen = user, dict[Any, int]()
        self._functions: list[types.FunctionType] = []
        self._follow(function)

    def _follow(self, function: Any) -> None:
        waiting = [function]
        while waiting:
            found = _function_of(waiting.pop())
            if found is None or found.__code__ in self._seen:
                continue
            if found.__code__.co_filename.startswith(self._user.folders):
                continue
            number = self._seen[found.__code__] = len(self._seen)
            self._functions.append(found)
            for name, value in _variables(found):
                waiting.append(value)
                self.held[number, name] = value
                arrays, self.values[number, name] = _apart(value)
                self.arrays.update({(number, name, path): x for path, x in arrays})

    def rebind(self, where: tuple[int, str], value: Any) -> None:
        """Let a variable hold something else; MISSING: nothing."""
        number, name = where
        function = self._functions[number]
        if name in function.__code__.co_freevars:
            cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
            if value is not self.MISSING:
                cell.cell_contents = value
            else:
                del cell.cell_contents
        elif value is not self.MISSING:
            function.__globals__[name] = value
        else:
            del function.__globals__[name]

    def is_same(self, other: FreeVariables) -> bool:
        """Is all that is no array what it was? Arrays are what they were by their types."""
        if self.values.keys() != other.values.keys() or self.arrays.keys() != other.arrays.keys():
            return False
        if any(_type_of(x) != _type_of(other.arrays[k]) for k, x in self.arrays.items()):
            return False
        return all(_equal(x, other.values[k]) for k, x in self.values.items())

    def lasting(self) -> FreeVariables:
        """The same with the types of its arrays alone."""
        made: FreeVariables = object.__new__(FreeVariables)
        made.values, made.held = self.values, {}
        made._user, made._seen, made._functions = self._user, self._seen, []
        made.arrays = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in self.arrays.items()}
        return made


def _function_of(value: Any) -> types.FunctionType | None:
    value = getattr(value, "__wrapped__", value)
    value = value.__func__ if isinstance(value, types.MethodType) else value
    return value if isinstance(value, types.FunctionType) else None


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, globals_ = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not yet bound
    codes = [code]
    while codes:
        inner = codes.pop()
        codes += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
        for name in inner.co_names:
            if name in globals_ and not isinstance(globals_[name], types.ModuleType):
                yield name, globals_[name]


LARGE = 1000
"""A container of more entries is compared by what it is, and arrays in it are constants."""


@dataclass(frozen=True)
class _Rest:
    """A container without its arrays."""

    structure: Any
    others: tuple[Any, ...]


def _apart(value: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The arrays in a value, by the way to each, and what else there is to compare."""
    if isinstance(value, (jax.Array, np.ndarray)):
        return [("", value)], None
    if not isinstance(value, (dict, list, tuple)) or len(value) > LARGE:
        return [], value
    try:
        found, structure = jax.tree_util.tree_flatten_with_path(value)
    except (ValueError, TypeError, RecursionError):
        return [], value  # keys that have no order, or a container that holds itself: no pytree of JAX
    arrays = [(jax.tree_util.keystr(p), x) for p, x in found if isinstance(x, (jax.Array, np.ndarray))]
    return arrays, _Rest(structure, tuple(x for _, x in found if not isinstance(x, (jax.Array, np.ndarray))))


def _type_of(x: Any) -> Any:
    return x.shape, x.dtype


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, _Rest) and isinstance(b, _Rest):
        same = a.structure == b.structure and len(a.others) == len(b.others)
        return bool(same) and all(map(_equal, a.others, b.others))
    return isinstance(a, (int, float, complex, str, bytes, bool)) and same_constant(a, b)


# ---- leaks
#
# Symbols that a run leaves behind: in a list, dict, set or object that the function finds outside of it.
#
#     SEEN = []
#     def f(w, xs):
#         SEEN.append(xs[0] * w)      a symbol, which means nothing once the trace has ended
#         return xs[0]
#
# Where one is found, all that the run has changed there is put back, and the function is refused. What it leaves there
# that is no symbol stays, as plain Python leaves it: it is not looked at.


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
