"""When two constants are one: they have the same type and the same bits.

`==` is not enough: 0.0 and -0.0 divide differently, 1, 1.0 and True print differently, and a NaN is itself. Whatever
keeps constants in a table (caches of programs, common subexpressions, joins, pools of arrays) asks here.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Hashable
from typing import Any

import numpy as np

_BY_VALUE = frozenset({type(None), bool, int, str, bytes})


def constant_key(value: Any) -> Hashable:
    """A hashable key that two constants share where they have one type and the same bits, part by part. What is no
    number, string, array or container is compared by its own `==`; of a dataclass the fields are looked at, too.

    Raises TypeError for what has no hash.

    >>> constant_key((1, 0.0)) == constant_key((1, -0.0)), constant_key(1) == constant_key(True)
    (False, False)
    """
    kind = type(value)
    if kind in _BY_VALUE:
        return (kind, value)
    if kind is float:
        return (kind, struct.pack("d", value))
    if kind is complex:
        return (kind, struct.pack("dd", value.real, value.imag))
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return (kind, value.dtype, value.shape, value.tobytes())
    if isinstance(value, tuple | list):
        return (kind, *map(constant_key, value))
    if isinstance(value, dict):
        return (kind, *((constant_key(k), constant_key(x)) for k, x in value.items()))
    if isinstance(value, set | frozenset):
        return (kind, frozenset(map(constant_key, value)))
    if isinstance(value, slice):
        return (kind, constant_key(value.start), constant_key(value.stop), constant_key(value.step))
    hash(value)
    parts: list[Any] = [kind, value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts += (constant_key(getattr(value, f.name, None)) for f in dataclasses.fields(value) if f.compare)
    return tuple(parts)


def same_constant(a: Any, b: Any) -> bool:
    """Are two constants one? As the equality of their keys; what has no hash is one with itself alone."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in _BY_VALUE or isinstance(a, enum.Enum):
        return bool(a == b)
    try:
        return constant_key(a) == constant_key(b)
    except TypeError:
        return False


class ConstantKey:
    """A constant as a part of a key: equal to what is one with it. Raises TypeError for what has no hash."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.key, self.value = constant_key(value), value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return repr(self.value)
