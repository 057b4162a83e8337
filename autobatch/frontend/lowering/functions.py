"""`def`, `lambda` and `class` inside a lowered function."""

from __future__ import annotations

import ast
from typing import Any

from autobatch.frontend.library import remembered
from autobatch.frontend.lowering.state import LoweringState, enclosing_value
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.decorated import decorated
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.syntax.sources import FunctionNode, FunctionSource, describe, parameters
from autobatch.frontend.types import values as v


def define(s: LoweringState, node: FunctionNode) -> v.Abstract:
    """A local function: its text and the values of its defaults. Decorators are called on it."""
    a = node.args
    named = [*a.posonlyargs, *a.args]
    defaults = [(p.arg, d) for p, d in zip(named[len(named) - len(a.defaults) :], a.defaults, strict=True)]
    defaults += [(p.arg, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    function: v.Abstract = v.LocalFunction(_source(s, node), tuple((n, s.evaluate(d)) for n, d in defaults))
    if isinstance(node, ast.FunctionDef):
        for decorator in reversed(node.decorator_list):
            wrapper = s.evaluate(decorator)
            bound = remembered.bound_of(wrapper)
            if bound is not None and isinstance(function, v.LocalFunction):
                function = remembered.cached(s, function, bound)
            else:
                function = decorated(s, function, wrapper, decorator)
    return function


def define_class(s: LoweringState, node: ast.ClassDef) -> v.Abstract:
    """A class: Python makes it, once for each set of the classes and functions of modules that it reads from the
    functions around it."""
    outer, read = s.frame.source, dict[str, Any]()
    for name in sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - _own_names(node)):
        value = enclosing_value(s, name)
        if isinstance(value, v.Static) and callable(value.value):
            read[name] = value.value
        elif name in outer.locals:
            s.refuse(
                f"a class that is defined in a function reads the variable {shown(name)!r} of the function",
                "hand it to the methods that need it, or to __init__",
            )
    known, key = s.context.memory.rewritten, (node, *((name, id(value)) for name, value in read.items()))
    if key not in known:
        # a function of its own: methods read what the module has when they are called, and the rest from around them
        given = ast.arguments([], [ast.arg(name) for name in read], None, [], [], None, [])
        names = dict[str, Any]()
        made = ast.FunctionDef("make", given, [node, ast.Return(ast.Name(node.name, ast.Load()))], [])
        module = ast.fix_missing_locations(ast.Module([ast.copy_location(made, node)], []))
        try:
            exec(compile(module, outer.file, "exec"), outer.globals, names)
            known[key] = names["make"](**read)
        except Exception as error:
            s.refuse(f"Python cannot make this class outside of the function: {error}", "define it in the module")
    return v.Static(known[key])


def _own_names(node: ast.ClassDef) -> set[str]:
    """The name of a class, and the variables of its methods."""
    methods = [n for n in ast.walk(node) if isinstance(n, FunctionNode)]
    stored = {n.id for m in methods for n in ast.walk(m) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored.union({node.name}, *map(parameters, methods))


def _source(s: LoweringState, node: FunctionNode) -> FunctionSource:
    cache, outer = s.context.memory.sources, s.frame.source
    if (outer, node) not in cache:
        name = "lambda" if isinstance(node, ast.Lambda) else node.name
        cache[outer, node] = describe(node, outer.file, f"{outer.name}.{name}", outer.globals, outer.function)
    cells.note(s, cache[outer, node])
    return cache[outer, node]
