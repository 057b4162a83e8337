"""Functions inside lowered ones under a decorator of the user, which read what is not there yet: themselves, above all.

    @twice                          def walk(*given):
    def walk(k):            ->          def `walk itself`(k): ... walk(k - 1) ...       as it was written
        ... walk(k - 1) ...             return `the decorator`(`walk itself`)(*given)

What it calls by its name is what the decorator makes of it, which is there when the decorator has returned. So that is
called anew in each call, which means the same, as it keeps nothing between them: else it is refused.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

from autobatch.frontend.library.remembered import load, names_read, placed, written
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps
from autobatch.frontend.syntax.cells import note
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.syntax.sources import FunctionSource, describe
from autobatch.frontend.types import values as v

_DECORATOR = "the decorator"


def decorated(s: LoweringState, function: v.Abstract, decorator: v.Abstract, node: ast.expr) -> v.Abstract:
    """What a decorator makes of a local function. `node`: the decorator as it is written."""
    name = ast.unparse(node)
    if not isinstance(function, v.LocalFunction) or not _reads_what_is_missing(s, function.source):
        made = s.call(decorator, [function])
        _refuse_kept(s, made, name)
        return made
    trial = s.fork()
    _refuse_kept(s, trial.call(decorator, [function]), name)
    if heaps.is_changed(s, trial):
        _refuse(s, f"the decorator {name} changes something", function.source)
    source, cache = function.source, s.context.memory.sources
    key = ("decorated", source, s.frame.source)
    names = [n for n, _ in function.defaults]
    own = f"{_DECORATOR} {sum(n.startswith(_DECORATOR) for n in names)}"
    if key not in cache:
        text = _written(source, own, names)
        cache[key] = describe(text, source.file, source.name, source.globals, source.function)
    note(s, cache[key])
    given = tuple((_default(n), x) for n, x in function.defaults)
    return v.LocalFunction(cache[key], ((own, decorator), *given), function.captured)


def _reads_what_is_missing(s: LoweringState, source: FunctionSource) -> bool:
    """Does a function read variables of the function around it that have no value yet, as the decorated one itself?"""
    assert isinstance(source.node, ast.FunctionDef)
    read = names_read(s.frame.source.node, source) & s.frame.source.locals
    return source.node.name in read or any(n not in s.env for n in read)


def _refuse_kept(s: LoweringState, made: v.Abstract, decorator: str) -> None:
    """Refuse a decorator that keeps something between the calls of what it makes."""
    if not isinstance(made, v.LocalFunction):
        return
    known = frozenset().union(*(x.locals for x, _ in s.context.active))
    kept = sorted(made.source.cells_read - known)
    owners = s.context.memory.caches.owners
    kept = [n for n in kept if not any(name == n for _, name in owners)]
    if kept:
        _refuse(s, f"the decorator {decorator} keeps {shown(kept[0])} between the calls of the function", made.source)


def _refuse(s: LoweringState, words: str, source: FunctionSource) -> None:
    s.refuse(words, "keep it in a variable of the function around; results of calls are kept by functools.cache")


def _default(name: str) -> str:
    return f"{name} by default"


def _written(source: FunctionSource, decorator: str, defaults: Sequence[str]) -> ast.FunctionDef:
    """`defaults`: the parameters that have some."""
    function = source.node
    assert isinstance(function, ast.FunctionDef)
    a, name = function.args, f"{function.name} itself"
    behind: list[ast.expr] = [load(_default(p.arg)) for p in (*a.posonlyargs, *a.args) if p.arg in defaults]
    alone: list[ast.expr | None] = [load(_default(p.arg)) if p.arg in defaults else None for p in a.kwonlyargs]
    own = ast.arguments(a.posonlyargs, a.args, a.vararg, a.kwonlyargs, alone, a.kwarg, behind)
    hidden = [ast.arg(n) for n in (decorator, *map(_default, defaults))]
    outer = ast.arguments([], [], ast.arg("given"), hidden, [None for _ in hidden], ast.arg("named"), [])
    made = ast.Call(load(decorator), [load(name)], [])
    call = ast.Call(made, [ast.Starred(load("given"), ast.Load())], [ast.keyword(None, load("named"))])
    for n in (x for part in (outer, own) for x in ast.walk(part)):
        if not hasattr(n, "lineno"):
            ast.copy_location(n, function)
    inner = written(name, own, function.body, function)
    return written(function.name, outer, [inner, placed(ast.Return(call), function)], function)


# ---- functools.wraps


def _itself(function: Any) -> Any:
    """Lowered like a function of the user."""
    return function


def with_names_copied(held: Any, args: Sequence[v.Abstract]) -> v.Abstract | None:
    """`functools.wraps(f)` and `update_wrapper(made, f)`, which copy names alone; None for any other call."""
    if not any(isinstance(x, v.LocalFunction) for x in args):
        return None
    if held is functools.wraps:
        return v.Static(_itself)
    copies = held is functools.update_wrapper
    copies = copies or (isinstance(held, functools.partial) and held.func is functools.update_wrapper)
    return args[0] if copies else None
