"""What a function reads that is no argument: closures and globals, of it and of the user's functions that it names.

Arrays among them are hidden shared arguments, so that derivatives reach them and another value is no other trace;
where anything else is no longer what it was, traces that were kept are made again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from autobatch.traces.record import UserCode

Name = tuple[int, str, str]
"""The function that reads a variable, by its number, the variable, and the way from it to an array in it."""


class Free:
    """The free variables of a function, as they are now."""

    def __init__(self, function: Callable[..., Any], user: UserCode) -> None:
        self.values: dict[tuple[int, str], Any] = {}
        self.arrays: dict[Name, Any] = {}
        self._user, self._seen = user, dict[Any, int]()
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
            for name, value in _variables(found):
                self.values[number, name] = value
                waiting.append(value)
                for path, array in _arrays(value):
                    self.arrays[number, name, path] = array

    def is_same(self, other: Free) -> bool:
        """Is all that is no array what it was? Arrays are what they were by their types."""
        if self.values.keys() != other.values.keys() or self.arrays.keys() != other.arrays.keys():
            return False
        if any(_type_of(x) != _type_of(other.arrays[k]) for k, x in self.arrays.items()):
            return False
        held = {k[:2] for k in self.arrays}
        return all(k in held or _equal(x, other.values[k]) for k, x in self.values.items())


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


def _arrays(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (jax.Array, np.ndarray)):
        yield "", value
    elif isinstance(value, (dict, list, tuple)):
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, (jax.Array, np.ndarray)):
                yield jax.tree_util.keystr(path), leaf


def _type_of(x: Any) -> Any:
    return x.shape, x.dtype


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, (int, float, complex, str, bytes, bool)) and bool(a == b)
