"""A shared argument that looks like one that a program was found for takes that program, without a key.

    pattern of {"W": array, "b": (array, 1.0)}     a dict of W and b; W is a JAX array float32[3,4], b a tuple of ...

Only containers of Python and numbers that are run-time values have patterns, and only where each stands once: what else
a shared argument may hold says what is compiled by its value.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from autobatch.call.arguments import Order, order_of


@dataclass(frozen=True, slots=True)
class LeafPattern:
    """A number or an array: its class and type. `aval` is the type as JAX has it: arrays that came from one place share
    it, and are alike at a glance."""

    cls: type
    dtype: Any = None
    shape: tuple[int, ...] = ()
    weak: bool = False
    aval: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ContainerPattern:
    """A dict, tuple or list. `names`: the keys of a dict in `canonical` order; `order`: that which it must have, where
    that matters, or where keys may be equal and not the same, as 1 and True are."""

    cls: type
    names: tuple[Any, ...]
    children: tuple[LeafPattern | ContainerPattern, ...]
    order: Order | None = None


Pattern = LeafPattern | ContainerPattern


def pattern_of(value: Any, name: str = "", ordered: Container[str] = ()) -> Pattern | None:
    """How a shared argument looks, None where it may hold more than run-time numbers. `ordered`: the dicts whose order
    matters, by the names that `sharing` gives them."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return LeafPattern(type(value), value.dtype, value.shape, _is_weak(value), getattr(value, "aval", None))
    if type(value) is np.ndarray:
        return LeafPattern(np.ndarray, value.dtype, value.shape)
    if type(value) in (float, complex):
        return LeafPattern(type(value))
    if type(value) not in (dict, tuple, list):
        return None
    places: Sequence[Any] = range(len(value))
    names: tuple[Any, ...] = ()
    order = None
    if isinstance(value, dict):
        try:
            places = names = tuple(sorted(value))
        except TypeError:
            return None  # JAX does not take it apart
        order = order_of(value) if name in ordered or not all(type(k) is str for k in names) else None
        if len(set(map(repr, names))) < len(names):
            return None  # names do not tell what it holds apart
    children = [pattern_of(value[k], f"{name}[{k!r}]", ordered) for k in places]
    known = tuple(c for c in children if c is not None)
    return ContainerPattern(type(value), names, known, order) if len(known) == len(children) else None


def _is_weak(array: Any) -> bool:
    return bool(getattr(array, "weak_type", False))  # typed random keys have no such thing


class Matcher:
    """How several values look, each as its pattern says. JAX takes them apart, so that what a call of many arrays costs
    is little more than a look at each. `structure`: as JAX has it; `orders`: those
    of keys that matter."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.numbers = tuple(x for p in patterns for x in _leaves(p))
        self.looks: list[tuple[type[Any], Any, LeafPattern]] = [(n.cls, n.aval, n) for n in self.numbers]
        self.structure: Any = jax.tree.structure(tuple(map(_like, patterns)))
        self.orders = tuple(x for p in patterns for x in _orders(p))
        self.ordered = any(x is not None for x in self.orders)

    def match(self, values: Sequence[Any]) -> list[Any] | None:
        """The numbers of values that look like these, in order; None where one does not."""
        values = tuple(values)
        try:
            numbers, structure = jax.tree_util.tree_flatten(values)
        except (TypeError, ValueError):  # it holds what JAX does not take apart
            return None
        if structure != self.structure:
            return None
        x: Any
        for x, (cls, aval, leaf) in zip(numbers, self.looks, strict=True):
            if type(x) is not cls:
                return None
            if leaf.dtype is None or (aval is not None and x.aval is aval):
                continue
            if x.shape != leaf.shape or x.dtype != leaf.dtype:
                return None
            if leaf.cls is not np.ndarray and _is_weak(x) != leaf.weak:
                return None
        return numbers if self.in_order(values) else None

    def in_order(self, values: Sequence[Any]) -> bool:
        """Have the dicts in values of this structure their keys in the order that they must have?"""
        return not self.ordered or all(map(_in_order, self.patterns, values))


def _orders(pattern: Pattern) -> Iterator[Order | None]:
    if isinstance(pattern, ContainerPattern):
        yield pattern.order
        for child in pattern.children:
            yield from _orders(child)


def _leaves(pattern: Pattern) -> Iterator[LeafPattern]:
    if isinstance(pattern, LeafPattern):
        yield pattern
    else:
        for child in pattern.children:
            yield from _leaves(child)


def _like(pattern: Pattern) -> Any:
    """A value of the same structure."""
    if isinstance(pattern, LeafPattern):
        return 0
    parts = map(_like, pattern.children)
    return dict(zip(pattern.names, parts, strict=True)) if pattern.cls is dict else pattern.cls(parts)


def _in_order(pattern: Pattern, value: Any) -> bool:
    """Have the dicts in a value of this structure their keys in the order that they must have?"""
    if isinstance(pattern, LeafPattern):
        return True
    if isinstance(value, dict):
        if pattern.order is not None and order_of(value) != pattern.order:
            return False
        value = [value[k] for k in pattern.names]
    return all(map(_in_order, pattern.children, value))
