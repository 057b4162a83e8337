"""Plain data as JSON and arrays, and back: what programs are described by. No pickle, and no code of the file is run.

    Apply((Value(3, INT),), op, ...)   ->   {"o": ["Apply", {"results": {"t": [...]}, "op": ..., ...}]}   an object
    the same object again              ->   {"r": 17}                                                     object 17

Objects are dataclasses and NamedTuples of the closed set that a reader gives by name; whatever else a file names is
refused. An object that two others hold is one object again.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from autobatch.ir import jax_compat
from autobatch.ir.ops import Op

AnyArray = np.ndarray[Any, Any]
Names = Mapping[str, type]
"""The classes of objects by name, enums among them."""


class UnwritableError(Exception):
    """A value that no file can hold."""


class JsonWriter:
    """Values as JSON; `arrays` are those among them. `name_of`: a class of the user as text."""

    def __init__(self, names: Names, name_of: Callable[[type], str]) -> None:
        self.arrays: list[AnyArray] = []
        self._names = {cls: name for name, cls in names.items()}
        self._name_of = name_of
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []

    def value(self, x: Any) -> Any:
        if x is None or type(x) in (bool, int, float, str):
            return x
        if isinstance(x, enum.Enum):
            return {"e": [self._class(type(x)), x.name]}
        if id(x) in self._known:
            return {"r": self._known[id(x)]}
        made = self._whole(x)
        if next(iter(made)) in ("o", "p"):
            self._known[id(x)] = len(self._known)
            self._alive.append(x)
        return made

    def _whole(self, x: Any) -> dict[str, Any]:
        match x:
            case Op(primitive=primitive) if primitive is not None:
                return {"p": [x.name, self.value(x.params)]}
            case complex():
                return {"c": [x.real, x.imag]}
            case bytes():
                return {"b": base64.b64encode(x).decode()}
            case np.generic():
                return {"n": self._array(np.asarray(x))}
            case np.ndarray():
                return {"a": self._array(x)}
            case type():
                return {"k": self._name_of(x)}
            case _ if is_dataclass(x):
                kept = (f.name for f in fields(x) if f.init and f.metadata.get("kept", True))
                held = {name: self.value(getattr(x, name)) for name in kept}
                return {"o": [self._class(type(x)), held]}
            case tuple() if hasattr(x, "_fields"):
                return {"o": [self._class(type(x)), {n: self.value(getattr(x, n)) for n in x._fields}]}
            case tuple():
                return {"t": [self.value(y) for y in x]}
            case list():
                return {"l": [self.value(y) for y in x]}
            case Mapping():
                return {"m": [[self.value(k), self.value(v)] for k, v in x.items()]}
            case frozenset() | set():
                return {"s": [self.value(y) for y in sorted(x, key=_place)]}
            case _ if x is ...:
                return {"x": "..."}
            case np.dtype():
                return {"d": str(x)}
        raise UnwritableError(f"{type(x).__name__} {str(x)[:80]}")

    def _class(self, cls: type) -> str:
        if cls not in self._names:
            raise UnwritableError(f"objects of {cls.__module__}.{cls.__qualname__}")
        return self._names[cls]

    def _array(self, x: AnyArray) -> list[Any]:
        if x.dtype.kind == "O":
            raise UnwritableError("an array of objects")
        self.arrays.append(x if x.dtype.kind in "biufc" else x.view(f"u{x.dtype.itemsize}"))
        return [len(self.arrays) - 1, str(x.dtype)]


def _place(x: Any) -> Any:
    """An order of the members of a set, so that equal programs are equal files."""
    return (type(x).__name__, x.name if isinstance(x, enum.Enum) else x.id if hasattr(x, "id") else x)


class JsonReader:
    """Values from JSON. Raises ValueError for what `JsonWriter` did not write."""

    def __init__(self, names: Names, class_of: Callable[[str], type], arrays: Sequence[AnyArray]) -> None:
        self._names, self._class_of, self._arrays = names, class_of, arrays
        self._known: list[Any] = []

    def value(self, text: Any) -> Any:
        if not isinstance(text, dict):
            return text
        ((kind, held),) = text.items()
        match kind:
            case "r":
                return self._known[held]
            case "o":
                cls = self._class(held[0])
                made = cls(**{n: self.value(v) for n, v in held[1].items()})
                self._known.append(made)
                return made
            case "p":
                op = Op(held[0], self.value(held[1]), _primitive(held[0]))
                self._known.append(op)
                return op
            case "e":
                return self._class(held[0])[held[1]]  # type: ignore[index]
            case "t":
                return tuple([self.value(x) for x in held])
            case "l":
                return [self.value(x) for x in held]
            case "m":
                return {self.value(k): self.value(v) for k, v in held}
            case "s":
                return frozenset(self.value(x) for x in held)
            case "a":
                return self._array(held)
            case "n":
                return self._array(held)[()]
            case "c":
                return complex(*held)
            case "b":
                return base64.b64decode(held)
            case "k":
                return self._class_of(held)
            case "d":
                return jax_compat.dtype_of(held)
            case "x":
                return ...
        raise ValueError(f"{kind!r} is nothing that a value can be")

    def _class(self, name: str) -> type:
        if name not in self._names:
            raise ValueError(f"there is no class {name!r}")
        return self._names[name]

    def _array(self, held: list[Any]) -> AnyArray:
        found: AnyArray = self._arrays[held[0]].view(jax_compat.dtype_of(held[1]))
        return found


def _primitive(name: str) -> Any:
    found = jax_compat.primitive(name)
    if found is None:
        raise ValueError(f"JAX has no operation {name!r}")
    return found
