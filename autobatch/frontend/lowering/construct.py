"""Objects built inside the function: of dataclasses, attrs and plain classes, NamedTuples. They exist only while
compiling.

The fields of classes whose `__init__` is generated, by `dataclasses` or by attrs, are read as these see them.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import sys
import types
from collections import namedtuple
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.builtin_functions import is_instance
from autobatch.frontend.lowering import exceptions
from autobatch.frontend.lowering.assignment import put
from autobatch.frontend.lowering.attributes import class_list, classes_of
from autobatch.frontend.lowering.calls import bind_arguments, lookup
from autobatch.frontend.lowering.joins import stepped
from autobatch.frontend.lowering.state import FunctionFrame, LoweringState, expand, fold_call, wrap
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.heap import NeedsMemory
from autobatch.frontend.memory.list_heap import hold
from autobatch.frontend.memory.mutation import made_by
from autobatch.frontend.syntax.iterator_variables import place_of
from autobatch.frontend.syntax.sources import is_user_function
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import inputs, is_namedtuple
from autobatch.ir.core import Ref

# ---- fields of generated constructors


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


# ---- construction


Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def construct(s: LoweringState, cls: type, args: Arguments, kwargs: Named) -> v.Abstract:
    """`cls(*args, **kwargs)`"""
    made = _constructed(s, cls, [stepped(s, x) for x in args], {name: stepped(s, x) for name, x in kwargs.items()})
    s.context.built.add(cls)
    if isinstance(made, v.Record):
        hold(s, made)
    heap = heaps.heap_of(s, cls)
    return heaps.allocate(s, heap, made) if heap is not None and isinstance(made, v.Record) else made


def _constructed(s: LoweringState, cls: type, args: Arguments, kwargs: Named) -> v.Abstract:
    """The object as a value."""
    if is_namedtuple(cls):
        fields: tuple[str, ...] = getattr(cls, "_fields", ())
        defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
        items = {k: wrap(s.context, d) for k, d in defaults.items()} | _bind(s, cls, fields, defaults, args, kwargs)
        return v.Record("namedtuple", fields, tuple(items[n] for n in fields), cls)
    static = all(isinstance(a, v.Static) and not inputs(a.value) for a in (*args, *kwargs.values()))
    if static and (issubclass(cls, enum.Enum) or not _is_plain(cls)):
        return fold_call(s, cls, args, kwargs)
    if issubclass(cls, enum.Enum) and len(args) == 1 and not kwargs and not issubclass(cls, enum.Flag):
        members = tuple((m, m.value) for m in cls)
        return s.call(v.Static(_member), [*args, v.Static(members), v.Static(f"not a valid {cls.__qualname__}")])
    initialiser = inspect.getattr_static(cls, "__init__")
    parameters = parameters_of(cls)
    if parameters is not None and not _is_written(initialiser):
        return _by_fields(s, v.Record("object", (), (), cls), cls, parameters, args, kwargs)
    if _is_written(initialiser):
        return initialise(s, v.Record("object", (), (), cls), initialiser, args, kwargs)
    if initialiser is object.__init__:
        return v.Record("object", (), (), cls)
    cure = "use a dict, which keeps its keys in order" if issubclass(cls, dict) else "use a dataclass or a NamedTuple"
    s.refuse(f"{cls.__name__} cannot be built inside a compiled function", cure)


def _member(value: Any, members: Any, message: Any) -> Any:
    """The member of an enum that has a value, as a function of one example."""
    for member, known in members:
        if value == known:
            return member
    raise ValueError(message)


def _is_written(function: Any) -> bool:
    """Is it a function of the user, and not one that `dataclass` or attrs has made?"""
    return is_user_function(function) and not function.__code__.co_filename.startswith(("<string>", "<attrs"))


def _is_plain(cls: type) -> bool:
    return cls.__module__.split(".")[0] not in ("builtins", "jax", "jaxlib", "numpy")


def _bind(
    s: LoweringState, cls: type, names: Sequence[str], optional: Collection[str], args: Arguments, kwargs: Named
) -> dict[str, v.Abstract]:
    """Arguments by name; those that are `optional` may be missing."""
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
        if name not in bound and name not in optional:
            s.refuse(f"{cls.__name__}() is called without {name!r}", "give the argument, or a default in the class")
    return bound


def _by_fields(
    s: LoweringState, made: v.Record, cls: type, fields: Sequence[Parameter], args: Arguments, kwargs: Named
) -> v.Abstract:
    """What an `__init__` that is generated for `cls` makes of an object: its fields in order, then what is to run
    after them."""
    taken = [f for f in fields if f.init]
    positional = [f.argument for f in taken if not f.keyword]
    if len(args) > len(positional):
        s.refuse(
            f"{cls.__name__}() takes {len(positional)} positional arguments but {len(args)} were given",
            "give one argument for each field",
        )
    ordered = [*positional, *(f.argument for f in taken if f.keyword)]
    optional = {f.argument for f in taken if f.default is not None}
    given = _bind(s, cls, ordered, optional, args, kwargs)
    for f in fields:
        value = given.get(f.argument) if f.init else None
        if value is None and f.default is not None:
            value = f.default(s, made)
        if value is None:
            continue  # `__post_init__` sets it
        if f.convert is not None:
            value = s.call(v.Static(f.convert), [value])
        made = put(made, f.name, value)
    for f in fields:
        if f.validator is not None:
            validate(s, made, f.name, f.validator)
    after = inspect.getattr_static(made.cls, "__attrs_post_init__" if is_attrs(cls) else "__post_init__", None)
    return initialise(s, made, after, [], {}) if _is_written(after) else made


def initialise(
    s: LoweringState, made: v.Record, function: types.FunctionType, args: Arguments, kwargs: Named
) -> v.Abstract:
    """Run `__init__` or `__post_init__` here, on an object whose attributes may still be set. Where the object has
    memory, and is more there than what has attributes (`self.parent = self`), it has its row from the beginning."""
    source = lookup(s, function)
    parameters = list(inspect.signature(function).parameters.values())
    defaults = {p.name: wrap(s.context, p.default) for p in parameters if p.default is not p.empty}
    first = next(iter(parameters)).name
    heap = heaps.heap_of(s, made.cls)
    if heap is None and made.cls is not None and _is_changed_behind(source.node, first, made.cls):
        words = f"{source.name} hands {first} on before its last attribute is set"
        raise NeedsMemory([made.cls], UnsupportedError(words, source.span, "hand it on behind the last one"))
    sets = made.cls is not None and _sets_by_method(s, made.cls, source.node, first, frozenset())
    if heap is None and sets and made.cls is not None:
        words = f"{source.name} calls a method of {first} that sets attributes"
        raise NeedsMemory([made.cls], UnsupportedError(words, source.span, "set them here"))
    handed_on = sets or bool(_whole_reads(source.node, first, made.cls))
    itself = heaps.allocate(s, heap, made) if heap is not None and handed_on else made
    bound = bind_arguments(s, source, [itself, *args], kwargs, defaults)
    if any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(source.node)):
        s.refuse(f"{source.name} returns a value", "only set attributes in it")
    frame = FunctionFrame(s.context, source, {}, constructing=first if itself is made else "", trying=s.frame.trying)
    if not any(isinstance(n, ast.Try) and n.finalbody for n in ast.walk(source.node)):
        frame.tried = len(s.frame.trying)
    frame.borrowed = [x for n, x in bound.items() if n != first]
    for value in frame.borrowed:
        s.context.sites.lend(value)
    inner = LoweringState(frame, s.block, {n: s.env[n] for n in heaps.variables(s)}, span=source.span)
    for name, value in bound.items():
        inner.bind(name, value)
    s.context.rules.execute(inner, source.body)
    s.dead = inner.dead
    s.block = inner.block
    s.env.update((n, inner.env[n]) for n in heaps.variables(inner))
    made_now = inner.env[first].value if first in inner.env else itself
    if not s.frame.trying:
        return made_now
    made_now = exceptions.take_raised(s, exceptions.with_raised(inner, made_now))
    return made_now.value if isinstance(made_now, v.Optional) and made_now.unset == first else made_now


def of_base(s: LoweringState, function: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract | None:
    """`super().__init__(...)` or `Base.__init__(self, ...)` in an `__init__`: it sets attributes of the object that is
    being made. None for any other call."""
    name = s.frame.constructing
    if not name or name not in s.env:
        return None
    made = s.env[name].value
    match function:
        case v.Method(function=v.Static(value=held), receiver=receiver):
            pass
        case v.Static(value=held) if args:
            receiver, args = args[0], args[1:]
        case _:
            return None
    if receiver is not made or not isinstance(made, v.Record) or made.cls is None:
        return None
    base = next((c for c in made.cls.__mro__ if vars(c).get("__init__") is held), None)
    if base is object:
        return v.Static(None)
    if base is None:
        return None
    fields = parameters_of(base)
    if fields is not None and not _is_written(held):
        new = _by_fields(s, made, base, fields, args, kwargs)
    elif issubclass(base, BaseException) and not _is_written(held):
        given = v.Record("tuple", tuple(range(len(args))), tuple(args))
        others = [(k, x) for k, x in zip(made.keys, made.items, strict=True) if k != "args"]
        new = replace(made, keys=("args", *(k for k, _ in others)), items=(given, *(x for _, x in others)))
    elif _is_written(held):
        own = lookup(s, held).node
        first = next(iter(inspect.signature(held).parameters))
        if heaps.heap_of(s, made.cls) is None and _whole_reads(own, first, made.cls):
            words = f"{held.__qualname__} hands the object on before its last attribute is set"
            raise NeedsMemory([made.cls], UnsupportedError(words, s.span, "hand it on behind the last one"))
        new = initialise(s, made, held, args, kwargs)
    else:
        return None
    s.bind(name, new)
    return v.Static(None)


def _sets_by_method(s: LoweringState, cls: type, function: ast.AST, name: str, seen: frozenset[str]) -> bool:
    """Is a method of the object in a variable called that sets attributes of it (`self.reset()`), maybe where one is
    set? `seen`: the methods that this one is called by."""
    for n in ast.walk(function):
        match n:
            case ast.Attribute(value=ast.Name(id=held), attr=attr, ctx=ast.Store()) if held == name:
                if heaps.setter_of(cls, attr) is not None:
                    return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr=attr)) if held == name and attr not in seen:
                method = inspect.getattr_static(cls, attr, None)
                if not isinstance(method, types.FunctionType):
                    continue
                body = lookup(s, method).node
                own = next(iter(inspect.signature(method).parameters), "")
                if _stores(body, own) or _sets_by_method(s, cls, body, own, seen | {attr}):
                    return True
            case _:
                pass
    return False


def _stores(function: ast.AST, name: str) -> list[ast.expr]:
    """Where attributes of a variable are set."""
    found: list[ast.expr] = []
    for n in ast.walk(function):
        match n:
            case ast.Attribute(value=ast.Name(id=held), ctx=ast.Store()) if held == name:
                found.append(n)
            case (
                ast.Call(func=ast.Attribute(attr="__setattr__"), args=[ast.Name(id=held), *_])
                | ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=held), *_])
            ) if held == name:
                found.append(n)
            case _:
                pass
    return found


def _is_changed_behind(function: ast.AST, name: str, cls: type) -> bool:
    """Is an attribute of a variable set where the whole was read before?"""
    reads = _whole_reads(function, name, cls)
    return any(place_of(r) < place_of(n) for r in reads for n in _stores(function, name))


def _whole_reads(function: ast.AST, name: str, cls: type | None) -> list[ast.Name]:
    """Where a variable that holds an object of a class is read, and not only an attribute of it, nor to set its
    attributes in the `__init__` of a base. A method that is not called there is the whole object."""
    nodes = list(ast.walk(function))
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    parts = [(n, inspect.getattr_static(cls, n.attr, None)) for n in nodes if isinstance(n, ast.Attribute)]
    held = {id(n.value) for n, found in parts if id(n) in called or not isinstance(found, types.FunctionType)}
    for n in nodes:
        match n:
            case (
                ast.Call(func=ast.Attribute(attr="__init__" | "__setattr__"), args=[first, *_])
                | ast.Call(func=ast.Name(id="setattr"), args=[first, *_])
            ):
                held.add(id(first))
            case _:
                pass
    return [n for n in nodes if isinstance(n, ast.Name) and n.id == name and id(n) not in held]


def initialised(s: LoweringState, made: v.Record, args: Arguments) -> v.Abstract:
    """An exception that was caught, with what its own `__init__` makes of what it was raised with."""
    initialiser = inspect.getattr_static(made.cls, "__init__")
    if not _is_written(initialiser):
        return made
    return initialise(s, made, initialiser, args, {})


# ---- keywords
#
# The named arguments of a call, `**` among them.


def named_arguments(s: LoweringState, keywords: Sequence[ast.keyword]) -> dict[str, v.Abstract]:
    """By name, evaluated in their order."""
    named: dict[str, v.Abstract] = {}
    for keyword in keywords:
        value = s.evaluate(keyword.value)
        if keyword.arg is not None:
            named[keyword.arg] = value
            continue
        spread = expand(s, list_heap.copied(s, value))
        if not isinstance(spread, v.Record) or spread.kind != "dict":
            s.refuse("`**` spreads only dicts with constant keys", "write the keys out")
        named |= dict(zip(spread.keys, spread.items, strict=True))
    return named
