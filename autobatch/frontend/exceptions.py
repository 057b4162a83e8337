"""`try`: what a statement of its body can fail with, and a handler catches, is a branch.

    try:                                    %ok = 0 <= k < len(xs)
        s = s + xs[k]                       if %ok:  s = s + item(xs, k)
    except IndexError:              ->      else:    <raised> = True, <exception> = 0
        s = s + 1.0                         if <raised>: s = s + 1.0

A statement is lowered as ever; its instructions are then cut at the first one that may fail so, and those behind it
belong to the arm in which it does not. `<raised>` is a flag as `<returned>` is one: the statements behind it run where
it is not set. What is caught inside a loop, a branch of an expression or a function that the body calls is refused.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autobatch.frontend import heaps
from autobatch.frontend import values as v
from autobatch.frontend.branches import run
from autobatch.frontend.joins import arms, join
from autobatch.frontend.numbers import is_python, operand_of, traced
from autobatch.frontend.sources import MUTATORS
from autobatch.frontend.state import FLAGS, RAISED, State
from autobatch.ir.capacity import NO_ROOM
from autobatch.ir.core import Apply, Call, Instruction, Literal, Operand, Region, walk
from autobatch.ir.ops import OWN, own
from autobatch.ir.types import INT, Array, List

EXCEPTION = "<exception>"
Statement = Callable[[State, ast.stmt], None]


def try_statement(s: State, node: ast.Try) -> None:
    """`try: ... except ...: ... else: ... finally: ...`"""
    classes = [_classes(s, h) for h in node.handlers]
    for handler in node.handlers:
        _refuse_reads(s, handler)
    inside = [n for part in (*node.body, *node.handlers, *node.orelse) for n in ast.walk(part)]
    if node.finalbody and any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in inside):
        s.refuse("a `try` with `finally` is left by return, break or continue", "set a variable, and leave behind it")
    s.bind(RAISED, v.Static(False))
    s.frame.trying.append(tuple(x for found in classes for x in found))
    try:
        s.context.rules.execute(s, [part for statement in node.body for part in _tests_apart(statement)])
    finally:
        s.frame.trying.pop()
    if not s.dead and not s.left:
        s.context.rules.execute(s, node.orelse)
    if not s.dead:
        _handle(s, node, classes)
    _finally(s, node)


def with_statement(s: State, node: ast.With) -> None:
    """`with contextlib.suppress(KeyError): ...`"""
    match node.items:
        case [ast.withitem(context_expr=ast.Call(func=function, args=args, keywords=[]), optional_vars=None)]:
            if s.evaluate(function) == v.Static(contextlib.suppress):
                kind = ast.copy_location(ast.Tuple(args, ast.Load()), node)
                caught = ast.copy_location(ast.ExceptHandler(kind, None, [ast.copy_location(ast.Pass(), node)]), node)
                try_statement(s, ast.copy_location(ast.Try(node.body, [caught], [], []), node))
                return
    s.refuse("`with` cannot be compiled, but of contextlib.suppress", "open the context around the batched call")


def _classes(s: State, handler: ast.ExceptHandler) -> list[type[BaseException]]:
    if handler.type is None:
        return [BaseException]
    found = s.evaluate(handler.type)
    held = list(found.items) if isinstance(found, v.Record) else [found]
    kinds = [x.value for x in held if isinstance(x, v.Static)]
    kinds = [k for kind in kinds for k in (kind if isinstance(kind, tuple) else (kind,))]
    if len(kinds) < len(held) or not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
        s.refuse("a handler catches what is no class of exceptions", "name the classes")
    return kinds


def _refuse_reads(s: State, handler: ast.ExceptHandler) -> None:
    if handler.name is not None and any(
        isinstance(n, ast.Name) and n.id == handler.name for b in handler.body for n in ast.walk(b)
    ):
        s.refuse(
            f"the exception {handler.name} is looked at in its handler",
            "a handler for each class says which it was",
            s.frame.source.at(handler),
        )


def _tests_apart(node: ast.stmt) -> list[ast.stmt]:
    """An `if` whose test is a statement of its own, which may fail."""
    if not isinstance(node, ast.If):
        return [node]
    name = f"<test {node.lineno} {node.col_offset}>"
    test = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], node.test), node)
    read = ast.Name(name, ast.Load())
    made = ast.If(read, [], [])
    made.body, made.orelse = ([x for b in part for x in _tests_apart(b)] for part in (node.body, node.orelse))
    for part in (test.targets[0], read, made):
        ast.copy_location(part, node.test)
    return [test, ast.copy_location(made, node)]


def _handle(s: State, node: ast.Try, classes: Sequence[Sequence[type[BaseException]]]) -> None:
    """Run the handlers where something has been raised."""
    raised = s.flag(RAISED)
    s.bind(RAISED, v.Static(False))
    known = raised.value if isinstance(raised, v.Static) else s.block.truth(operand_of(s, raised))
    if known is False:
        return
    if known:
        _dispatch(s, node, classes, 0)
        return
    a, b = arms(s, operand_of(s, raised))
    run(a, lambda t: _dispatch(t, node, classes, 0))
    join(s, operand_of(s, raised), a, b, node=node)


def _dispatch(s: State, node: ast.Try, classes: Sequence[Sequence[type[BaseException]]], at: int) -> None:
    """The first handler, from one on, that catches what was raised."""
    if at == len(classes):
        s.bind(RAISED, v.Static(True))  # for a `try` around
        return
    code = s.env[EXCEPTION].value
    kinds = {k: _first(kind, classes) for k, kind in enumerate(s.context.raised)}
    kinds = {k: place for k, place in kinds.items() if place < len(classes) or is_caught(s, s.context.raised[k])}
    found = [k for k, place in kinds.items() if place == at]
    rest = [k for k, place in kinds.items() if place > at]
    if isinstance(code, v.Static):
        found, rest = [k for k in found if k == code.value], [k for k in rest if k == code.value]
    if not found:
        _dispatch(s, node, classes, at + 1)
    elif not rest:
        s.context.rules.execute(s, node.handlers[at].body)
    else:
        test = operand_of(s, traced(s, _is_one_of(tuple(found)), code))
        a, b = arms(s, test)
        run(a, lambda t: t.context.rules.execute(t, node.handlers[at].body))
        run(b, lambda t: _dispatch(t, node, classes, at + 1))
        join(s, test, a, b, node=node)


def _is_one_of(codes: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda code: functools.reduce(operator.or_, [code == k for k in codes])


def _first(kind: type[BaseException], classes: Sequence[Sequence[type[BaseException]]]) -> int:
    """The position of the handler that catches an exception; behind all where none does."""
    return next((k for k, found in enumerate(classes) if issubclass(kind, tuple(found))), len(classes))


def _finally(s: State, node: ast.Try) -> None:
    if not node.finalbody or s.dead:
        return
    flags = {name: s.env[name] for name in FLAGS if name in s.env}
    for name in flags:
        s.bind(name, v.Static(False))
    s.context.rules.execute(s, node.finalbody)
    if any(s.flag(name) != v.Static(False) for name in FLAGS):
        s.refuse("`finally` leaves the function or the loop that it is in", "do it behind the `try`")
    s.env |= flags


# ---- statements that may fail


def protected(s: State, node: ast.stmt, statement: Statement) -> None:
    """Run a statement of the body of a `try`."""
    if isinstance(node, ast.Match):
        s.refuse("`match` inside `try` cannot be compiled", "match behind it")
    _refuse_floats(s, node)
    t, around = s.fork(), s.frame.trying
    s.frame.trying = [] if isinstance(node, ast.For | ast.While) else around
    run(t, lambda u: statement(u, node))
    s.frame.trying = around
    if any(_caught(s, i) for i in t.block.body):
        _refuse_half_done(s, node)
    if heaps.is_changed(s, t) and any(_caught(s, i) for i in t.block.body):
        s.refuse("a statement in `try` may fail and changes memory", "put what may fail in a statement in front")
    _split(s, t, list(t.block.body), node)


def _refuse_floats(s: State, node: ast.stmt) -> None:
    """Refuse functions of `math`, which fail where the compiled ones give nan or inf."""
    if not is_caught(s, ValueError) and not is_caught(s, OverflowError):
        return
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math" | "cmath"))):
                pass
            case ast.Call(func=ast.Name(id=name)) if _is_of_math(s, name):
                pass
            case _:
                continue
        s.refuse(
            "a function of `math` in a `try` that catches what it fails with",
            "test its argument with `if`",
            s.frame.source.at(part),
        )


def _is_of_math(s: State, name: str) -> bool:
    held = s.frame.source.globals.get(name)
    return getattr(held, "__module__", None) in ("math", "cmath")


def _refuse_half_done(s: State, node: ast.stmt) -> None:
    """Refuse a statement that may have changed something when it fails: a handler would see that."""
    match node:
        case ast.Assign(targets=[target], value=value):
            plain = isinstance(target, ast.Name) or _of_names(target) or not _changes(value)
        case ast.AnnAssign(value=value) | ast.Expr(value=value) | ast.Return(value=value):
            plain = value is not None
        case ast.Assign() | ast.Delete(targets=[_, _, *_]):
            plain = False
        case _:
            value, plain = None, not _changes(node)
    root = value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    inner = [x for x in ast.iter_child_nodes(value) if x is not value] if value is not None and root is None else []
    inner = [*root.args, *root.keywords, root.func] if root is not None else inner
    if not plain or any(_changes(x) for x in inner) or isinstance(value, ast.NamedExpr):
        s.refuse("a statement in `try` may fail when it has changed something", "make a statement of each change")


def _of_names(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple | ast.List) and all(isinstance(x, ast.Name) for x in target.elts)


def _changes(node: ast.AST) -> bool:
    """Does an expression change a list or dict, or set a variable?"""
    return any(
        isinstance(n, ast.NamedExpr)
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in MUTATORS)
        for n in ast.walk(node)
    )


def _split(s: State, t: State, body: list[Instruction], node: ast.stmt) -> None:
    """Continue with the instructions of a statement, each behind what it needs to go well."""
    for position, instruction in enumerate(body):
        for inner in walk(Region((), (instruction,), ())):
            if inner is not instruction and _caught(s, inner) is not None:
                s.refuse(
                    "what `try` catches may fail inside a loop, a comprehension or a choice",
                    "put the `try` inside, around a statement",
                    inner.span,
                )
        kind = _caught(s, instruction)
        if kind is None:
            continue
        s.block.body += body[:position]
        assert isinstance(instruction, Apply)
        good, rest = _condition(s, instruction), body[position + (instruction.op.name == "check") :]
        if isinstance(good, Literal):
            if good.value:
                _split_rest(s, t, rest, node, instruction)
            else:
                raise_here(s, kind)
            return
        a, b = arms(s, good)
        _split_rest(a, t, rest, node, instruction)
        raise_here(b, kind)
        join(s, good, a, b)
        return
    s.block.body += body
    s.block.known |= t.block.known
    s.block.facts |= t.block.facts
    s.block.memo |= t.block.memo
    s.env, s.dead = t.env, t.dead


def _split_rest(s: State, t: State, body: list[Instruction], node: ast.stmt, done: Apply) -> None:
    """The instructions behind one whose condition holds."""
    if done.op.name == "check":
        _split(s, t, body, node)
        return
    first, *rest = body
    s.block.body.append(first)
    _split(s, t, rest, node)


def raise_here(s: State, kind: type[BaseException]) -> None:
    """Leave the body of the `try` with an exception."""
    kinds = s.context.raised
    if kind not in kinds:
        kinds.append(kind)
    s.bind(RAISED, v.Static(True))
    s.bind(EXCEPTION, v.Static(kinds.index(kind)))


def is_caught(s: State, kind: type[BaseException]) -> bool:
    return any(issubclass(kind, caught) for around in s.frame.trying for caught in around)


def _caught(s: State, instruction: Instruction) -> type[BaseException] | None:
    """What an instruction may fail with that the `try` catches; refused where that cannot be said."""
    if isinstance(instruction, Call):
        if is_caught(s, ValueError) or is_caught(s, OverflowError) or _may_fail(s, instruction.callee, set()):
            s.refuse(
                f"what `try` catches may fail in {instruction.callee}, which it calls",
                "put the `try` into the function, around the statement",
                instruction.span,
            )
        return None
    if not isinstance(instruction, Apply):
        return None
    kinds = [k for k in _kinds(s, instruction) if is_caught(s, k)]
    return kinds[0] if kinds else None


def _may_fail(s: State, callee: str, seen: set[str]) -> bool:
    """May something fail in a function, or in one that it calls, that the `try` catches? Of one that is being lowered
    nobody knows yet."""
    if any(x.name == callee and not x.done for x in s.context.specialisations.values()):
        return True
    seen.add(callee)
    inside = list(walk(s.context.functions[callee].region))
    called = {i.callee for i in inside if isinstance(i, Call)} - seen
    fails = any(_caught(s, i) is not None for i in inside if not isinstance(i, Call))
    return fails or any(_may_fail(s, name, seen) for name in sorted(called))


def _kinds(s: State, i: Apply) -> Iterable[type[BaseException]]:
    match i.op.name:
        case "check":
            name = i.op["kind"]
            if name == NO_ROOM:
                return []
            found = s.context.raisable.get(name) or getattr(builtins, name, None)
            return [found] if isinstance(found, type) and issubclass(found, Exception) else []
        case "item" | "bounds":
            return [IndexError]
        case "floordiv" | "mod" | "truediv":
            return [ZeroDivisionError] if all(_of_python(x) for x in i.operands) else []
        case "tag_index":
            return [KeyError]
        case "load" | "load_is_none":
            return [AttributeError] if s.block.fact(i.operands[0]).null else []
        case "length":
            held = i.operands[0].type
            return [TypeError] if isinstance(held, List) and held.store is not None else []
        case "reduce":
            return [ValueError]
        case name if not i.op.is_jax and OWN[name].fails:
            return [ValueError, TypeError, OverflowError, ZeroDivisionError]
        case _:
            return []


def _of_python(x: Operand) -> bool:
    return isinstance(x.type, Array) and is_python(x.type)


def _condition(s: State, i: Apply) -> Operand:
    """What must hold for an instruction to go well."""
    match i.op.name:
        case "check":
            return i.operands[0]
        case "item":
            items, index = i.operands
            assert isinstance(items.type, List)
            count = s.apply(own("length"), (items,), INT)
            return operand_of(s, traced(s, _in_range, v.Leaf(index), v.Leaf(count)))
        case "floordiv" | "mod" | "truediv":
            return operand_of(s, traced(s, operator.ne, v.Leaf(i.operands[1]), v.Static(0)))
        case name:
            s.refuse(
                f"what `try` catches may fail in an operation ({name}) that has no test of its own",
                "test for it with `if`",
                i.span,
            )


def _in_range(index: int, count: int) -> object:
    return (-count <= index) & (index < count)
