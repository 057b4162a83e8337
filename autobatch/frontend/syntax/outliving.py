"""Variables that outlive their function, as the functions that it returns change them: fields of an object.

    def counter():                            def counter():
        n = 0                                     kept = <variables of counter>();  kept.n = 0
        def step(v):                              def step(v):
            nonlocal n                    ->          kept.n = kept.n + v
            n = n + v                                 return kept.n
            return n                              return step
        return step

The object has memory where it is changed (`heap.py`): each call of the function makes another one. Variables that are
bound otherwise than by an assignment stay cells (`scopes.py`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from functools import lru_cache

from autobatch.frontend.syntax.scopes import KEPT, FunctionNode, Renaming, Scope, scopes_of

_MARK = "\0"


def with_outliving_variables(node: FunctionNode, mutators: frozenset[str]) -> FunctionNode:
    """The function with such variables written out; itself where there are none. `mutators`: the methods that change a
    list, dict or set."""
    if not isinstance(node, ast.FunctionDef) or not any(True for f in ast.walk(node) for _ in _returned(f)):
        return node
    return _rewritten(node, mutators)


@lru_cache(maxsize=256)
def _rewritten(node: ast.FunctionDef, mutators: frozenset[str]) -> ast.FunctionDef:
    scopes = list(scopes_of(node, None, mutators))
    names: dict[tuple[Scope, str], str] = {}
    for owner in scopes:
        leaving = set(_returned(owner.node))
        for inner in scopes:
            if not _is_inside(inner, owner, leaving):
                continue
            for name in inner.changed:
                if inner.owner(name) is owner:
                    names[owner, name] = f"{_MARK}{scopes.index(owner)}{_MARK}{name}"
    if not names:
        return node
    made = copy.deepcopy(node)
    copies = [s.node for s in scopes_of(made, None, mutators)]
    Renaming(dict(zip(copies, scopes, strict=True)), names).function(made)
    for owner in dict.fromkeys(owner for owner, _ in names):
        function = copies[scopes.index(owner)]
        assert isinstance(function, ast.FunctionDef)
        kind = type(f"variables of {function.name}", (), {})
        value = ast.Call(ast.Constant(kind), [], [])  # type: ignore[arg-type]
        first = ast.Assign([ast.Name(_object(str(scopes.index(owner))), ast.Store())], value)
        function.body.insert(0, _placed(first, function))
    if any(map(_is_bound_otherwise, ast.walk(made))):
        return node
    written = _AsFields().visit(made)
    assert isinstance(written, ast.FunctionDef)
    return written


def _object(number: str) -> str:
    return f"{KEPT}{number}>"


def _returned(node: ast.AST) -> Iterator[str | ast.Lambda]:
    """The names, and the lambdas, that a function returns, also in tuples, lists and dicts."""
    if not isinstance(node, ast.FunctionDef):
        return
    todo: list[ast.AST] = [*node.body]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Return) and part.value is not None:
            yield from _values(part.value)
        elif not isinstance(part, FunctionNode):
            todo += ast.iter_child_nodes(part)


def _values(node: ast.expr) -> Iterator[str | ast.Lambda]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Lambda():
            yield node
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _values(part)
        case ast.IfExp(body=then, orelse=orelse):
            yield from _values(then)
            yield from _values(orelse)


def _is_inside(inner: Scope, owner: Scope, leaving: set[str | ast.Lambda]) -> bool:
    """Is this one of the functions that leave their owner, or inside of one?"""
    scope: Scope | None = inner
    while scope is not None and scope.outer is not owner:
        scope = scope.outer
    if scope is None:
        return False
    return (scope.node.name if isinstance(scope.node, ast.FunctionDef) else scope.node) in leaving


def _is_bound_otherwise(node: ast.AST) -> bool:
    """Does a part of the function bind such a variable, but by an assignment?"""
    match node:
        case ast.For(target=target) | ast.comprehension(target=target) | ast.NamedExpr(target=target):
            return any(isinstance(n, ast.Name) and n.id.startswith(_MARK) for n in ast.walk(target))
        case ast.withitem(optional_vars=ast.expr() as target):
            return any(isinstance(n, ast.Name) and n.id.startswith(_MARK) for n in ast.walk(target))
        case ast.Name(id=name, ctx=ast.Del()):
            return name.startswith(_MARK)
        case ast.AnnAssign(target=ast.Name(id=name), value=None):
            return name.startswith(_MARK)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return name.startswith(_MARK)
        case ast.ExceptHandler(name=str(name)) | ast.FunctionDef(name=name) | ast.alias(asname=str(name)):
            return name.startswith(_MARK)
        case _:
            return False


class _AsFields(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not node.id.startswith(_MARK):
            return node
        _, number, name = node.id.split(_MARK)
        holder = ast.copy_location(ast.Name(_object(number), ast.Load()), node)
        return ast.copy_location(ast.Attribute(holder, name, node.ctx), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        made = self.generic_visit(node)
        assert isinstance(made, ast.AnnAssign)
        if isinstance(made.target, ast.Attribute) and made.value is not None:
            return ast.copy_location(ast.Assign([made.target], made.value), node)
        return made

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        left = [n for n in node.names if not n.startswith(_MARK)]
        return ast.copy_location(ast.Nonlocal(left) if left else ast.Pass(), node)


def _placed(made: ast.stmt, node: ast.AST) -> ast.stmt:
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made
