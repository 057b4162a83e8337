"""What the passes over syntax trees have in common, those that write Python anew before anything is lowered."""

from __future__ import annotations

import ast
import builtins
import types
from typing import Any


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


# ---- parametrised
#
# Calls of classes with type parameters are calls of the classes: what a list may hold is known from what it holds.
#
# xs = list[float]()     ->     xs = list()
# s = Stack[int](3)      ->     s = Stack(3)


def without_parameters(node: ast.AST, function: types.FunctionType) -> None:
    """Rewrite such calls in the text of a function, where its names are those of its module or of Python."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)]
    if not calls:
        return
    own = {name for n in ast.walk(node) for name in bound_names(n)} | {*function.__code__.co_freevars}
    for call in calls:
        assert isinstance(call.func, ast.Subscript)
        if isinstance(_value(call.func.value, function.__globals__, own), type):
            call.func = call.func.value


def _value(node: ast.expr, globals: dict[str, Any], own: set[str]) -> Any:
    """What a name of the module, or of a module that it has, stands for; None for anything else."""
    match node:
        case ast.Name(id=name) if name not in own:
            return globals.get(name, getattr(builtins, name, None))
        case ast.Attribute(value=value, attr=name):
            held = _value(value, globals, own)
            return getattr(held, name, None) if isinstance(held, types.ModuleType) else None
        case _:
            return None
