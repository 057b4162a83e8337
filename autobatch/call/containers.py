"""Containers of arrays, level by level: dicts keep the order of their own keys, which `jax.tree` sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from autobatch.call.arguments import one_level

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


def in_same_places(value: Any, given: Mapping[Any, Any], whole: Whole) -> Callable[[Mapping[Any, Any]], Any] | None:
    """How to make the like of a value from others for all that is `given`, by their names: its leaves are these very
    objects, or None. Where they are not, None."""
    names = {id(x): name for name, x in given.items()}
    held = list(leaves(value, whole))
    if not all(x is None or id(x) in names for x in held):
        return None
    wanted = iter([None if x is None else (names[id(x)],) for x in held])

    def maker(blank: Any) -> Callable[[Mapping[Any, Any]], Any]:
        children, rebuild = _parts(blank, whole)
        if children is None:
            name = next(wanted)
            return (lambda new: None) if name is None else (lambda new: new[name[0]])
        makers = [maker(x) for x in children]
        return lambda new: rebuild([make(new) for make in makers])

    return maker(with_leaves(value, repeat(None), whole))  # which holds none of the objects


def _parts(value: Any, whole: Whole) -> tuple[Sequence[Any] | None, Callable[[Sequence[Any]], Any]]:
    if isinstance(value, whole):
        return None, lambda xs: value
    children, _, rebuild = one_level(value)
    return None if children is None else [x for _, x in children], rebuild
