"""Python objects as JAX gets them: the arrays that they read from free variables are values of the program.

    weights = {"w": w}                                 jax.vmap(cell)(xs) traces a copy of `cell` whose closure holds
    def cell(x): return x @ weights["w"]       ->      {"w": tracer}, and notes: weights has the key "w", weights["w"]
    def f(xs): return jax.vmap(cell)(xs)               is the hidden shared value 0

Functions, bound methods, partials, containers and objects of the user are copied so, and those of libraries that JAX
knows as containers (modules of Equinox and Flax); other library objects are left alone, and so is everything from which
no array can be reached. All that is read on the way is noted, arrays or not.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from autobatch.frontend.lowering.access import hidden, note
from autobatch.frontend.lowering.key_order import run_over
from autobatch.frontend.lowering.state import Context
from autobatch.frontend.syntax.sources import LIBRARIES, is_user_function
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import (
    KEYS,
    STRUCTURE,
    children,
    container_kind,
    is_array,
    keys_of,
    make_object,
    nodes_of,
    structure_of,
)
from autobatch.ir.core import Operand
from autobatch.ir.template import Input

Part = tuple[Any, v.FreeOrigin | None]


class ClosureCopier:
    """Copies objects with values of the program inside: `leaf` supplies an argument's leaf, `take` any operand.
    `ordered`: who gets the copies may run over dicts."""

    def __init__(
        self, context: Context, leaf: Callable[[Input], Any], take: Callable[[Operand], Any], ordered: bool = True
    ) -> None:
        self.context, self.leaf, self.take, self.ordered = context, leaf, take, ordered
        self.copies: dict[int, Any] = {}
        self.seen: set[int] = set()

    def copy(self, held: Any, origin: v.FreeOrigin | None) -> Any:
        """The object with values of the program in the place of its arrays; itself if it holds none."""
        if not self.reaches_array(held, origin):
            return held
        return self.made(held, origin)

    def reaches_array(self, held: Any, origin: v.FreeOrigin | None) -> bool:
        """Is there an array of a free variable, or a leaf of an argument? Notes what is read."""
        todo, found = [(held, origin)], False
        while todo:
            item, place = todo.pop()
            if isinstance(item, Input) or (place is not None and _is_numeric(item)):
                found = True
            elif id(item) not in self.seen:
                opened = list(_parts(item, place))
                if opened:
                    self.seen.add(id(item))
                self.note(item, place)
                if self.ordered or isinstance(held, types.FunctionType):
                    run_over(self.context, v.Static(item))
                todo += opened
        return found

    def note(self, held: Any, origin: v.FreeOrigin | None) -> None:
        if origin is None or isinstance(held, types.ModuleType | types.BuiltinFunctionType):
            return
        if container_kind(held) is not None or _is_object(held):
            note(self.context, origin.child(KEYS), keys_of(held))
        elif _is_container(held):
            note(self.context, origin.child(STRUCTURE), structure_of(held))
        else:
            note(self.context, origin, held)

    def made(self, held: Any, origin: v.FreeOrigin | None) -> Any:
        if isinstance(held, Input):
            return self.leaf(held)
        if origin is not None and _is_numeric(held):
            return self.take(hidden(self.context, held, origin))
        if id(held) in self.copies:
            return self.copies[id(held)]
        if isinstance(held, types.FunctionType) and is_user_function(held):
            return self.function(held)
        opened = [self.made(item, place) for item, place in _parts(held, origin)]
        if not opened:
            return held
        self.copies[id(held)] = made = _rebuilt(held, opened)
        return made

    def function(self, function: types.FunctionType) -> types.FunctionType:
        """A function with copies of what its closure, globals and defaults hold. It may refer to itself."""
        cells = tuple(types.CellType() for _ in function.__code__.co_freevars)
        known = dict(function.__globals__)
        made = types.FunctionType(function.__code__, known, function.__name__, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        made.__module__ = function.__module__
        self.copies[id(function)] = made
        for name, value, origin in free_values(function, function.__code__):
            copied = self.made(value, origin)
            if name in function.__code__.co_freevars:
                cells[function.__code__.co_freevars.index(name)].cell_contents = copied
            else:
                known[name] = copied
        if function.__defaults__:
            made.__defaults__ = tuple(self.made(x, o) for x, o in _defaults(function))
        return made


def free_values(
    function: types.FunctionType, code: types.CodeType, own: bool = True
) -> Iterator[tuple[str, Any, v.FreeOrigin]]:
    """The free variables that some code of a function reads, with their values; `own`: those of the closure too."""
    if own:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents, v.FreeOrigin(function, name)
            except ValueError:
                continue  # not set yet
    todo, names = [code], dict[str, None]()
    while todo:
        inner = todo.pop()
        names.update(dict.fromkeys(inner.co_names))
        todo += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
    for name in names:
        if name in function.__globals__:
            yield name, function.__globals__[name], v.FreeOrigin(function, name)


def _defaults(function: types.FunctionType) -> Iterator[Part]:
    for k, value in enumerate(function.__defaults__ or ()):
        yield value, v.FreeOrigin(function, "__defaults__", (("item", k),))


def _parts(held: Any, origin: v.FreeOrigin | None) -> Iterator[Part]:
    """What an object holds, with the way there."""

    def at(*steps: tuple[str, Any]) -> v.FreeOrigin | None:
        return functools.reduce(v.FreeOrigin.child, steps, origin) if origin is not None else None

    match held:
        case types.FunctionType():
            if is_user_function(held):
                yield from ((value, place) for _, value, place in free_values(held, held.__code__))
                yield from _defaults(held)
        case types.MethodType(__func__=function, __self__=receiver):
            yield function, None
            yield receiver, at(("attribute", "__self__"))
        case functools.partial(func=function, args=args, keywords=keywords):
            yield function, at(("attribute", "func"))
            yield args, at(("attribute", "args"))
            yield keywords, at(("attribute", "keywords"))
        case _ if (inner := _wrapped(held)) is not None:
            yield inner, None
        case _ if (kind := container_kind(held)) is not None:
            for key, value in children(held):
                yield value, at(("attribute" if kind == "namedtuple" else "item", key))
        case _ if _is_object(held):
            for key, value in children(held):
                yield value, at(("attribute", key))
        case _ if _is_container(held):
            for number, value in enumerate(nodes_of(held)):
                yield value, at(("node", number))


def _wrapped(held: Any) -> types.FunctionType | None:
    """The user's function behind `jax.jit` or `ab.batched`, which may stand for it where everything is traced."""
    inner = getattr(held, "__autobatch_function__", None)
    if inner is None and type(held).__name__ == "PjitFunction":
        inner = held.__wrapped__
    return inner if isinstance(inner, types.FunctionType) and is_user_function(inner) else None


def _is_object(held: Any) -> bool:
    """An object of a class of the user, or a dataclass that JAX knows as a container (a module of Equinox)."""
    cls = type(held)
    if isinstance(held, type | types.ModuleType) or callable(getattr(held, "__get__", None)):
        return False
    if (cls.__module__ or "").split(".")[0] in _FOREIGN:
        return dataclasses.is_dataclass(held) and not jax.tree_util.all_leaves([held])
    return next(children(held), None) is not None


def _is_container(held: Any) -> bool:
    """An object of a class of a library that JAX knows as a container, such as a module or a variable of Flax."""
    module = (type(held).__module__ or "").split(".")[0]
    return module in LIBRARIES and not isinstance(held, type) and not jax.tree_util.all_leaves([held])


_FOREIGN = LIBRARIES | sys.stdlib_module_names | {"autobatch", "jaxtyping"}


def _rebuilt(held: Any, parts: list[Any]) -> Any:
    """An object of the same kind with other parts, in the order of `_parts`."""
    match held:
        case types.MethodType():
            function, receiver = parts
            return types.MethodType(function, receiver)
        case functools.partial():
            function, args, keywords = parts
            return functools.partial(function, *args, **keywords)
        case _ if _wrapped(held) is not None:
            return parts[0]
    if container_kind(held) is None and not _is_object(held):
        return jax.tree.unflatten(structure_of(held), parts)
    keys = keys_of(held)
    match container_kind(held):
        case "tuple":
            return tuple(parts)
        case "list":
            return parts
        case "dict":
            return dict(zip(keys, parts, strict=True))
        case "namedtuple":
            return type(held)(*parts)
        case _:
            return make_object(type(held), dict(zip(keys, parts, strict=True)))


def _is_numeric(held: Any) -> bool:
    return is_array(held) and not (isinstance(held, np.ndarray) and held.dtype.kind not in "biufcV")
