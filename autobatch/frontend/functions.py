"""`def` and `lambda` inside a lowered function."""

from __future__ import annotations

import ast
import functools

from autobatch.frontend import cells
from autobatch.frontend import values as v
from autobatch.frontend.scopes import shown
from autobatch.frontend.sources import FunctionNode, FunctionSource, describe
from autobatch.frontend.state import State


def define(s: State, node: FunctionNode) -> v.Abstract:
    """A local function: its text and the values of its defaults. Decorators are called on it."""
    a = node.args
    named = [*a.posonlyargs, *a.args]
    defaults = [(p.arg, d) for p, d in zip(named[len(named) - len(a.defaults) :], a.defaults, strict=True)]
    defaults += [(p.arg, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    function: v.Abstract = v.LocalFunction(_source(s, node), tuple((n, s.evaluate(d)) for n, d in defaults))
    if isinstance(node, ast.FunctionDef):
        for decorator in reversed(node.decorator_list):
            wrapper = s.evaluate(decorator)
            if _is_cache(s, wrapper, function):
                continue
            function = s.call(wrapper, [function])
    return function


_CACHE = "lru_cache.<locals>.decorating_function"


def _is_cache(s: State, wrapper: v.Abstract, function: v.Abstract) -> bool:
    """Is it `functools.cache` or `lru_cache(...)`? What it wraps runs as often as it is called: calls with the same
    arguments give the same, and rows that are equal are computed once."""
    held = wrapper.value if isinstance(wrapper, v.Static) else None
    known = (
        any(held is x for x in (functools.cache, functools.lru_cache)) or getattr(held, "__qualname__", "") == _CACHE
    )
    if not known:
        return False
    if isinstance(function, v.LocalFunction) and function.source.cells_changed:
        names = ", ".join(sorted(map(shown, function.source.cells_changed)))
        s.refuse(
            f"{function.source.name} is cached and changes {names}, so it matters how often it runs",
            "keep results in a dict of your own: if key not in known: known[key] = ...",
        )
    return True


def _source(s: State, node: FunctionNode) -> FunctionSource:
    cache, outer = s.context.memory.sources, s.frame.source
    if (outer, node) not in cache:
        name = "lambda" if isinstance(node, ast.Lambda) else node.name
        cache[outer, node] = describe(node, outer.file, f"{outer.name}.{name}", outer.globals, outer.function)
    cells.note(s, cache[outer, node])
    return cache[outer, node]
