"""A container that a function built is changed: every variable that holds it holds the changed one from here on."""

from __future__ import annotations

import ast
from typing import NoReturn

from autobatch.frontend import values as v
from autobatch.frontend.state import Impure, State


def refuse_change(s: State, changed: ast.expr, message: str, cure: str) -> NoReturn:
    """Refuse to change what an expression stands for. Of what was made outside the function, a trace may not either."""
    root = changed
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    bound = s.env.get(root.id) if isinstance(root, ast.Name) and root.id not in s.frame.enclosing else None
    if bound is not None and not any(_holds(x, bound.value) for x in s.frame.borrowed):
        s.refuse(message, cure)
    raise Impure(message, s.span, cure)


def rebind(s: State, name: str, new: v.Abstract) -> None:
    """Let every variable that holds a container hold the changed one; refuse where another object holds it too."""
    bound = s.env.get(name)
    old = bound.value if bound is not None else None
    if old is None or name in s.frame.enclosing or any(_holds(x, old) for x in s.frame.borrowed):
        raise Impure(
            f"{name} is changed, but was made outside this function",
            s.span,
            "lists, dicts and objects of arguments and of enclosing functions are not changed: return a new one",
        )
    others = [n for n, b in s.env.items() if b.value is old]
    if any(_holds(b.value, old) for n, b in s.env.items() if n not in others):
        s.refuse(f"{name} is changed while another container holds it", "build the outer container afterwards")
    for other in others:
        s.bind(other, new)


def _holds(outer: v.Abstract, inner: v.Abstract) -> bool:
    if outer is inner:
        return True
    return isinstance(outer, v.Record) and any(_holds(x, inner) for x in outer.items)
