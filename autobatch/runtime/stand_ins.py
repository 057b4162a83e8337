"""Classes that a file names and this process does not have: ones that look the same take their place.

    module:Node with the fields value, children   ->   Node(value=1.0, children=[]), an ordinary object

One name has one stand-in in a process, so that batches and programs from different files go together.
"""

from __future__ import annotations

import importlib
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autobatch.errors import BatchError


class StandIn:
    """An object of a class that is not here: it has the fields that it is given."""

    __autobatch_fields__: tuple[str, ...] = ()

    def __init__(self, **fields: Any) -> None:
        known = self.__autobatch_fields__
        if unknown := [n for n in fields if n not in known]:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}; its fields are {', '.join(known)}")
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={x!r}' for n, x in self.__dict__.items())})"


@dataclass(frozen=True)
class Look:
    """What is known of a class that has no source here: "namedtuple" or "object", and its fields."""

    kind: str
    fields: tuple[str, ...]


_made: dict[str, type] = {}


def name_of(cls: type) -> str:
    """`module:qualified.name`. Raises BatchError for a class that no name leads to."""
    if "<locals>" in cls.__qualname__:
        raise BatchError(f"{cls.__qualname__} is defined in a function, so no file can name it; move it to a module")
    return f"{cls.__module__}:{cls.__qualname__}"


def class_of(name: str, path: str, looks: Mapping[str, Look] | None = None) -> type:
    """The class with the name that `name_of` gave it. Where it cannot be imported: the stand-in of that name, which is
    made where `looks` says how. Raises BatchError where there is neither."""
    module, _, qualname = name.partition(":")
    try:
        held: Any = importlib.import_module(module)
        for part in qualname.split("."):
            held = getattr(held, part)
    except (ImportError, AttributeError, ValueError) as error:
        if name in _made:
            return _made[name]
        if looks is None or name not in looks:
            raise BatchError(f"{path} holds objects of class {name}, which cannot be imported: {error}") from None
        return _made.setdefault(name, _stand_in(module, qualname, looks[name]))
    if not isinstance(held, type):
        raise BatchError(f"{path} holds objects of class {name}, which is no class any more")
    return held


def _stand_in(module: str, qualname: str, look: Look) -> type:
    simple = qualname.rpartition(".")[2]
    records: Any = namedtuple  # to mypy, fields that are known at run time only are no fields
    if look.kind == "namedtuple":
        made: type = records(simple, look.fields)
    else:
        made = type(simple, (StandIn,), {"__autobatch_fields__": look.fields})
    made.__module__, made.__qualname__ = module, qualname
    return made
