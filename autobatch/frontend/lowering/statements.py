"""Statements: one entry of `STATEMENTS` for each kind that can be compiled, one message for each syntax that cannot."""

from __future__ import annotations

import ast
import collections.abc
import contextlib
import inspect
import operator
import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.builtin_functions import is_instance
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.assignment import assign, augment, delete
from autobatch.frontend.lowering.attributes import attribute, fields_of, forms_of, written
from autobatch.frontend.lowering.branches import (
    both,
    branch_on,
    condition,
    guarded,
    if_statement,
    leaving,
    not_expression,
    truth,
)
from autobatch.frontend.lowering.branches import condition as holds
from autobatch.frontend.lowering.calls import lookup
from autobatch.frontend.lowering.carrying import completes
from autobatch.frontend.lowering.exceptions import (
    EXCEPTION,
    KIND,
    is_caught,
    protected,
    raise_again,
    raise_here,
    try_statement,
)
from autobatch.frontend.lowering.functions import define, define_class
from autobatch.frontend.lowering.iterators import kept, stepped
from autobatch.frontend.lowering.joins import arms, captured, conditional, join, stored
from autobatch.frontend.lowering.loops import for_statement, while_statement
from autobatch.frontend.lowering.numbers import combine, operand_of, present
from autobatch.frontend.lowering.operators import compare_with, contains, equal, identical, subscript
from autobatch.frontend.lowering.selection import picked
from autobatch.frontend.lowering.sequences import arithmetic, length, sequence, sliced
from autobatch.frontend.lowering.state import BROKE, CONTINUED, FLAGS, RESULT, RETURNED, LoweringState, expand, hand_out
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.syntax.flattening import placed, with_test_apart
from autobatch.frontend.syntax.generators import begun, run_inside
from autobatch.frontend.syntax.scopes import is_cell
from autobatch.frontend.syntax.sources import is_user_function
from autobatch.frontend.syntax.state_machines import continues, leaves
from autobatch.frontend.types import values as v
from autobatch.ir.core import Array, Operand, Ref, Tag

# ---- refusals
#
# What cannot be compiled, and what to write instead: one row for each construct of Python.

_TRACED = "compute it before packing, or write it with jax.numpy"

STATEMENT_REFUSALS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.AsyncFunctionDef: ("`async def` cannot be compiled", "write it with `def`"),
    ast.AsyncFor: ("`async for` cannot be compiled", "use `for`"),
    ast.AsyncWith: ("`async with` cannot be compiled", "compute without it"),
    ast.Global: ("`global` cannot be compiled: free variables are read, never written", "return the new value"),
}
if hasattr(ast, "TryStar"):
    STATEMENT_REFUSALS[ast.TryStar] = ("`except*` cannot be compiled", "test for the condition with `if`")
if hasattr(ast, "TypeAlias"):
    STATEMENT_REFUSALS[ast.TypeAlias] = ("`type` cannot be compiled", "define the alias at the top of the module")

EXPRESSION_REFUSALS: dict[type[ast.expr], tuple[str, str]] = {
    ast.Await: ("`await` cannot be compiled", "write an ordinary function"),
    ast.Yield: (
        "generators cannot be compiled, but where a loop runs over them",
        "write `for x in g(...)`, `list(g(...))`, `sum(g(...))`; or return a list: [... for ...]",
    ),
    ast.YieldFrom: (
        "generators cannot be compiled, but where a loop runs over them",
        "write `for x in g(...)`, `list(g(...))`, `sum(g(...))`; or return a list: [... for ...]",
    ),
    ast.Set: ("a set of values of the program cannot be compiled", "use a tuple, or a list"),
    ast.SetComp: ("a set comprehension cannot be compiled", "use a list comprehension"),
    ast.JoinedStr: (
        "an f-string of numbers cannot be compiled",
        "strings are made before packing; in raise and assert messages f-strings are fine",
    ),
    ast.FormattedValue: ("a formatted number cannot be compiled", _TRACED),
    ast.Starred: ("`*` is not possible here", "name the elements"),
}


# ---- contexts
#
# `with`: of a class of the user, of a generator under `contextlib.contextmanager`, and `contextlib.suppress`.
#
#     with Scope(log) as s:               held = Scope(log);  s = held.__enter__()
#         ...                     ->      try: ...
#                                         finally: held.__exit__(None, None, None)
#
# An `__exit__` that looks at what was raised, or may end it, is called by a handler (PEP 343):
#
#     fine = True
#     try:
#         try: ...
#         except BaseException as e:
#             fine = False
#             if not held.__exit__(type(e), e, None): raise
#     finally:
#         if fine: held.__exit__(None, None, None)
#
# Of a generator, the body stands where it yields.


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
    if node not in known:
        held = ast.Name(name, ast.Load())
        entered = ast.Call(ast.Attribute(held, "__enter__", ast.Load()), [], [])
        first = ast.Assign([item.optional_vars], entered) if item.optional_vars is not None else ast.Expr(entered)
        left = ast.Attribute(held, "__exit__", ast.Load())
        known[node] = [placed(x, node) for x in (first, *_left_by(left, node.body, name, _reads_of_exit(s, context)))]
    s.bind(name, context)
    s.context.rules.execute(s, known[node])


def _name(item: ast.withitem) -> str:
    """A name for a context, unlike those of others."""
    return f"<context {item.context_expr.lineno} {item.context_expr.col_offset}>"


def _left_by(method: ast.expr, body: list[ast.stmt], name: str, reads: Sequence[bool] | None) -> list[ast.stmt]:
    """The body of a `with`, with the call of `__exit__` behind it. `reads`: see `_reads_of_exit`."""
    nothing = ast.Constant(None)
    last = ast.Expr(ast.Call(method, [nothing] * 3, []))
    if reads is None:
        return [ast.Try(body, [], [], [last])]
    fine, error = f"<fine {name}", f"<raised {name}"
    given: list[ast.expr] = [ast.Name(KIND, ast.Load()), ast.Name(error, ast.Load())]
    given = [x if read else nothing for x, read in zip(given, reads, strict=True)]
    ends = ast.Call(method, [*given, nothing], [])
    start, end = (ast.Assign([ast.Name(fine, ast.Store())], ast.Constant(x)) for x in (True, False))
    handler = ast.ExceptHandler(None, error, [end, ast.If(ast.UnaryOp(ast.Not(), ends), [ast.Raise()], [])])
    inner = ast.Try(body, [handler], [], [])
    return [start, ast.Try([inner], [], [], [ast.If(ast.Name(fine, ast.Load()), [last], [])])]


def _reads_of_exit(s: LoweringState, context: v.Abstract) -> tuple[bool, bool] | None:
    """Does an `__exit__` look at the class of what was raised, and at the exception? None where it neither does, nor
    may end it."""
    classes = heaps.classes_of(s, context) if isinstance(context, v.MemoryRow) else [getattr(context, "cls", None)]
    kind = error = ends = False
    for cls in classes:
        function = inspect.getattr_static(cls, "__exit__", None)
        if not isinstance(function, types.FunctionType):
            continue
        node = lookup(s, function).node
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        given = [*(a.arg for a in node.args.args[1:]), "", "", ""]
        rest = {a.arg for a in (node.args.vararg, node.args.kwarg) if a is not None}
        if names & {*given[2:], *rest}:
            s.refuse(
                f"{function.__qualname__} looks at a traceback, or at all that it is given",
                "name the class and the error",
            )
        kind, error = kind or given[0] in names, error or given[1] in names
        ends = ends or any(isinstance(n, ast.Return) and not _is_false(n.value) for n in ast.walk(node))
    return (kind, error) if kind or error or ends else None


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


# ---- failures
#
# `raise` and `assert`: the example fails, its neighbours do not.


def raise_statement(s: LoweringState, node: ast.Raise) -> None:
    """`raise Kind(message)`: nothing behind it runs. (What it stems `from` is of no account.)"""
    if _is_handled(s, node.exc):
        assert s.frame.handling is not None
        held, codes, _ = s.frame.handling
        s.bind(EXCEPTION, s.env[held].value)
        raise_again(s, codes, node)
        return
    cls = _class(s, node.exc)
    if is_caught(s, cls):
        args = node.exc.args if isinstance(node.exc, ast.Call) else []
        if isinstance(node.exc, ast.Call) and node.exc.keywords:
            s.refuse("an exception that `try` catches is made with named arguments", "give them by position")
        called = any(isinstance(n, ast.Call) for a in args for n in ast.walk(a))
        given = [s.evaluate(a) for a in args] if called else None
        raise_here(s, cls, lambda: [s.evaluate(a) for a in args] if given is None else given)
        return
    message, operands = text(s, node.exc.args[0]) if isinstance(node.exc, ast.Call) and node.exc.args else ("", [])
    s.check(s.scalar(False), cls.__name__, message, operands)
    s.dead = True


def _is_handled(s: LoweringState, node: ast.expr | None) -> bool:
    """Is it the exception that the handler around has caught?"""
    if node is None and s.frame.handling is None:
        s.refuse("`raise` without an exception stands in no handler", "name the exception")
    if node is None:
        return True
    return isinstance(node, ast.Name) and s.frame.handling is not None and node.id == s.frame.handling[2]


def _class(s: LoweringState, node: ast.expr | None) -> type[BaseException]:
    assert node is not None
    kind = s.evaluate(node.func if isinstance(node, ast.Call) else node)
    if not (isinstance(kind, v.Static) and isinstance(kind.value, type) and issubclass(kind.value, BaseException)):
        s.refuse("only exceptions can be raised", "write `raise ValueError(...)`")
    cls, known = kind.value, s.context.raisable
    if known.setdefault(cls.__name__, cls) is not cls:
        s.refuse(f"two classes of exceptions have the name {cls.__name__}", "give each a name of its own")
    return cls


def assert_statement(s: LoweringState, node: ast.Assert) -> None:
    condition = holds(s, node.test)
    if condition is True:
        return
    if isinstance(condition, bool):
        message, operands = text(s, node.msg)
        s.check(s.scalar(False), "AssertionError", message, operands)
        s.dead = True
        return
    if node.msg is None or isinstance(node.msg, ast.Constant):
        message, operands = text(s, node.msg)
        s.check(condition, "AssertionError", message, operands)
        return
    good, bad = arms(s, condition)
    with bad.at(node):
        message, operands = text(bad, node.msg)
        bad.check(s.scalar(False), "AssertionError", message, operands)
    bad.dead = True
    join(s, condition, good, bad)


def text(s: LoweringState, node: ast.expr | None) -> tuple[str, list[Operand]]:
    """A message as a format string and the operands for it."""
    match node:
        case None:
            return "", []
        case ast.JoinedStr(values=parts):
            pieces, operands = [], []
            for part in parts:
                piece, more = _part(s, part)
                pieces.append(piece)
                operands += more
            return "".join(pieces), operands
        case _:
            return _value(s, s.evaluate(node), "")


def _part(s: LoweringState, node: ast.expr) -> tuple[str, list[Operand]]:
    if isinstance(node, ast.Constant):
        return _escaped(node.value), []
    assert isinstance(node, ast.FormattedValue)
    spec = ""
    if isinstance(node.format_spec, ast.JoinedStr):
        spec = "".join(str(p.value) for p in node.format_spec.values if isinstance(p, ast.Constant))
    conversion = f"!{chr(node.conversion)}" if node.conversion > 0 else ""
    return _value(s, s.evaluate(node.value), conversion + (f":{spec}" if spec else ""))


def _value(s: LoweringState, value: v.Abstract, form: str) -> tuple[str, list[Operand]]:
    if isinstance(value, v.Static):
        hand_out(s.context, value.value)
        return _escaped(("{" + form + "}").format(value.value)), []
    if isinstance(value, v.Leaf) and isinstance(value.type, Array | Tag):
        return "{" + form + "}", [operand_of(s, value)]
    return _escaped("<...>"), []


def _escaped(text_: object) -> str:
    return str(text_).replace("{", "{{").replace("}", "}}")


# ---- patterns
#
# `match`: a chain of tests and bindings over classes, constants, sequences and mappings.


Truth = bool | Operand


def match_statement(s: LoweringState, node: ast.Match, rest: Sequence[ast.stmt]) -> None:
    """`match`, with the statements behind it."""
    subject = s.evaluate(node.subject)
    _alternatives(s, subject, subject.alternatives if isinstance(subject, v.Choice) else [subject], rest, node)


def _alternatives(
    s: LoweringState, subject: v.Abstract, alternatives: Sequence[v.Abstract], rest: Sequence[ast.stmt], node: ast.Match
) -> None:
    """The cases of each value that the subject may be, of another type than others."""
    first, *others = alternatives
    if not others:
        _cases(s, first, node.cases, rest, node)
        return
    assert isinstance(subject, v.Choice)
    position = len(subject.alternatives) - len(alternatives)
    chosen = truth(s, picked(s, subject, frozenset([position])))
    then = lambda t: _cases(t, first, node.cases, (), node)
    branch_on(s, chosen, then, lambda t, tail: _alternatives(t, subject, others, tail, node), rest, node)


def _cases(
    s: LoweringState, subject: v.Abstract, cases: Sequence[ast.match_case], rest: Sequence[ast.stmt], node: ast.Match
) -> None:
    execute = s.context.rules.execute
    if not cases:
        execute(s, rest)
        return
    case, *others = cases

    def then(t: LoweringState) -> None:
        _bind(t, case.pattern, subject)
        execute(t, case.body)

    with s.at(case.pattern):
        test = _with_guard(s, case, subject)
    branch_on(s, test, then, lambda t, tail: _cases(t, subject, others, tail, node), rest, node)


def _with_guard(s: LoweringState, case: ast.match_case, subject: v.Abstract) -> Truth:
    fit = fits(s, case.pattern, subject)
    if case.guard is None or fit is False:
        return fit
    guard = case.guard

    def holds(t: LoweringState) -> v.Abstract:
        inner = t
        before = dict(inner.env)
        _bind(inner, case.pattern, subject)
        result = _abstract(condition(inner, guard))
        inner.restore(before)
        return result

    return _and(s, fit, holds)


def _abstract(condition: Truth) -> v.Abstract:
    return v.Static(condition) if isinstance(condition, bool) else v.Leaf(condition)


def _and(s: LoweringState, first: Truth, rest: Any) -> Truth:
    """`first and rest()`, the rest evaluated only where the first holds."""
    if isinstance(first, bool):
        return truth(s, rest(s)) if first else False
    return truth(s, both(s, first, rest))


def fits(s: LoweringState, pattern: ast.pattern, subject: v.Abstract) -> Truth:
    """Does a value match a pattern?"""
    with s.at(pattern):
        match pattern:
            case ast.MatchValue(value=value):
                return truth(s, equal(s, subject, s.evaluate(value)))
            case ast.MatchSingleton(value=value):
                return truth(s, identical(s, subject, v.Static(value)))
            case ast.MatchAs(pattern=None):
                return True
            case ast.MatchAs(pattern=inner) if inner is not None:
                return fits(s, inner, subject)
            case ast.MatchOr(patterns=patterns):
                return _fits_one(s, patterns, subject)
            case ast.MatchClass():
                return _fits_class(s, pattern, subject)
            case ast.MatchSequence(patterns=patterns):
                return _fits_sequence(s, patterns, subject)
            case ast.MatchMapping(keys=keys, patterns=patterns):
                return _fits_mapping(s, keys, patterns, subject)
    s.refuse("this pattern cannot be compiled", "use `if`")


def _fits_one(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> Truth:
    result: Truth = False
    for pattern in patterns:
        hit = fits(s, pattern, subject)
        if hit is True:
            return True
        if not isinstance(hit, bool):
            result = hit if isinstance(result, bool) else combine(s, "or", result, hit)
    return result


def _all(s: LoweringState, pairs: Sequence[tuple[ast.pattern, Any]]) -> v.Abstract:
    """Do all parts match? A later part is looked at only where the earlier ones match."""
    if not pairs:
        return v.Static(True)
    (pattern, part), *rest = pairs
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return _all(s, rest)
    return _abstract(_and(s, fits(s, pattern, part(s)), lambda t: _all(t, rest)))


def _parts(s: LoweringState, pattern: ast.MatchClass, cls: type) -> list[tuple[ast.pattern, str]]:
    names = getattr(cls, "__match_args__", ())
    if len(pattern.patterns) > len(names):
        if cls in _SELF and len(pattern.patterns) == 1:
            return [(pattern.patterns[0], "")]
        s.refuse(
            f"{cls.__name__} has {len(names)} positional patterns, {len(pattern.patterns)} are given",
            "name the attributes: `Class(field=pattern)`",
        )
    positional = zip(pattern.patterns, names, strict=False)
    return [*positional, *zip(pattern.kwd_patterns, pattern.kwd_attrs, strict=True)]


_SELF = (bool, int, float, str, list, tuple, dict)


def _pattern_class(s: LoweringState, pattern: ast.MatchClass) -> type:
    cls = s.evaluate(pattern.cls)
    if not isinstance(cls, v.Static) or not isinstance(cls.value, type):
        s.refuse("a class pattern needs a class", "write the name of a class before the brackets")
    return cls.value


def _pattern_part(subject: v.Abstract, name: str) -> Any:
    return lambda t: attribute(t, subject, name) if name else subject


def _fits_class(s: LoweringState, pattern: ast.MatchClass, subject: v.Abstract) -> Truth:
    cls = _pattern_class(s, pattern)
    fit = truth(s, is_instance(s, subject, cls))
    if fit is False:
        return False
    pairs = [(p, _pattern_part(subject, n)) for p, n in _parts(s, pattern, cls)]
    return _and(s, fit, lambda t: _all(t, pairs))


def _fits_sequence(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> Truth:
    fit = _is_sequence(s, subject)
    return False if fit is False else _and(s, fit, lambda t: _abstract(_fits_parts(t, patterns, subject)))


def _fits_parts(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> Truth:
    """Does a sequence match, by how long it is and what it holds?"""
    stars = [k for k, p in enumerate(patterns) if isinstance(p, ast.MatchStar)]
    count = length(s, sequence(s, subject))
    needed = len(patterns) - len(stars)
    enough = truth(s, compare_with(s, operator.ge if stars else operator.eq, count, v.Static(needed)))
    if enough is False:
        return False
    pairs = [
        (p, lambda t, k=k: _element(t, subject, k, len(patterns), stars))
        for k, p in enumerate(patterns)
        if not isinstance(p, ast.MatchStar)
    ]
    return _and(s, enough, lambda t: _all(t, pairs))


def _is_sequence(s: LoweringState, subject: v.Abstract) -> Truth:
    """Does a pattern of a sequence look at its elements? At those of strings none does."""
    is_text = isinstance(subject, v.Static) and isinstance(subject.value, str | bytes | bytearray)
    if is_text or (isinstance(subject, v.Leaf) and isinstance(subject.type, Tag)):
        return False
    fit = truth(s, is_instance(s, subject, collections.abc.Sequence))
    if isinstance(fit, bool):
        return fit
    return _and(s, fit, lambda t: not_expression(t, is_instance(t, subject, str)))


def _element(s: LoweringState, subject: v.Abstract, position: int, size: int, stars: Sequence[int]) -> v.Abstract:
    found = sequence(s, subject)
    if isinstance(found, v.Record):
        index = position if not stars or position < stars[0] else position - size
        return found.items[index]
    if not stars or position < stars[0]:
        return found.item(s, v.Static(position))
    return found.item(s, arithmetic(s, operator.sub, found.length, v.Static(size - position)))


def _fits_mapping(
    s: LoweringState, keys: Sequence[ast.expr], patterns: Sequence[ast.pattern], subject: v.Abstract
) -> Truth:
    found = _mapping(s, subject)
    if found is None:
        return False
    names = [s.evaluate(k) for k in keys]
    held = [(p, lambda t, k=k: found.load(t, k)) for p, k in zip(patterns, names, strict=True)]
    return _and(s, found.holds(s, names), lambda t: _all(t, held))


@dataclass(frozen=True)
class _Mapping:
    """What patterns of dicts look at: has it all of some keys, what is at one, and what does it hold, where its keys
    are known?"""

    holds: Callable[[LoweringState, Sequence[v.Abstract]], Truth]
    load: Callable[[LoweringState, v.Abstract], v.Abstract]
    whole: Callable[[LoweringState], v.Abstract | None] = lambda s: None


def _mapping(s: LoweringState, subject: v.Abstract) -> _Mapping | None:
    """Of a dict, or what may be one and None or another one; None for other values."""
    if list_heap.is_record_row(subject):
        row = subject
        return _Mapping(
            lambda t, keys: list_heap.has_keys(t, row, keys),
            lambda t, k: list_heap.load(t, row, k),
            lambda t: list_heap.as_value(t, row),
        )
    if (held := forms_of(s, subject)) is not None and isinstance(subject, v.Leaf):
        given, of = subject, held
        return _Mapping(
            lambda t, keys: unions.has_keys(t, given, of, [_constant(t, k) for k in keys]),
            lambda t, k: unions.load(t, given, of, _constant(t, k)),
            lambda t: fields_of(t, given) if len(forms_of(t, given) or ()) == 1 else None,
        )
    table = expand(s, list_heap.as_value(s, subject))
    if isinstance(table, v.Leaf) and isinstance(table.type, Ref):
        table = fields_of(s, table) or table
    if not isinstance(table, v.Record) or table.kind not in ("dict", "table") or table.cls in (set, frozenset):
        return None
    if table.kind == "table":
        return _Mapping(lambda t, keys: _holds_all(t, table, keys), lambda t, k: subscript(t, table, k))
    names = dict(zip(table.keys, table.items, strict=True))
    return _Mapping(
        lambda t, keys: all(_constant(t, k) in names for k in keys),
        lambda t, k: names[_constant(t, k)],
        lambda t: table,
    )


def _holds_all(s: LoweringState, table: v.Abstract, keys: Sequence[v.Abstract]) -> Truth:
    found: Truth = True
    for key in keys:
        found = _and(s, found, lambda t, k=key: contains(t, table, k))
    return found


def _constant(s: LoweringState, key: v.Abstract) -> Any:
    if not isinstance(key, v.Static):
        s.refuse("a key of a pattern must be a constant", "compare with `if`")
    return key.value


def _bind(s: LoweringState, pattern: ast.pattern, subject: v.Abstract) -> None:
    """Bind the names of a pattern that fits."""
    match pattern:
        case ast.MatchAs(pattern=inner, name=name):
            if inner is not None:
                _bind(s, inner, subject)
            if name is not None:
                s.bind(name, subject)
        case ast.MatchClass():
            for part, attr in _parts(s, pattern, _pattern_class(s, pattern)):
                if _binds(part):
                    _bind(s, part, _pattern_part(subject, attr)(s))
        case ast.MatchSequence(patterns=patterns):
            _bind_sequence(s, patterns, subject)
        case ast.MatchMapping(keys=keys, patterns=patterns, rest=rest):
            found = _mapping(s, subject)
            assert found is not None
            names = [s.evaluate(k) for k in keys]
            for key, part in zip(names, patterns, strict=True):
                if _binds(part):
                    _bind(s, part, found.load(s, key))
            if rest is not None:
                whole, taken = found.whole(s), [_constant(s, k) for k in names]
                if not isinstance(whole, v.Record) or whole.kind != "dict":
                    s.refuse("`**rest` of a dict that may have different keys", "ask for its keys with `in`")
                left = {k: x for k, x in zip(whole.keys, whole.items, strict=True) if k not in taken}
                s.bind(rest, v.Record("dict", tuple(left), tuple(left.values())))
        case ast.MatchOr(patterns=patterns):
            _bind_one(s, patterns, subject)


def _bind_one(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> None:
    """Bind the names of the first alternative that fits; all alternatives bind the same names."""
    names = sorted(n for n in map(_captured_name, ast.walk(patterns[0])) if n is not None)
    if not names:
        return

    def bound(t: LoweringState, pattern: ast.pattern) -> v.Record:
        before = dict(t.env)
        _bind(t, pattern, subject)
        values = tuple(t.env[n].value for n in names)
        t.restore(before)
        return v.Record("tuple", tuple(range(len(names))), values)

    def at(t: LoweringState, k: int) -> v.Abstract:
        hit = True if k == len(patterns) - 1 else fits(t, patterns[k], subject)
        if isinstance(hit, bool):
            return bound(t, patterns[k]) if hit else at(t, k + 1)
        return conditional(t, hit, lambda u: bound(u, patterns[k]), lambda u: at(u, k + 1))

    found = at(s, 0)
    assert isinstance(found, v.Record)
    for name, value in zip(names, found.items, strict=True):
        s.bind(name, value)


def _captured_name(node: ast.AST) -> str | None:
    """The variable that this part of a pattern binds."""
    match node:
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
            return name
        case _:
            return None


def _binds(pattern: ast.pattern) -> bool:
    return any(_captured_name(n) is not None for n in ast.walk(pattern))


def _bind_sequence(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> None:
    stars = [k for k, p in enumerate(patterns) if isinstance(p, ast.MatchStar)]
    for k, part in enumerate(patterns):
        if not isinstance(part, ast.MatchStar):
            if _binds(part):
                _bind(s, part, _element(s, subject, k, len(patterns), stars))
        elif part.name is not None:
            behind = len(patterns) - k - 1
            bounds = [v.Static(k), v.Static(-behind if behind else None), v.Static(None)]
            s.bind(part.name, s.context.rules.materialise(s, sliced(s, sequence(s, subject), bounds)))


def execute(s: LoweringState, statements: Sequence[ast.stmt]) -> None:
    """Run statements until every path has left them."""
    for position, node in enumerate(statements):
        if s.left:
            return
        if leaving(s) is not None:
            guarded(s, statements[position:])
            return
        if s.frame.trying and (apart := with_test_apart(s, node)) is not None:
            execute(s, [*apart, *statements[position + 1 :]])
            return
        if isinstance(node, ast.If):
            with s.at(node):
                if_statement(s, node, statements[position + 1 :])
            return
        if isinstance(node, ast.Match):
            with s.at(node):
                match_statement(s, node, statements[position + 1 :])
            return
        with s.at(node):
            if s.frame.trying and not isinstance(node, ast.Try | ast.With):
                protected(s, node, statement)
            else:
                statement(s, node)
        if isinstance(node, ast.Try) and not s.dead and not completes((node,)):
            _note_left(s)
            return


def _note_left(s: LoweringState) -> None:
    """No path goes on here. Where none has left in another way, all have returned."""
    others = (name for name in FLAGS if name != RETURNED)
    if RESULT in s.env and all(s.flag(name) == v.Static(False) for name in others):
        s.bind(RETURNED, v.Static(True))
        result = s.env[RESULT].value
        s.bind(RESULT, result.value if isinstance(result, v.Optional) and result.unset else result)


def statement(s: LoweringState, node: ast.stmt) -> None:
    """Run one statement other than `if` and `match`."""
    rule = STATEMENTS.get(type(node))
    if rule is None:
        message, cure = STATEMENT_REFUSALS.get(type(node), ("this statement cannot be compiled", ""))
        raise UnsupportedError(message, s.span, cure)
    rule(s, node)


def _expression(s: LoweringState, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        s.evaluate(node.value)


def _return(s: LoweringState, node: ast.Return) -> None:
    if node.value is None and getattr(node, "implicit", False) and _only_none_left(s):
        s.check(s.scalar(False), "TypeError", "None where an object must be")
        s.dead = True
        return
    value = v.Static(None) if node.value is None else stored(s, s.evaluate(node.value))
    value = captured(s, value)
    if not s.dead:
        s.bind(RESULT, value)
        s.bind(RETURNED, v.Static(True))


def _only_none_left(s: LoweringState) -> bool:
    """Have tests ruled out every class of some object? Then only None comes here, where no case was written for it."""
    seen: set[Hashable] = set()
    for block in s.block.chain():
        for operand, fact in block.facts.items():
            if operand not in seen and fact.tested and not fact.classes:
                return True
            seen.add(operand)
    return False


def _assign(s: LoweringState, node: ast.Assign) -> None:
    value = kept(s, node, s.evaluate(stepped(s, node)))
    for target in node.targets:
        assign(s, target, value)


def _annotated(s: LoweringState, node: ast.AnnAssign) -> None:
    if node.value is not None:
        value = kept(s, node, s.evaluate(node.value))
        assign(s, node.target, value)


def _flag(name: str) -> Callable[[LoweringState, Any], None]:
    def rule(s: LoweringState, node: ast.stmt) -> None:
        s.bind(name, v.Static(True))

    return rule


def _define(s: LoweringState, node: ast.FunctionDef | ast.ClassDef) -> None:
    s.bind(node.name, define_class(s, node) if isinstance(node, ast.ClassDef) else define(s, node))


def _nothing(s: LoweringState, node: ast.stmt) -> None:
    """`pass`, and imports, whose names are read through the table of modules."""


def _nonlocal(s: LoweringState, node: ast.Nonlocal) -> None:
    """Variables of functions that are compiled are cells; those of others are read, never written."""
    names = (n for n in ast.walk(s.frame.source.node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
    if any(n.id in node.names and not is_cell(n.id) for n in names):
        s.refuse(
            "`nonlocal` of a variable of a function that is not compiled: such variables are read, never written",
            "return the new value",
        )


def _import(s: LoweringState, node: ast.Import) -> None:
    for alias in node.names:
        module = __import__(alias.name)
        target = alias.asname or alias.name.split(".")[0]
        if alias.asname:
            for part in alias.name.split(".")[1:]:
                module = getattr(module, part)
        s.bind(target, v.Static(module))


def _import_from(s: LoweringState, node: ast.ImportFrom) -> None:
    package = s.frame.source.globals.get("__package__")
    module = __import__(node.module or "", {"__package__": package}, None, [a.name for a in node.names], node.level)
    for alias in node.names:
        if alias.name == "*":
            s.refuse("`import *` cannot be compiled", "name what is imported")
        s.bind(alias.asname or alias.name, v.Static(getattr(module, alias.name)))


STATEMENTS: dict[type[ast.stmt], Callable[[LoweringState, Any], None]] = {
    ast.Expr: _expression,
    ast.Return: _return,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: augment,
    ast.Delete: delete,
    ast.Pass: _nothing,
    ast.Break: _flag(BROKE),
    ast.Continue: _flag(CONTINUED),
    ast.For: for_statement,
    ast.While: while_statement,
    ast.Raise: raise_statement,
    ast.Try: try_statement,
    ast.With: with_statement,
    ast.Assert: assert_statement,
    ast.FunctionDef: _define,
    ast.ClassDef: _define,
    ast.Nonlocal: _nonlocal,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
}
