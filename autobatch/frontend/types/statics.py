"""Static Python objects: when two are the same, and how shared leaves are found inside them."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import numpy as np

from autobatch.ir.core import Input
from autobatch.ir.ops import constant_key, same_constant

Kind = Literal["tuple", "list", "mixture", "dict", "table", "namedtuple", "pytree", "object"]
"""A "mixture" is a list of fixed length that leaves the program with elements of different types; a "table" is
a dict or set whose keys the function makes (`tables.py`)."""


def static_key(value: Any) -> Any:
    """A hashable key by which a static value may enter a specialisation: scalars as constants, the rest by identity.

    The caller keeps the value alive as long as the key."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() if not isinstance(value, enum.Enum):
            return constant_key(value)
        case enum.Enum() | type() | types.FunctionType() | types.ModuleType():
            return ("object", value)
        case tuple() if type(value) is tuple:
            return ("tuple", *map(static_key, value))
        case slice():
            return ("slice", static_key(value.start), static_key(value.stop), static_key(value.step))
        case np.dtype():
            return ("dtype", str(value))
        case Input():
            return ("input", value)
        case _:
            return ("id", id(value))


def same_static(a: Any, b: Any) -> bool:
    """May two static values be used one for the other?"""
    if a is b or static_key(a) == static_key(b):
        return True
    return isinstance(a, (set, frozenset, range, jax.tree_util.PyTreeDef)) and same_constant(a, b)


def is_array(value: Any) -> bool:
    """A NumPy or JAX array or a tracer, which becomes a value of the program."""
    return isinstance(value, (np.ndarray, np.generic, jax.Array, jax.core.Tracer)) and not isinstance(value, Input)


def is_namedtuple(value: Any) -> bool:
    cls = value if isinstance(value, type) else type(value)
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def container_kind(value: Any) -> Kind | None:
    """What plain container a Python object is: tuple, list, dict or NamedTuple."""
    if is_namedtuple(value) and not isinstance(value, type):
        return "namedtuple"
    kinds: dict[type, Kind] = {tuple: "tuple", list: "list", dict: "dict"}
    return kinds.get(type(value))


KEYS = ("keys",)
"""The last step of a free variable's path that stands for the keys (or the length) of a container."""


CONTENTS = ("contents",)
"""The same for all that a container holds, at any depth."""

STRUCTURE = ("structure",)
"""The same for what a container of a library holds besides its parts."""

MISSING = object()
"""What is found at the end of a path that leads nowhere."""


def contents(value: Any) -> Any:
    """All that a container of scalars holds, hashable."""
    if isinstance(value, set | frozenset):
        return frozenset(map(contents, value))
    if container_kind(value) is not None:
        return (type(value), *((static_key(k), contents(x)) for k, x in children(value)))
    return static_key(value)


def keys_of(value: Any) -> tuple[Any, ...]:
    """The keys of a plain container: positions, field names or dict keys."""
    return tuple(k for k, _ in children(value))


def nodes_of(value: Any) -> list[Any]:
    """The parts of what JAX knows as a container."""
    return jax.tree.leaves(value, is_leaf=lambda x: x is not value)


def structure_of(value: Any) -> Any:
    """What a container that JAX knows is besides its parts."""
    return jax.tree.structure(value, is_leaf=lambda x: x is not value)


def follow(value: Any, path: tuple[Any, ...]) -> Any:
    """The object at the end of a free variable's path, read anew."""
    for step in path:
        if step == KEYS:
            value = keys_of(value)
        elif step == CONTENTS:
            value = contents(value)
        elif step == STRUCTURE:
            value = structure_of(value)
        elif step[0] == "node":
            value = nodes_of(value)[step[1]]
        elif step[0] == "attribute":
            value = getattr(value, step[1])
        else:
            value = value[step[1]]
    return value


def children(value: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a Python object that may hold `Input` leaves, with their keys."""
    if isinstance(value, (str, bytes, type, types.FunctionType, types.ModuleType, enum.Enum)) or is_array(value):
        return
    if is_namedtuple(value):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, (tuple, list)):
        yield from enumerate(value)
    elif isinstance(value, dict):
        yield from value.items()
    elif dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            if hasattr(value, f.name):
                yield f.name, getattr(value, f.name)
    elif isinstance(value, types.MethodType):
        yield "__self__", value.__self__
    elif hasattr(value, "__dict__") and not callable(getattr(value, "__get__", None)):
        yield from vars(value).items()
    else:
        leaves = jax.tree.leaves(value)
        if not (len(leaves) == 1 and leaves[0] is value):
            yield from enumerate(leaves)


def inputs(value: Any) -> list[Input]:
    """Every `Input` in a Python object, cycles allowed."""
    found: list[Input] = []
    seen: set[int] = set()
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, Input):
            found.append(item)
        elif id(item) not in seen and not isinstance(item, (int, float, str, type(None))):
            seen.add(id(item))
            todo.extend(child for _, child in children(item))
    return found


def substitute(value: Any, replace: Callable[[Any], Any]) -> Any:
    """A copy of a Python object with its leaves (`Input`) replaced; the object itself if it holds none."""
    if isinstance(value, Input):
        return replace(value)
    if not inputs(value):
        return value
    if is_namedtuple(value):
        return type(value)(*(substitute(x, replace) for x in value))
    if type(value) in (tuple, list):
        return type(value)(substitute(x, replace) for x in value)
    if type(value) is dict:
        return {k: substitute(x, replace) for k, x in value.items()}
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, substitute(value.__self__, replace))
    leaves, tree = jax.tree.flatten(value)
    if not (len(leaves) == 1 and leaves[0] is value):
        return jax.tree.unflatten(tree, [substitute(x, replace) for x in leaves])
    return make_object(type(value), {k: substitute(x, replace) for k, x in children(value)})


def make_object(cls: type, fields: dict[str, Any]) -> Any:
    """An instance with these attributes, made without calling `__init__`."""
    made: Any = object.__new__(cls)
    for name, item in fields.items():
        object.__setattr__(made, name, item)
    return made
