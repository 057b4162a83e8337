"""The fields of classes whose `__init__` is generated, by `dataclasses` or by attrs, as it sees them."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autobatch.frontend.library.builtin_functions import is_instance
from autobatch.frontend.lowering.attributes import class_list, classes_of
from autobatch.frontend.lowering.state import LoweringState, wrap
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.making import made_by
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import is_namedtuple
from autobatch.ir.core import Ref

Default = Callable[[LoweringState, v.Record], v.Abstract]
"""What a field holds where it is not given; it may read the fields before it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field, and its argument of `__init__`. `convert`: what is set in place of the value given."""

    name: str
    argument: str
    init: bool
    keyword: bool
    default: Default | None
    convert: Callable[..., Any] | None = None
    validator: Any = None


def parameters_of(cls: type) -> list[Parameter] | None:
    """The fields of a dataclass or an attrs class, in order; None for other classes."""
    if dataclasses.is_dataclass(cls):
        return [_of_dataclass(f) for f in dataclasses.fields(cls)]
    if is_attrs(cls):
        return [_of_attrs(a) for a in cls.__attrs_attrs__]  # type: ignore[attr-defined]
    return None


def is_attrs(cls: type) -> bool:
    """Is it a class that attrs has made?"""
    return "attr" in sys.modules and hasattr(cls, "__attrs_attrs__")


def _of_dataclass(f: dataclasses.Field[Any]) -> Parameter:
    default: Default | None = None
    if f.default is not dataclasses.MISSING:
        default = lambda s, made: wrap(s.context, f.default)
    elif f.default_factory is not dataclasses.MISSING:
        default = lambda s, made: made_by(s, s.call(v.Static(f.default_factory), []), f)
    return Parameter(f.name, f.name, f.init, f.kw_only is True, default)


def _of_attrs(a: Any) -> Parameter:
    attr = sys.modules["attr"]
    default: Default | None = None
    if isinstance(a.default, attr.Factory):
        default = lambda s, made: made_by(
            s, s.call(v.Static(a.default.factory), [made] if a.default.takes_self else []), (a.name, a.default.factory)
        )
    elif a.default is not attr.NOTHING:
        default = lambda s, made: wrap(s.context, a.default)
    convert = getattr(a.converter, "converter", a.converter)
    return Parameter(a.name, a.alias, a.init, a.kw_only, default, convert, a.validator)


def replaced(
    s: LoweringState, function: Any, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Abstract | None:
    """`dataclasses.replace(x, ...)`, `attrs.evolve(x, ...)` or `x._replace(...)` of a NamedTuple: an object built anew;
    None for other functions."""
    of_tuple = getattr(function, "__code__", None) is _REPLACE
    of_attrs = "attr" in sys.modules and function is sys.modules["attr"].evolve
    if not (of_tuple or of_attrs or function is dataclasses.replace):
        return None
    (value,) = args
    cls = _class_of(s, value)
    if of_tuple and cls is not None and is_namedtuple(cls):
        given = {n: s.context.rules.attribute(s, value, n) for n in cls._fields if n not in kwargs}  # type: ignore[attr-defined]
        return s.call(v.Static(cls), [], given | kwargs)
    parameters = parameters_of(cls) if cls is not None else None
    if parameters is None:
        s.refuse(f"{function.__name__}() of this value cannot be compiled", "build a new object")
    kept = {p.argument: p.name for p in parameters if p.init and p.argument not in kwargs}
    given = {argument: s.context.rules.attribute(s, value, name) for argument, name in kept.items()}
    return s.call(v.Static(cls), [], given | kwargs)


_REPLACE = inspect.getattr_static(namedtuple("_Any", ()), "_replace").__code__
"""That of all NamedTuples."""


def _class_of(s: LoweringState, value: v.Abstract) -> type | None:
    """The class of an object, where it is known."""
    match value:
        case v.Static(value=held):
            return type(held)
        case v.Record(kind="object" | "namedtuple", cls=cls):
            return cls
        case v.MemoryRow():
            return heaps.class_of(s, value)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref) and len(classes_of(s, value)) == 1:
            return class_list(s, operand.type)[min(classes_of(s, value))].cls
        case _:
            return None


def validate(s: LoweringState, made: v.Record, name: str, validator: Any) -> None:
    """What a validator of attrs checks when an object is built."""
    kind = type(validator).__name__
    value = made.get(name)
    assert value is not None
    if kind == "_AndValidator":
        for part in validator._validators:
            validate(s, made, name, part)
    elif kind == "_InstanceOfValidator":
        if is_instance(s, value, validator.type) != v.Static(True):
            s.check(s.scalar(False), "TypeError", f"{name!r} must be {validator.type!r}")
            s.dead = True
    elif kind == "function":
        attribute = next(a for a in made.cls.__attrs_attrs__ if a.name == name)  # type: ignore[union-attr]
        s.call(v.Static(validator), [made, v.Static(attribute), value])
    else:
        s.refuse(
            f"the validator {validator!r} of {name!r} cannot be compiled",
            "write it as a function that raises, or check before packing",
        )
