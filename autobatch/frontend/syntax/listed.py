"""Generators that run over themselves: functions that give the list of what they yield.

def walk(t):                            def walk(t):
    yield t.x                     ->        found = [t.x]
    for kid in t.kids:                      for kid in t.kids:
        yield from walk(kid)                    for x in walk(kid): found.append(x)
                                            return found

A loop over one runs behind it, so it is refused where that could be told apart: where the generator changes something,
where the loop may change what it reads, or may be left before what fails or never ends.
"""

from __future__ import annotations

import ast
import copy
from functools import lru_cache

from autobatch.frontend.lowering.calls import activate, capture
from autobatch.frontend.lowering.carrying import leaves_early
from autobatch.frontend.lowering.state import LoweringState, Restart
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.sources import FunctionSource, changed, describe
from autobatch.frontend.types import values as v

_FOUND, _ITEM, _MARK = "<yielded>", "<one of them>", "runs over itself"
_CURE = "append to a list that the function is given, or loop over list(...)"
_TOTAL = frozenset({"enumerate", "isinstance", "len", "range", "reversed", "zip"})


def is_recursive(s: LoweringState, source: FunctionSource) -> bool:
    """Does a generator run over itself?"""
    return (_MARK, source) in s.context.memory.sources or _calls_itself(source.node)


def found_recursive(s: LoweringState, source: FunctionSource) -> None:
    """A generator runs over itself by way of others (`yield from self.left`, which is its `__iter__`)."""
    s.context.memory.sources[_MARK, source] = source
    raise Restart


@lru_cache(maxsize=4096)
def _calls_itself(function: ast.AST) -> bool:
    """Does a generator function call one of its own name?"""
    name = getattr(function, "name", None)
    return any(isinstance(n, ast.Call) and _name(n) == name for n in ast.walk(function))


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def listed(s: LoweringState, generator: v.Generator) -> v.Abstract:
    """The list of what a generator yields that runs over itself."""
    source, captured = generator.source, dict(generator.captured or ())
    if generator.local and generator.captured is None:
        captured = dict(capture(s, v.LocalFunction(source, ())).captured or ())
    return activate(s, _written(s, source), dict(generator.arguments), captured)


def refuse_steps(s: LoweringState, generator: v.Generator, loop: ast.For) -> None:
    """Refuse a loop that could tell a generator from the list of what it yields."""
    if isinstance(loop.target, ast.Name) and loop.target.id == _ITEM:
        return  # a `yield from`: nothing happens between two turns
    source = generator.source
    given = [x for _, x in (*generator.arguments, *(generator.captured or ()))]
    moving = source.cells_read or any(map(_may_change, given))
    if _changes(source) or (moving and not all(map(_is_quiet, loop.body))):
        s.refuse(f"a loop runs over {source.name}, which runs over itself and may see what changes meanwhile", _CURE)
    if any(leaves_early(b) for b in loop.body) and not _is_total(source):
        s.refuse(f"a loop may leave {source.name}, which runs over itself and may fail or never end", _CURE)


def _changes(source: FunctionSource) -> bool:
    own = frozenset(n.id for n in ast.walk(source.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    outer = any(isinstance(n, ast.Nonlocal | ast.Global) for n in ast.walk(source.node))
    return outer or not own.issuperset(changed(*source.body))


def _is_quiet(statement: ast.stmt) -> bool:
    """Does a statement only assign variables of its own?"""
    return not any(map(_is_loud, ast.walk(statement)))


def _is_loud(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name != _FOUND
        case ast.Attribute(ctx=context) | ast.Subscript(ctx=context):
            return not isinstance(context, ast.Load)
        case _:
            return isinstance(node, ast.Call | ast.Delete | ast.With | ast.Nonlocal)


def _may_change(value: v.Abstract) -> bool:
    match value:
        case v.MemoryRow() | v.Optional(value=v.MemoryRow()) | v.Record(kind="object"):
            return True
        case v.Record(items=items):
            return any(map(_may_change, items))
        case _:
            return False


def _is_total(source: FunctionSource) -> bool:
    """Does a generator end, and fail nowhere?"""
    name = getattr(source.node, "name", "")
    if not _calls_itself(source.node):
        return False
    partial = (ast.While, ast.Raise, ast.Assert, ast.Subscript, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
    for node in ast.walk(source.node):
        if isinstance(node, partial) or (isinstance(node, ast.Call) and _name(node) not in (*_TOTAL, name)):
            return False
    return True


def _written(s: LoweringState, source: FunctionSource) -> FunctionSource:
    """The function that gives the list."""
    cache = s.context.memory.sources
    if ("listed", source) not in cache:
        node = copy.deepcopy(source.node)
        assert isinstance(node, ast.FunctionDef)
        first = ast.Assign([ast.Name(_FOUND, ast.Store())], ast.List([], ast.Load()))
        last = ast.Return(ast.Name(_FOUND, ast.Load()))
        body = [_Appending().visit(x) for x in node.body]
        node.body = [ast.copy_location(first, body[0]), *body, ast.copy_location(last, body[-1])]
        ast.fix_missing_locations(node)
        made = describe(node, source.file, source.name, source.globals, source.function)
        cache["listed", source] = made
    cells.note(s, cache["listed", source])
    return cache["listed", source]


class _Appending(ast.NodeTransformer):
    """Appends what a generator yields."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Return(ast.Name(_FOUND, ast.Load())), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        match node.value:
            case ast.Yield(value=value):
                return ast.copy_location(_append(value or ast.Constant(None)), node)
            case ast.YieldFrom(value=value):
                body: list[ast.stmt] = [_append(ast.Name(_ITEM, ast.Load()))]
                return ast.copy_location(ast.For(ast.Name(_ITEM, ast.Store()), value, body, []), node)
            case _:
                return node


def _append(value: ast.expr) -> ast.Expr:
    function = ast.Attribute(ast.Name(_FOUND, ast.Load()), "append", ast.Load())
    return ast.Expr(ast.Call(function, [value], []))
