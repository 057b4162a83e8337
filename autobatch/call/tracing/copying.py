"""An example again, with something else in the place of its numbers: objects keep their identity and their sharing.

Floats, and arrays of floats, are numbers; integers, strings and whatever else decides structure stay as they are.
"""

from __future__ import annotations

import copyreg
import enum
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from autobatch.call.tracing.log import ExampleNumber

ATOMS = (str, bytes, int, type(None), enum.Enum, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
         types.MethodType, range, slice, np.random.Generator)  # fmt: skip
"""What is never copied: it holds no numbers, or nobody expects a copy of it."""
PLAIN = frozenset((int, bool, str, bytes, type(None)))
"""Those that most examples are made of: lists of them are copied whole."""


def is_number(value: Any) -> bool:
    """Is it a float or complex number, or an array of such?"""
    if isinstance(value, (float, complex, ExampleNumber)):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "fcV" and value.dtype.names is None
    return isinstance(value, jax.Array)


def rebuilt(value: Any, parts: list[Any]) -> tuple[Any, ...]:
    """A tuple of the kind of another one."""
    make = getattr(value, "_make", tuple)
    made: tuple[Any, ...] = make(parts)
    return made


class TraceCopier:
    """Copies objects; `number(value)` is what stands in the place of a number. Arrays keep their identity: one array
    that stands twice is one number."""

    def __init__(self, number: Callable[[Any], Any]) -> None:
        self.number = number
        self._made: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._waiting: list[Callable[[], None]] = []

    def copy(self, value: Any) -> Any:
        """The copy of a whole example. Objects that are linked in long chains need no deep recursion."""
        made = self.shell(value)
        while self._waiting:
            self._waiting.pop()()
        return made

    def shell(self, value: Any) -> Any:
        """A copy whose parts may still be missing."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is float:
            return self.number(value)
        if is_number(value):
            return (
                self._once(value, self.number)
                if not isinstance(value, (float, complex, ExampleNumber))
                else self.number(value)
            )
        if isinstance(value, ATOMS):
            return value
        if id(value) in self._made:
            return self._made[id(value)]
        self._alive.append(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        return self._mutable(value)

    def _once(self, value: Any, make: Callable[[Any], Any]) -> Any:
        if id(value) not in self._made:
            self._alive.append(value)
            self._made[id(value)] = make(value)
        return self._made[id(value)]

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        parts = [self.shell(x) for x in value]
        if all(p is x for p, x in zip(parts, value, strict=True)):
            made: Any = value
        else:
            made = rebuilt(value, parts)
        self._made[id(value)] = made
        return made

    def _mutable(self, value: Any) -> Any:
        kind = type(value)
        if kind is list and PLAIN.issuperset(map(type, value)):
            made: Any = value.copy()
            self._made[id(value)] = made
        elif kind is list:
            made = []
            self._later(value, made, lambda: made.extend(map(self.shell, value)))
        elif kind is dict:
            made = {}
            self._later(value, made, lambda: made.update((self.shell(k), self.shell(x)) for k, x in value.items()))
        elif kind is deque:
            made = deque(maxlen=value.maxlen)
            self._later(value, made, lambda: made.extend(map(self.shell, value)))
        elif kind in (set, frozenset) or isinstance(value, (np.ndarray, np.generic)):
            made = value.copy() if isinstance(value, (set, np.ndarray)) else value  # integers, words
            self._made[id(value)] = made
        else:
            made = self._object(value)
        return made

    def _later(self, value: Any, made: Any, fill: Callable[[], None]) -> None:
        self._made[id(value)] = made
        self._waiting.append(fill)

    def _object(self, value: Any) -> Any:
        """An instance of any class, as `copy.copy` takes it apart."""
        kind = type(value)
        reduce = copyreg.dispatch_table.get(kind)
        state = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        if isinstance(state, str):
            self._made[id(value)] = value
            return value
        make, args, *rest = state
        made = make(*(x if isinstance(x, type) else self.copy_now(x) for x in args))
        self._made[id(value)] = made
        attributes, items, pairs = (*rest, None, None, None)[:3]

        def fill() -> None:
            if attributes is not None:
                self._set(made, attributes)
            for x in items or ():
                made.append(self.shell(x))
            for k, x in pairs or ():
                made[self.shell(k)] = self.shell(x)

        self._waiting.append(fill)
        return made

    def copy_now(self, value: Any) -> Any:
        """A copy that is complete, which a constructor may look at."""
        waiting, self._waiting = self._waiting, []
        made = self.copy(value)
        self._waiting = waiting
        return made

    def _set(self, made: Any, attributes: Any) -> None:
        if hasattr(made, "__setstate__"):
            made.__setstate__(self.copy_now(attributes))
            return
        held, slots = attributes if isinstance(attributes, tuple) and len(attributes) == 2 else (attributes, None)
        for name, x in (held or {}).items():
            made.__dict__[name] = self.shell(x)
        for name, x in (slots or {}).items():
            object.__setattr__(made, name, self.shell(x))
