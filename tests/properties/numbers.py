"""Floats wherever they stand in examples and results: in containers, and in the fields of objects."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np


def is_float(value: Any) -> bool:
    return isinstance(value, float) or (hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating))


def mapped(value: Any, fn: Callable[[Any], Any], memo: dict[int, Any] | None = None) -> Any:
    """A copy with `fn` of every float, in one order; an object that stands twice is one object again."""
    memo = {} if memo is None else memo
    if is_float(value):
        return fn(value)
    if id(value) in memo:
        return memo[id(value)][0]
    if isinstance(value, tuple):
        parts = [mapped(x, fn, memo) for x in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {k: mapped(x, fn, memo) for k, x in value.items()}
    if isinstance(value, list):
        made = []
        memo[id(value)] = made, value
        made += [mapped(x, fn, memo) for x in value]
        return made
    if not hasattr(value, "__dict__") or isinstance(value, type) or callable(value):
        return value
    twin = copy.copy(value)
    memo[id(value)] = twin, value
    for name, part in vars(value).items():
        object.__setattr__(twin, name, mapped(part, fn, memo))
    return twin


def floats(value: Any) -> list[Any]:
    """All floats, in the order of `mapped`."""
    found: list[Any] = []
    mapped(value, lambda x: found.append(np.asarray(x, np.float64)))
    return found


def moved(examples: list[Any], directions: list[list[Any]], step: float) -> list[Any]:
    """The examples, each with its floats moved along a direction. What is shared between examples is apart."""
    made = []
    for x, direction in zip(examples, directions, strict=True):
        given = iter(direction)
        made.append(mapped(x, lambda v, given=given: _like(v, np.asarray(v) + step * next(given))))
    return made


def _like(value: Any, new: Any) -> Any:
    return float(new) if isinstance(value, float) else new.astype(value.dtype)


def weigh(result: Any) -> float:
    """A number that depends on every float of a result, and not linearly."""
    return float(sum(np.sum(x * x + 0.7 * x) for x in floats(result)))


def slopes(result: Any) -> Any:
    """The cotangent of `weigh`, in the structure of the result."""
    return mapped(result, lambda x: _like(x, 2 * np.asarray(x, np.float64) + 0.7))
