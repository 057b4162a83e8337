"""Comprehensions that change variables from turn to turn are loops, in front of what they stand in.

[heappop(h) for _ in range(n)]     ->     t = []
                                          for k in range(n): t.append(heappop(h))
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from functools import lru_cache

from autobatch.frontend.lowering.access import variable
from autobatch.frontend.lowering.state import Ended, LoweringState
from autobatch.frontend.memory import heaps
from autobatch.frontend.syntax.flattening import Body, appended, in_front
from autobatch.frontend.syntax.sources import mutated_by
from autobatch.frontend.types import values as v

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@lru_cache(maxsize=4096)
def changes(node: Comprehension) -> bool:
    """Does it change variables that are not its own, by `xs.pop()` or `:=`?"""
    own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    parts = list(ast.walk(node))
    changed = {name for n in parts for name in mutated_by(n)}
    return not changed <= own or any(isinstance(n, ast.NamedExpr) for n in parts)


def in_turns(s: LoweringState, node: ast.ListComp | ast.SetComp | ast.DictComp, element: ast.expr) -> v.Abstract:
    """The list of the elements."""
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = appended(ast.copy_location(ast.ListComp(element, node.generators), node))
    return _behind(s, known[node])


def reduced(s: LoweringState, node: ast.Call) -> v.Abstract | None:
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


def ended(s: LoweringState, node: ast.Call, evaluate: Callable[[], list[v.Abstract]]) -> list[v.Abstract] | v.Abstract:
    """The arguments of a call. Where that is `any` or `all` of a generator expression that changes objects in memory,
    its result: the element that decides is the last one that is looked at."""
    match node:
        case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp()]):
            if variable(s, name) != v.Static(getattr(builtins, name)):
                return evaluate()
        case _:
            return evaluate()
    before, take_back = {n: s.env[n].value for n in heaps.variables(s)}, s.mark()
    found = evaluate()
    if all(s.env[n].value is x for n, x in before.items()):
        return found
    take_back()
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = in_front(node)
    if known[node] is None:
        s.refuse(f"{name}() of elements that change objects ends where one decides", "write a loop")
    return _behind(s, known[node])


def refuse(s: LoweringState, node: ast.GeneratorExp) -> None:
    """A generator expression that runs step by step, and changes what others read meanwhile."""
    if changes(node):
        s.refuse("a generator expression that is kept or handed on changes a variable", "write a loop, or [...]")


def _behind(s: LoweringState, written: tuple[Body, ast.expr]) -> v.Abstract:
    statements, read = written
    s.context.rules.execute(s, statements)
    if s.dead:
        raise Ended
    return s.evaluate(read)
