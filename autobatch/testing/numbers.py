"""Floats wherever they stand in examples and results: in containers, and in the fields of objects."""

from __future__ import annotations

import copy
import dataclasses
import enum
import zlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.testing.compare import attributes

Place = str


def is_float(value: Any) -> bool:
    """Is it a Python float, or an array of floats?"""
    return isinstance(value, float) or (hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating))


def mapped(value: Any, fn: Callable[[Place, Any], Any]) -> Any:
    """A copy with `fn(place, x)` in the place of every float `x`; an object that stands twice is one object again.

    >>> mapped({"a": [1, 2.0], "b": 0.5}, lambda place, x: (place, 2 * x))
    {'a': [1, ("['a'][1]", 4.0)], 'b': ("['b']", 1.0)}
    """
    return _Copy(fn).of(value, "")


def floats(value: Any, wanted: Collection[Place] = ()) -> dict[Place, Any]:
    """All floats by their places, an object that stands twice once, but for places that are wanted.

    >>> row = [0.5]
    >>> floats([row, row]), floats([row, row], ["[1][0]"])
    ({'[0][0]': 0.5}, {'[0][0]': 0.5, '[1][0]': 0.5})
    """
    found: dict[Place, Any] = {}
    _Copy(found.__setitem__, wanted).of(value, "")
    return found


class _Copy:
    def __init__(self, fn: Callable[[Place, Any], Any], again: Collection[Place] = ()) -> None:
        self.fn, self.again = fn, again
        self.made: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, place: Place) -> Any:
        if is_float(value):
            return self.fn(place, value)
        if _is_leaf(value):
            return value
        if id(value) in self.made and not any(p.startswith(place) for p in self.again):
            return self.made[id(value)][0]
        if isinstance(value, tuple):
            names = (
                [f".{n}" for n in value._fields] if hasattr(value, "_fields") else [f"[{k}]" for k in range(len(value))]
            )
            parts = [self.of(x, place + name) for name, x in zip(names, value, strict=True)]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        twin = copy.copy(value)
        self.made[id(value)] = twin, value  # the value too: its id stays its own
        if isinstance(value, dict):
            twin.update((k, self.of(x, f"{place}[{k!r}]")) for k, x in value.items())
        elif isinstance(value, (list, deque)):
            parts = [self.of(x, f"{place}[{k}]") for k, x in enumerate(value)]
            twin.clear()
            twin.extend(parts)
        else:
            for name, part in attributes(value).items():
                object.__setattr__(twin, name, self.of(part, f"{place}.{name}"))
        return twin


def _is_leaf(value: Any) -> bool:
    if value is None or isinstance(
        value, (bool, int, complex, str, enum.Enum, np.ndarray, np.generic, jax.Array, type)
    ):
        return True
    return callable(value) and not dataclasses.is_dataclass(value)  # functions; modules of parameters are dataclasses


def moved(examples: Sequence[Any], directions: Sequence[dict[Place, Any]], step: float) -> list[Any]:
    """The examples, each with its floats moved along a direction. What is shared between examples is apart."""

    def along(direction: dict[Place, Any]) -> Callable[[Place, Any], Any]:
        return lambda place, x: like(x, np.asarray(x) + step * direction[place])

    return [mapped(x, along(d)) for x, d in zip(examples, directions, strict=True)]


def roundings(value: Any, rng: np.random.Generator) -> Any:
    """A random direction for a float or an array, in proportion to it. Numbers of few bits, such as 0.25, stay what
    they are: a batch compares and adds them exactly, so that a difference there is never one of rounding.

    >>> float(abs(roundings(0.25, np.random.default_rng(0))))
    0.0
    """
    x = np.asarray(value, np.float64)
    exact = ~np.isfinite(x) | (np.round(x * 1024) == x * 1024)
    return np.where(exact, 0.0, x) * rng.uniform(-1, 1, x.shape)


def like(value: Any, new: Any) -> Any:
    """A number or array of the type of another."""
    if isinstance(value, float):
        return float(new)
    made = np.asarray(new).astype(value.dtype)
    return jnp.asarray(made) if isinstance(value, jax.Array) else made


def weigh(result: Any) -> float:
    """A number that depends on every float of a result, and not linearly."""
    return float(sum(np.sum(x * (x + weight(place))) for place, x in _wide(result).items()))


def slopes(result: Any) -> Any:
    """The cotangent of `weigh`, in the structure of the result."""
    return mapped(result, lambda place, x: like(x, 2 * np.asarray(x, np.float64) + weight(place)))


def weight(place: Place) -> float:
    """What a float at a place weighs by itself: nothing that two places have in common, so that no cotangents cancel.

    >>> weight("[0]") == weight("[1]")
    False
    """
    return 0.5 + zlib.crc32(place.encode()) % 9973 / 9973


def _wide(result: Any) -> dict[Place, Any]:
    return {place: np.asarray(x, np.float64) for place, x in floats(result).items()}
