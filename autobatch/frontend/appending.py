"""Loops that only append to a list: they are comprehensions.

out = []                                out = [f(c) for c in t.kids]
for c in t.kids:              ->
    y = f(c)
    out.append(y)
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend import values as v
from autobatch.frontend.assignment import assign
from autobatch.frontend.comprehensions import make_map
from autobatch.frontend.joins import stored
from autobatch.frontend.layouts import RecordLayout, list_types
from autobatch.frontend.operators import concatenate
from autobatch.frontend.sources import changed, stores
from autobatch.frontend.state import State


def appended_lists(node: ast.For) -> list[str]:
    """The lists to which each turn appends one element, if it does nothing else with them; else none."""
    appends = [pair for b in node.body if (pair := appended(b)) is not None]
    lists = [name for name, _ in appends]
    plain = [b for b in node.body if appended(b) is None]
    if len(set(lists)) != len(lists) or node.orelse:
        return []
    if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for b in node.body for n in ast.walk(b)):
        return []
    if any(_mentions(b, name) for b in (*plain, *(x for _, x in appends)) for name in lists):
        return []
    return lists


def appended_list(s: State, node: ast.For, found: v.Lazy) -> bool:
    """Lower the loop as a `Map` if each turn appends one element to each of some lists and hands on nothing else."""
    lists = appended_lists(node)
    plain = [b for b in node.body if appended(b) is None]
    if not lists or any(n in s.env and _read_first(node.body, n) for n in changed(*plain)):
        return False
    if any(s.frame.source.read_after(n, node, s.frame.outer_loop) for n in changed(node.target, *plain)):
        return False
    return _lower(s, node, found, lists)


def _lower(s: State, node: ast.For, found: v.Lazy, lists: Sequence[str]) -> bool:
    before = [s.env[n].value if n in s.env else None for n in lists]
    if not all(isinstance(b, v.Record | v.Listing) for b in before):
        return False

    def element(t: State) -> v.Abstract:
        made: dict[str, v.Abstract] = {}
        for statement in node.body:
            pair = appended(statement)
            if pair is None:
                t.context.rules.execute(t, [statement])
            else:
                with t.at(statement):
                    made[pair[0]] = stored(t, t.evaluate(pair[1]))
        return v.Record("tuple", tuple(range(len(lists))), tuple(made[n] for n in lists))

    def body(t: State, x: v.Abstract) -> tuple[bool, object]:
        assign(t, node.target, x)
        return True, element

    listing = make_map(s, found, body)  # type: ignore[arg-type]
    for name, old, column in zip(lists, before, columns(listing, len(lists)), strict=True):
        assert old is not None
        s.bind(name, concatenate(s, old, column))
    return True


def columns(value: v.Abstract, count: int) -> list[v.Abstract]:
    """A list of tuples as a tuple of lists."""
    if isinstance(value, v.Record):
        return [v.Record("list", (), ()) for _ in range(count)]
    assert isinstance(value, v.Listing)
    assert isinstance(value.elem, RecordLayout)
    rest = iter(value.lists)
    return [v.Listing(tuple(next(rest) for _ in list_types(k)), k) for k in value.elem.items]


def appended(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list and the element of `name.append(element)`."""
    match node:
        case ast.Expr(
            ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[element], keywords=[])
        ):
            return name, element
        case _:
            return None


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _read_first(body: Sequence[ast.stmt], name: str) -> bool:
    """May a turn read the variable before it sets it? Then it hands something on from turn to turn."""
    for statement in body:
        reads = any(
            isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(statement)
        )
        if reads or (isinstance(statement, ast.AugAssign) and _mentions(statement.target, name)):
            return True
        if isinstance(statement, ast.Assign) and name in stores(statement):
            return False
    return True
