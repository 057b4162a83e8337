"""Calls of classes with type parameters are calls of the classes: what a list may hold is known from what it holds.

xs = list[float]()     ->     xs = list()
s = Stack[int](3)      ->     s = Stack(3)
"""

from __future__ import annotations

import ast
import builtins
import types
from typing import Any

from autobatch.frontend.syntax.syntax_trees import bound_names


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
