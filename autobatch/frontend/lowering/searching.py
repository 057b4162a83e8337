"""`next(...)` of a generator expression: a loop that stops at the first element.

next((c for c in t.kids if c.ok), d)        found = d
                                       ->   for c in t.kids:
                                                if c.ok: found = c; break
"""

from __future__ import annotations

import ast
from typing import TypeVar

from autobatch.frontend.lowering.access import variable
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.loops import for_statement
from autobatch.frontend.lowering.numbers import operand_of, present
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.syntax.sources import stores
from autobatch.frontend.types import values as v

_FOUND, _HIT = "<found>", "<hit>"
Node = TypeVar("Node", bound=ast.AST)


def first_element(s: LoweringState, node: ast.Call) -> v.Abstract | None:
    """The value of `next(elements, default)`; None when the call is another one."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[elements, *default], keywords=[]) if len(default) < 2:
            generator = _generator(s, elements)
        case _:
            return None
    if generator is None or variable(s, "next") != v.Static(next):
        return None
    before = dict(s.env)
    for name in stores(*(g.target for g in generator.generators)):
        s.env.pop(name, None)
    s.bind(_FOUND, stored(s, s.evaluate(default[0])) if default else v.Unset(_FOUND))
    s.bind(_HIT, v.Static(False))
    known = s.context.memory.rewritten  # what is noted of a loop is found again by it
    if node not in known:
        known[node] = _search(generator)
    for_statement(s, known[node])
    found, hit = s.env[_FOUND].value, present(s, s.env[_HIT].value)
    s.restore(before)
    if not default:
        s.check(operand_of(s, hit), "StopIteration", "")
        if isinstance(found, v.Unset):
            s.dead = True
    return found


def _generator(s: LoweringState, elements: ast.expr) -> ast.GeneratorExp | None:
    """The generator whose first element is asked for: written out, or `iter(items)`."""
    match elements:
        case ast.GeneratorExp():
            return elements
        case ast.Call(func=ast.Name(id="iter"), args=[items], keywords=[]) if variable(s, "iter") == v.Static(iter):
            name = "<element>"
            made = ast.comprehension(ast.Name(name, ast.Store()), items, [], 0)
            return _at(elements, ast.GeneratorExp(ast.Name(name, ast.Load()), [made]))
        case _:
            return None


def _search(generator: ast.GeneratorExp) -> ast.For:
    """The loop, or several in each other: the outer ones stop when an inner one has stopped."""
    body: list[ast.stmt] = [
        ast.Assign([ast.Name(_FOUND, ast.Store())], generator.elt),
        ast.Assign([ast.Name(_HIT, ast.Store())], ast.Constant(True)),
        ast.Break(),
    ]
    for part in reversed(generator.generators):
        for test in reversed(part.ifs):
            body = [ast.If(test, body, [])]
        loop = ast.For(part.target, part.iter, body, [])
        body = [loop, ast.If(ast.Name(_HIT, ast.Load()), [ast.Break()], [])]
    return _at(generator, loop)


def _at(place: ast.AST, made: Node) -> Node:
    """A node that was made, at a place of the source, with all its parts that have none."""
    ast.copy_location(made, place)
    return ast.fix_missing_locations(made)
