"""Objects built inside the function: dataclasses, NamedTuples, plain classes. They exist only while compiling."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import types
from collections.abc import Sequence
from typing import Any

from autobatch.frontend import values as v
from autobatch.frontend.access import wrap
from autobatch.frontend.calls import bind_arguments, lookup
from autobatch.frontend.sources import is_user_function
from autobatch.frontend.state import Frame, State
from autobatch.frontend.statics import inputs, is_namedtuple

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def construct(s: State, cls: type, args: Arguments, kwargs: Named) -> v.Abstract:
    """`cls(*args, **kwargs)`"""
    if is_namedtuple(cls):
        fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        defaults: dict[str, Any] = cls._field_defaults  # type: ignore[attr-defined]
        items = _bind(s, cls, fields, {k: wrap(s.context, d) for k, d in defaults.items()}, args, kwargs)
        return v.Record("namedtuple", fields, tuple(items[n] for n in fields), cls)
    static = all(isinstance(a, v.Static) and not inputs(a.value) for a in (*args, *kwargs.values()))
    if static and (issubclass(cls, enum.Enum) or not _is_plain(cls)):
        return _folded(s, cls, args, kwargs)
    initialiser = inspect.getattr_static(cls, "__init__")
    if dataclasses.is_dataclass(cls) and not _is_written(initialiser):
        return _dataclass(s, cls, args, kwargs)
    if _is_written(initialiser):
        return initialise(s, v.Record("object", (), (), cls), initialiser, args, kwargs)
    if initialiser is object.__init__:
        return v.Record("object", (), (), cls)
    s.refuse(f"{cls.__name__} cannot be built inside a compiled function", "use a dataclass or a NamedTuple")


def _is_written(function: Any) -> bool:
    """Is it a function of the user, and not one that `dataclass` has made?"""
    return is_user_function(function) and function.__code__.co_filename != "<string>"


def _is_plain(cls: type) -> bool:
    return cls.__module__.split(".")[0] not in ("builtins", "jax", "jaxlib", "numpy")


def _folded(s: State, cls: type, args: Arguments, kwargs: Named) -> v.Abstract:
    given = [a.value for a in args if isinstance(a, v.Static)]
    named = {k: a.value for k, a in kwargs.items() if isinstance(a, v.Static)}
    try:
        return wrap(s.context, cls(*given, **named))
    except Exception as error:
        s.refuse(f"{type(error).__name__}: {error}", "plain Python raises this too: check the arguments")


def _bind(
    s: State, cls: type, names: Sequence[str], defaults: dict[str, v.Abstract], args: Arguments, kwargs: Named
) -> dict[str, v.Abstract]:
    """Arguments by field name."""
    if len(args) > len(names):
        s.refuse(
            f"{cls.__name__}() takes {len(names)} arguments but {len(args)} were given",
            "give one argument for each field",
        )
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in bound:
            s.refuse(
                f"{cls.__name__}() cannot take the argument {name!r} here",
                "check the spelling, or set the field in a class of your own",
            )
        bound[name] = value
    for name in names:
        if name not in bound and name in defaults:
            bound[name] = defaults[name]
        elif name not in bound:
            s.refuse(f"{cls.__name__}() is called without {name!r}", "give the argument, or a default in the class")
    return bound


def _dataclass(s: State, cls: type, args: Arguments, kwargs: Named) -> v.Abstract:
    fields = [f for f in dataclasses.fields(cls) if f.init]
    positional = [f.name for f in fields if not f.kw_only]
    ordered = [*positional, *(f.name for f in fields if f.kw_only)]
    if len(args) > len(positional):
        s.refuse(
            f"{cls.__name__}() takes {len(positional)} positional arguments but {len(args)} were given",
            "give one argument for each field",
        )
    defaults: dict[str, v.Abstract] = {}
    for f in dataclasses.fields(cls):
        if f.default is not dataclasses.MISSING:
            defaults[f.name] = wrap(s.context, f.default)
        elif f.default_factory is not dataclasses.MISSING:
            defaults[f.name] = s.call(v.Static(f.default_factory), [])
    items = _bind(s, cls, ordered, defaults, args, kwargs)
    items |= {f.name: defaults[f.name] for f in dataclasses.fields(cls) if not f.init and f.name in defaults}
    made = v.Record("object", tuple(items), tuple(items.values()), cls)
    after = inspect.getattr_static(cls, "__post_init__", None)
    return initialise(s, made, after, [], {}) if _is_written(after) else made


def initialise(s: State, made: v.Record, function: types.FunctionType, args: Arguments, kwargs: Named) -> v.Abstract:
    """Run `__init__` or `__post_init__` here, on an object whose attributes may still be set."""
    source = lookup(s, function)
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: wrap(s.context, p.default) for p in parameters if p.default is not p.empty}
    bound = bind_arguments(s, source, [made, *args], kwargs, defaults)
    first = next(iter(bound))
    if any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(source.node)):
        s.refuse(f"{source.name} returns a value", "only set attributes in it")
    frame = Frame(s.context, source, {}, constructing=first)
    inner = State(frame, s.block, {}, span=source.span)
    for name, value in bound.items():
        inner.bind(name, value)
    s.context.rules.execute(inner, source.body)
    s.dead = inner.dead
    s.block = inner.block
    return inner.env[first].value
