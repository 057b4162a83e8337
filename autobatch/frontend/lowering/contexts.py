"""`with`: of a class of the user, of a generator under `contextlib.contextmanager`, and `contextlib.suppress`.

    with Scope(log) as s:               held = Scope(log);  s = held.__enter__()
        ...                     ->      try: ...
                                        finally: held.__exit__(None, None, None)

So `__exit__` may neither look at what was raised nor end it. Of a generator, the body stands where it yields.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.frontend.lowering.attributes import written
from autobatch.frontend.lowering.calls import lookup
from autobatch.frontend.lowering.exceptions import try_statement
from autobatch.frontend.lowering.numbers import present
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps
from autobatch.frontend.syntax.flattening import placed
from autobatch.frontend.syntax.generators import begun, continues, leaves, run_inside
from autobatch.frontend.syntax.sources import is_user_function
from autobatch.frontend.types import values as v

_MADE_BY = contextlib.contextmanager(lambda: iter(())).__code__
"""The code of what `contextlib.contextmanager` makes of a generator function."""


def with_statement(s: LoweringState, node: ast.With) -> None:
    """`with context as name: ...`"""
    known = s.context.memory.rewritten
    if len(node.items) > 1:
        if node not in known:
            inner = placed(ast.With(node.items[1:], node.body), node)
            known[node] = placed(ast.With(node.items[:1], [inner]), node)
        with_statement(s, known[node])
        return
    (item,) = node.items
    match item.context_expr:
        case ast.Call(func=function, args=args, keywords=keywords) if _is_name(function):
            held = s.evaluate(function)
            if held == v.Static(contextlib.suppress) and not keywords and item.optional_vars is None:
                kind = placed(ast.Tuple(args, ast.Load()), node)
                caught = placed(ast.ExceptHandler(kind, None, [ast.Pass()]), node)
                try_statement(s, known.setdefault(node, placed(ast.Try(node.body, [caught], [], []), node)))
                return
            if isinstance(held, v.Static) and getattr(held.value, "__code__", None) is _MADE_BY:
                _run_generator(s, node, held.value, args, keywords)
                return
        case _:
            pass
    _enter(s, node, item)


def _is_name(node: ast.expr) -> bool:
    """Is it a name, or one of a module or object? Anything else is evaluated once, by `_enter`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _enter(s: LoweringState, node: ast.With, item: ast.withitem) -> None:
    """A context of a class of the user."""
    known, name = s.context.memory.rewritten, _name(item)
    context = present(s, s.evaluate(item.context_expr))
    if not written(s, context, "__enter__") or not written(s, context, "__exit__"):
        s.refuse(
            "`with` is compiled of contextlib.suppress, of generators, and of classes with __enter__ and __exit__",
            "open the context around the batched call",
        )
    _refuse_looking(s, context)
    if node not in known:
        held = ast.Name(name, ast.Load())
        entered = ast.Call(ast.Attribute(held, "__enter__", ast.Load()), [], [])
        nothing: list[ast.expr] = [ast.Constant(None), ast.Constant(None), ast.Constant(None)]
        left = ast.Expr(ast.Call(ast.Attribute(held, "__exit__", ast.Load()), nothing, []))
        first = ast.Assign([item.optional_vars], entered) if item.optional_vars is not None else ast.Expr(entered)
        known[node] = [placed(x, node) for x in (first, ast.Try(node.body, [], [], [left]))]
    s.bind(name, context)
    s.context.rules.execute(s, known[node])


def _name(item: ast.withitem) -> str:
    """A name for a context, unlike those of others."""
    return f"<context {item.context_expr.lineno} {item.context_expr.col_offset}>"


def _refuse_looking(s: LoweringState, context: v.Abstract) -> None:
    """Refuse an `__exit__` that looks at the exception, or may end it."""
    classes = heaps.classes_of(s, context) if isinstance(context, v.MemoryRow) else [getattr(context, "cls", None)]
    for cls in classes:
        function = inspect.getattr_static(cls, "__exit__", None)
        if not isinstance(function, types.FunctionType):
            continue
        node = lookup(s, function).node
        _, *given = [a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)]
        looks = any(isinstance(n, ast.Name) and n.id in given for n in ast.walk(node))
        ends = any(isinstance(n, ast.Return) and not _is_false(n.value) for n in ast.walk(node))
        if looks or ends:
            s.refuse(
                f"{function.__qualname__} looks at what was raised, or ends it", "catch it by `try` inside the context"
            )


def _is_false(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and not value.value)


def _ends_by_yield(body: Sequence[ast.stmt]) -> bool | None:
    """Does a generator end where it yields, but for what `finally` does? None where it may not come to a `yield`."""
    for k, node in enumerate(body):
        match node:
            case ast.Expr(value=ast.Yield()):
                return k == len(body) - 1
            case ast.Try(body=inner) | ast.With(body=inner) if (ends := _ends_by_yield(inner)) is not None:
                return ends and not getattr(node, "orelse", None) and k == len(body) - 1
            case _:
                pass
    return None


def _returns(node: ast.AST) -> bool:
    """Does a statement leave the function that it is in?"""
    if isinstance(node, ast.Return):
        return True
    return not isinstance(node, ast.FunctionDef | ast.Lambda) and any(map(_returns, ast.iter_child_nodes(node)))


def _run_generator(
    s: LoweringState,
    node: ast.With,
    made: Callable[..., Any],
    args: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
) -> None:
    """A generator under `contextmanager`: the body stands where it yields."""
    function = getattr(made, "__wrapped__", None)
    if not is_user_function(function) or any(k.arg is None for k in keywords):
        s.refuse("`with` of this generator cannot be compiled", "open the context around the batched call")
    known, name = s.context.memory.rewritten, _name(node.items[0])
    if node not in known:
        target = node.items[0].optional_vars or ast.Name(f"<entered by {name}", ast.Store())
        known[node] = placed(ast.For(target, ast.Name(name, ast.Load()), node.body, []), node)
    given = [s.evaluate(a) for a in args]
    named = {k.arg: s.evaluate(k.value) for k in keywords if k.arg is not None}
    generator = begun(s, v.Static(function), given, named)
    assert generator is not None
    text = generator.source.body
    ends = _ends_by_yield(text)
    if ends is None or sum(isinstance(n, ast.Yield) for b in text for n in ast.walk(b)) > 1 or any(map(_returns, text)):
        s.refuse(
            f"{generator.source.name}, the generator of a `with`, may yield never, or more than once, or returns",
            "write one `yield`, outside of branches and loops",
        )
    if not ends and any(leaves(b) or continues(b) or _returns(b) for b in node.body):
        s.refuse(
            "a `with` of a generator is left by return, break or continue",
            "set a variable, and leave behind it, or let the generator end by `try: yield` and `finally`",
        )
    run_inside(s, known[node], generator)
