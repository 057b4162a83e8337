"""A container that a function built is changed: every variable that holds it holds the changed one from here on."""

from __future__ import annotations

import ast
from typing import NoReturn

from autobatch.errors import UnsupportedError
from autobatch.frontend.lowering.state import RESULT, RETURNED, Impure, LoweringState, MemoryChanged
from autobatch.frontend.memory.heap import refused_without_memory
from autobatch.frontend.memory.identity import is_dict_value, is_list
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.types import values as v


def refuse_change(
    s: LoweringState, changed: ast.expr, message: str, cure: str, held: v.Abstract | None = None
) -> NoReturn:
    """Refuse to change what an expression stands for. Of what was made outside the function, a trace may not either.
    `held`: what the expression is, where that is known."""
    root = changed
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    bound = s.env.get(root.id) if isinstance(root, ast.Name) and root.id not in s.frame.enclosing else None
    known, dicts = s.context.memory.sites, held is not None and is_dict_value(held)
    if s.context.sites.needed(known, dicts=dicts):
        raise s.context.sites.refused(known, UnsupportedError(message, s.span, cure), dicts=dicts)
    if bound is not None and not any(_holds(x, bound.value) for x in s.frame.borrowed):
        s.refuse(message, cure)
    raise Impure(message, s.span, cure)


def rebind(s: LoweringState, name: str, new: v.Abstract) -> None:
    """Let every variable that holds a container hold the changed one; refuse where another object holds it too."""
    bound = s.env.get(name)
    old = bound.value if bound is not None else None
    if old is None or name in s.frame.enclosing or any(_holds(x, old) for x in s.frame.borrowed):
        cure = "lists, dicts and objects of arguments and of enclosing functions are not changed: return a new one"
        raise _refusal(s, old, f"{shown(name)} is changed, but was made outside this function", cure, Impure)
    others = [n for n, b in s.env.items() if b.value is old]
    rest = [b.value for n, b in s.env.items() if n not in others and not (n == RESULT and _goes_on(s))]
    if any(_holds(x, old) for x in rest):
        words = f"{shown(name)} is changed while another container holds it"
        raise _refusal(s, old, words, "build the outer container afterwards")
    if isinstance(new, v.Record) and any(_holds(x, old) for x in new.items):
        words = f"{shown(name)} is put into itself"
        raise _refusal(s, old, words, "put a copy of it there: list(x), dict(x)")
    identities, caches = s.context.identities, s.context.memory.caches
    if identities.is_stored(old) and caches.run_with_effect(list(caches.known)):
        raise MemoryChanged  # what a function under `functools.cache` has returned is changed
    if identities.may_be_held(old, [*rest, *s.frame.enclosing.values(), *s.frame.borrowed]):
        words = f"{shown(name)} is changed, but another variable or list may hold the same object"
        cure = "change a copy: list(x), dict(x), dataclasses.replace(x); or build a new list of changed elements"
        raise _refusal(s, old, words, cure)
    if any(identities.is_view(x, old) for x in rest):
        s.refuse(
            f"{shown(name)} is changed, and another variable holds a view of it: keys(), values() or items()",
            "ask for the view again behind the change, or keep a list: list(d.values())",
        )
    identities.successor(new, old)
    for other in others:
        s.bind(other, new)


def _goes_on(s: LoweringState) -> bool:
    """Has the function not returned here, so that what other paths return is nothing of this one?"""
    flag = s.flag(RETURNED)
    return flag == v.Static(False) or (isinstance(flag, v.Leaf) and s.block.truth(flag.operand) is False)


def take_out(s: LoweringState, value: v.Abstract, *lists: v.Abstract) -> None:
    """Note that an item has been taken out of a list, which is all of these."""
    others = [b.value for b in s.env.values()]
    s.context.identities.taken_out(value, lists, [*others, *s.frame.enclosing.values(), *s.frame.borrowed])


def _refusal(
    s: LoweringState, value: v.Abstract | None, message: str, cure: str, kind: type[UnsupportedError] = UnsupportedError
) -> UnsupportedError:
    """An object of a class that this lowering makes may be changed where it has memory."""
    if isinstance(value, v.Record) and value.kind == "object" and value.cls in s.context.built:
        return refused_without_memory([value.cls], message, s.span, cure)
    error = kind(message, s.span, cure)
    if value is None or not (is_list(value) or is_dict_value(value)):
        return error
    return s.context.sites.refused(s.context.memory.sites, error, kind is Impure, is_dict_value(value))


def is_own(s: LoweringState, value: v.Abstract) -> bool:
    """Was a container built in this function?"""
    return not any(_holds(x, value) for x in (*s.frame.borrowed, *s.frame.enclosing.values()))


def _holds(outer: v.Abstract, inner: v.Abstract) -> bool:
    if outer is inner:
        return True
    return isinstance(outer, v.Record) and any(_holds(x, inner) for x in outer.items)
