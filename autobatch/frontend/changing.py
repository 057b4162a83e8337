"""Comprehensions that change variables from turn to turn are loops, in front of what they stand in.

[heappop(h) for _ in range(n)]     ->     t = []
                                          for k in range(n): t.append(heappop(h))
"""

from __future__ import annotations

import ast
import builtins
from functools import lru_cache

from autobatch.frontend import values as v
from autobatch.frontend.access import variable
from autobatch.frontend.flattening import Body, appended, in_front
from autobatch.frontend.sources import mutated_by
from autobatch.frontend.state import Ended, State

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@lru_cache(maxsize=4096)
def changes(node: Comprehension) -> bool:
    """Does it change variables that are not its own, by `xs.pop()` or `:=`?"""
    own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    parts = list(ast.walk(node))
    changed = {name for n in parts for name in mutated_by(n)}
    return not changed <= own or any(isinstance(n, ast.NamedExpr) for n in parts)


def in_turns(s: State, node: ast.ListComp | ast.SetComp | ast.DictComp, element: ast.expr) -> v.Abstract:
    """The list of the elements."""
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = appended(ast.copy_location(ast.ListComp(element, node.generators), node))
    return _behind(s, known[node])


def reduced(s: State, node: ast.Call) -> v.Abstract | None:
    """A call of `sum`, `any`, `sorted` or another builtin that is given such a generator expression, and runs it to its
    end or to the element that decides; None for other calls."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp() as inner, *_]) if changes(inner):
            if variable(s, name) != v.Static(getattr(builtins, name, None)):
                return None
        case _:
            return None
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = in_front(node)
    return None if known[node] is None else _behind(s, known[node])


def refuse(s: State, node: ast.GeneratorExp) -> None:
    """A generator expression that runs step by step, and changes what others read meanwhile."""
    if changes(node):
        s.refuse("a generator expression that is kept or handed on changes a variable", "write a loop, or [...]")


def _behind(s: State, written: tuple[Body, ast.expr]) -> v.Abstract:
    statements, read = written
    s.context.rules.execute(s, statements)
    if s.dead:
        raise Ended
    return s.evaluate(read)
