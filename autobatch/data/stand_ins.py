"""Classes that a file names and this process does not have: ones that look the same take their place.

    module:Node with the fields value, children   ->   Node(value=1.0, children=[]), an ordinary object

One name has one stand-in in a process, so that batches and programs from different files go together.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from autobatch.data import together
from autobatch.data.archive import Damaged
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


class AllowedClasses:
    """The classes that a file may name: those that the caller gives, and those of modules that are imported already. A
    file imports nothing. `looks`: how stand-ins are made of those that are not here; None: they are an error."""

    def __init__(self, given: Sequence[type] = (), looks: Mapping[str, Look] | None = None) -> None:
        for cls in given:
            if not isinstance(cls, type):
                raise TypeError(f"classes= takes classes, and {cls!r} is none")
        self._given = {name_of(cls): cls for cls in given}
        self._looks = looks

    def find(self, name: Any) -> type:
        """The class with the name that `name_of` gave it. Raises Damaged where there is none."""
        if name in self._given:
            return self._given[name]
        module, _, qualname = name.partition(":") if isinstance(name, str) else ("", "", "")
        held: Any = sys.modules.get(module)
        for part in qualname.split(".") if held is not None else ():
            # a module may import others when it is asked for what it has not, as lazy ones do: ours makes classes
            asked = getattr if held is together else _own
            held = asked(held, part, None) if isinstance(held, (type, ModuleType)) else None
        if isinstance(held, type):
            return held
        if name in _made:
            return _made[name]
        if self._looks is None:
            here = "has no class of that name any more" if module in sys.modules else "is not imported"
            raise Damaged(
                f"it holds objects of {name!r:.80}: {module} {here}", "import its module, or name it in classes="
            )
        if name not in self._looks:
            raise Damaged(f"there is no class {name!r:.80}")
        return _made.setdefault(name, _stand_in(module, qualname, self._looks[name]))


def _own(held: type | ModuleType, name: str, default: Any) -> Any:
    """What a module or class has itself."""
    return vars(held).get(name, default)


def _stand_in(module: str, qualname: str, look: Look) -> type:
    simple = qualname.rpartition(".")[2]
    records: Any = namedtuple  # to mypy, fields that are known at run time only are no fields
    if look.kind == "namedtuple":
        made: type = records(simple, look.fields)
    else:
        made = type(simple, (StandIn,), {"__autobatch_fields__": look.fields})
    made.__module__, made.__qualname__ = module, qualname
    return made
