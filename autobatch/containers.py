"""Containers of arrays, level by level: dicts keep the order of their own keys, which `jax.tree` sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autobatch.arguments import one_level

Whole = tuple[type, ...]
"""Classes whose objects have no parts."""


def leaves(value: Any, whole: Whole) -> Iterator[Any]:
    """What is no container, in order."""
    children, _ = _parts(value, whole)
    if children is None:
        yield value
    else:
        for x in children:
            yield from leaves(x, whole)


def with_leaves(value: Any, given: Iterator[Any], whole: Whole) -> Any:
    """The same containers with other leaves."""
    children, rebuild = _parts(value, whole)
    return next(given) if children is None else rebuild([with_leaves(x, given, whole) for x in children])


def _parts(value: Any, whole: Whole) -> tuple[Sequence[Any] | None, Callable[[Sequence[Any]], Any]]:
    if isinstance(value, whole):
        return None, lambda xs: value
    children, _, rebuild = one_level(value)
    return None if children is None else [x for _, x in children], rebuild
