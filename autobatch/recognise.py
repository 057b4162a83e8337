"""A shared argument that looks like one that a program was found for takes that program, without a key.

    pattern of {"W": array, "b": (array, 1.0)}     a dict of W and b; W is a JAX array float32[3,4], b a tuple of ...

Only containers of Python and numbers that are run-time values have patterns, and only where each stands once: what else
a shared argument may hold says what is compiled by its value.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from autobatch.arguments import Order, canonical, order_of


@dataclass(frozen=True, slots=True)
class Leaf:
    """A number or an array: its class and type. `aval` is the type as JAX has it: arrays that came from one place share
    it, and are alike at a glance."""

    cls: type
    dtype: Any = None
    shape: tuple[int, ...] = ()
    weak: bool = False
    aval: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Node:
    """A dict, tuple or list. `names`: the keys of a dict in `canonical` order; `order`: that which it must have, where
    that matters, or where keys may be equal and not the same, as 1 and True are."""

    cls: type
    names: tuple[Any, ...]
    children: tuple[Leaf | Node, ...]
    order: Order | None = None


Pattern = Leaf | Node


def pattern_of(value: Any, name: str = "", ordered: Container[str] = ()) -> Pattern | None:
    """How a shared argument looks, None where it may hold more than run-time numbers. `ordered`: the dicts whose order
    matters, by the names that `sharing` gives them."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return Leaf(type(value), value.dtype, value.shape, _is_weak(value), getattr(value, "aval", None))
    if type(value) is np.ndarray:
        return Leaf(np.ndarray, value.dtype, value.shape)
    if type(value) in (float, complex):
        return Leaf(type(value))
    if type(value) not in (dict, tuple, list):
        return None
    places: Sequence[Any] = range(len(value))
    names: tuple[Any, ...] = ()
    order = None
    if isinstance(value, dict):
        places = names = canonical(value)
        order = order_of(value) if name in ordered or not all(type(k) is str for k in names) else None
        if len(set(map(repr, names))) < len(names):
            return None  # names do not tell what it holds apart
    children = [pattern_of(value[k], f"{name}[{k!r}]", ordered) for k in places]
    known = tuple(c for c in children if c is not None)
    return Node(type(value), names, known, order) if len(known) == len(children) else None


def _is_weak(array: Any) -> bool:
    return bool(getattr(array, "weak_type", False))  # typed random keys have no such thing


def size_of(pattern: Pattern) -> int:
    """The numbers that a pattern has."""
    return 1 if isinstance(pattern, Leaf) else sum(map(size_of, pattern.children))


def matches(pattern: Pattern, value: Any, leaves: list[Any]) -> bool:
    """Does a value look like this? Then `leaves` has got its numbers, in order."""
    cls: type[Any] = type(value)
    if cls is not pattern.cls:
        return False
    if isinstance(pattern, Leaf):
        leaves.append(value)
        if pattern.dtype is None or (pattern.aval is not None and value.aval is pattern.aval):
            return True
        same = value.shape == pattern.shape and value.dtype == pattern.dtype
        return same and (pattern.cls is np.ndarray or _is_weak(value) == pattern.weak)
    if len(value) != len(pattern.children):
        return False
    if isinstance(value, dict):
        if pattern.order is not None and order_of(value) != pattern.order:
            return False
        try:
            value = [value[k] for k in pattern.names]
        except KeyError:
            return False
    for child, held in zip(pattern.children, value, strict=True):  # noqa: SIM110  faster than `all` of a generator
        if not matches(child, held, leaves):
            return False
    return True


def all_match(patterns: Sequence[Pattern], values: Sequence[Any]) -> list[Any] | None:
    """The numbers of shared arguments that look like these; None where one does not."""
    leaves: list[Any] = []
    same = len(patterns) == len(values) and all(matches(p, x, leaves) for p, x in zip(patterns, values, strict=True))
    return leaves if same else None
