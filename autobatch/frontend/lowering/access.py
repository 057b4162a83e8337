"""Reading what is already there: Python objects, free variables, the fields of objects in the examples.

Arrays found in free variables become hidden shared values; static values found there are noted, so that the caller
can read them again and see that they changed.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from autobatch.errors import UnsupportedError
from autobatch.frontend.lowering.key_order import run_over
from autobatch.frontend.lowering.state import Context, Ended, FreeVariable, LoweringState
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import (
    CONTENTS,
    KEYS,
    children,
    container_kind,
    contents,
    inputs,
    is_array,
    keys_of,
)
from autobatch.ir import jax_compat
from autobatch.ir.core import Literal, Operand
from autobatch.ir.template import Input, is_numpy
from autobatch.source import Span


def wrap(context: Context, value: Any, origin: v.FreeOrigin | None = None) -> v.Abstract:
    """The abstract value of a Python object. With `origin` it is a free variable, and is noted."""
    if isinstance(value, Input):
        return context.inputs[value.index] if not value.shared else _shared(context, value)
    if isinstance(value, v.Static | v.Leaf | v.Record | v.Optional):
        return value
    if is_array(value):
        if origin is not None:
            return v.Leaf(hidden(context, value, origin), numpy=is_numpy(value))
        if np.ndim(value) == 0 and not jax_compat.type_of(value).dtype.startswith("key"):
            return v.Leaf(Literal(np.asarray(value).item(), jax_compat.type_of(value)), numpy=is_numpy(value))
        return v.Leaf(context.constant(value), numpy=is_numpy(value))
    is_container = isinstance(value, types.ModuleType | list | dict)  # of these, what is read of them is noted
    if origin is not None and not is_container and not _is_own_name(origin, value):
        note(context, origin, value)
    return v.Static(value, origin)


def _is_own_name(origin: v.FreeOrigin, value: Any) -> bool:
    """Is it a function of Python's under the name that it has there (`len`, `math.sqrt`)?"""
    step = origin.path[-1] if origin.path else ("attribute", origin.name)
    return isinstance(value, types.BuiltinFunctionType) and step == ("attribute", value.__name__)


def _shared(context: Context, leaf: Input) -> v.Leaf:
    return v.Leaf(context.shared[leaf.index], numpy=leaf.numpy)


def note(context: Context, origin: v.FreeOrigin, value: Any, shared: int | None = None) -> None:
    """Remember that a free variable was read."""
    key = (id(origin.owner), origin.name, origin.path)
    context.keep(origin.owner)
    if key not in context.free:
        context.free[key] = FreeVariable(origin.owner, origin.name, origin.path, value, shared)


def note_contents(context: Context, value: v.Static) -> None:
    """Remember that the function has looked at all that a container holds."""
    if value.origin is not None and (container_kind(value.value) is not None or isinstance(value.value, set)):
        note(context, value.origin.child(CONTENTS), contents(value.value))


def hidden(context: Context, array: Any, origin: v.FreeOrigin) -> Operand:
    """The shared value that an array in a free variable is."""
    key = (id(origin.owner), origin.name, origin.path)
    known = context.free.get(key)
    if known is not None and known.shared is not None:
        return context.shared[known.shared]
    for other in context.free.values():
        if other.value is array and other.shared is not None:
            note(context, origin, array, other.shared)
            return context.shared[other.shared]
    index = context.hide(jax_compat.type_of(array), origin.name)
    note(context, origin, array, index)
    return context.shared[index]


def enter(context: Context, value: Any) -> v.Abstract:
    """An argument of the entry: containers that hold leaves of an example are taken apart, the rest is static."""
    if isinstance(value, Input) or all(i.shared for i in inputs(value)):
        return wrap(context, value)
    return take_apart(context, value, enter)


def take_apart(context: Context, value: Any, part: Callable[[Context, Any], v.Abstract] | None = None) -> v.Record:
    """A Python container or object as a record of abstract values."""
    part = part or wrap
    pairs = list(children(value))
    kind = container_kind(value) or "object"
    keys = tuple(k for k, _ in pairs)
    return v.Record(kind, keys, tuple(part(context, x) for _, x in pairs), type(value))


def expand(s: LoweringState, value: v.Abstract, ordered: bool = True) -> v.Abstract:
    """A static tuple, list, dict or NamedTuple as a record of its elements; other values as they are. `ordered`: of a
    dict, not only single keys are looked up."""
    if ordered:
        run_over(s.context, value)
    if not isinstance(value, v.Static) or (kind := container_kind(value.value)) is None:
        return value
    origin = value.origin
    if origin is not None:
        note(s.context, origin.child(KEYS), keys_of(value.value))
    items = tuple(
        wrap(s.context, x, origin.child(("item" if kind != "namedtuple" else "attribute", k)) if origin else None)
        for k, x in children(value.value)
    )
    return v.Record(kind, keys_of(value.value), items, type(value.value) if kind == "namedtuple" else None)


def enclosing_value(s: LoweringState, name: str) -> v.Abstract | None:
    """The value of a variable of an enclosing function, or of a closure; None when there is none."""
    bound = s.env.get(name)
    if bound is not None:
        return bound.value
    if name in s.frame.enclosing:
        return s.frame.enclosing[name]
    owner = s.frame.owner
    if owner is None or owner.__closure__ is None or name not in owner.__code__.co_freevars:
        return None
    cell = owner.__closure__[owner.__code__.co_freevars.index(name)]
    try:
        held = cell.cell_contents
    except ValueError:
        return None
    return wrap(s.context, held, v.FreeOrigin(owner, name))


def unset(name: str, span: Span) -> UnsupportedError:
    """A variable is read that no path has set."""
    name = shown(name)
    return UnsupportedError(
        f"the variable {name!r} is read before it is set", span, f"give {name} a value on every path before this line"
    )


def variable(s: LoweringState, name: str) -> v.Abstract:
    """The value of a name, by Python's rules: local, enclosing, global, builtin."""
    bound = s.env.get(name)
    if bound is not None and not isinstance(bound.value, v.Unset):
        return bound.value
    if name in s.frame.settling:  # a later turn may find what an earlier one has set
        s.frame.settling[name] = s.frame.settling[name] or s.span
        s.check(s.scalar(False), "UnboundLocalError", v.not_set(name))
        raise Ended
    if bound is not None or name in s.frame.source.locals:
        raise unset(name, s.span)
    found = enclosing_value(s, name)
    if found is not None:
        return found
    source = s.frame.source
    if name in source.globals:
        return wrap(s.context, source.globals[name], v.FreeOrigin(s.frame.owner, name))
    if hasattr(builtins, name):
        return v.Static(getattr(builtins, name))
    s.refuse(f"the name {name!r} is not defined", "check the spelling, or import it")
