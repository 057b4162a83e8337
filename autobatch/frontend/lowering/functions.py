"""`def` and `lambda` inside a lowered function."""

from __future__ import annotations

import ast

from autobatch.frontend.library import remembered
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.decorated import decorated
from autobatch.frontend.syntax.sources import FunctionNode, FunctionSource, describe
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


def _source(s: LoweringState, node: FunctionNode) -> FunctionSource:
    cache, outer = s.context.memory.sources, s.frame.source
    if (outer, node) not in cache:
        name = "lambda" if isinstance(node, ast.Lambda) else node.name
        cache[outer, node] = describe(node, outer.file, f"{outer.name}.{name}", outer.globals, outer.function)
    cells.note(s, cache[outer, node])
    return cache[outer, node]
