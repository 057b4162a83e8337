"""Slices that become lists of their own at once, as the function changes what it has cut out.

r = l[1:]; r.append(y)        r is a list that is built here
r = l[1:]; total = sum(r)     r only reads l: nothing is copied
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from autobatch.frontend.syntax.sources import mutated


@lru_cache(maxsize=256)
def changed_parts(function: ast.FunctionDef | ast.Lambda) -> frozenset[ast.AST]:
    """The slices that a variable may hold whose list the function changes, under this name or another one."""
    flows = [(target, source) for n in ast.walk(function) for target, source in _flows(n)]
    names = set(mutated(function)) | {
        n.target.id for n in ast.walk(function) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    count = -1
    while len(names) != count:
        count = len(names)
        names |= {source.id for target, source in flows if target in names and isinstance(source, ast.Name)}
    return frozenset(source for target, source in flows if target in names and isinstance(source, ast.Subscript))


def _flows(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The variables that a statement or expression gives a value, and the parts of it that the value may be."""
    targets: list[ast.expr]
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=one, value=ast.expr() as value):
            targets = [one]
        case ast.NamedExpr(target=name, value=value):
            targets = [name]
        case _:
            return
    for target in targets:
        if isinstance(target, ast.Name):
            yield from ((target.id, x) for x in _results(value))
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for inner, part in zip(target.elts, value.elts, strict=False):
                if isinstance(inner, ast.Name):
                    yield from ((inner.id, x) for x in _results(part))


def _results(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from _results(body)
            yield from _results(orelse)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _results(value)
        case ast.NamedExpr(value=value):
            yield from _results(value)
        case ast.Name() | ast.Subscript():
            yield node
