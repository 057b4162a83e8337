"""What the passes over syntax trees have in common, those that write Python anew before anything is lowered."""

from __future__ import annotations

import ast


def bound_names(node: ast.AST) -> list[str]:
    """The names that a node by itself, without what is in it, gives a meaning, deletes or declares."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(a.asname or a.name).split(".")[0] for a in names]
        case ast.Nonlocal(names=found) | ast.Global(names=found):
            return found
        case _:
            return []


def become(node: ast.AST, other: ast.AST) -> None:
    """Let a node of a tree be another, at its place."""
    for part in ast.walk(other):
        if isinstance(part, ast.stmt | ast.expr | ast.arg) and not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    node.__class__ = other.__class__
    vars(node).clear()
    vars(node).update(vars(other))


def place_of(node: ast.AST) -> tuple[int, int]:
    """The line and column of a node: which of two stands behind the other."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
