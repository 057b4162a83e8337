"""`try`: what a statement of its body can fail with, and a handler catches, is a branch.

    try:                                    %ok = 0 <= k < len(xs)
        s = s + xs[k]                       if %ok:  s = s + item(xs, k)
    except IndexError:              ->      else:    <raised> = True, <exception> = 0
        s = s + 1.0                         if <raised>: s = s + 1.0

Which statements fail, and where, is the business of `protected.py`. `<raised>` is a flag as `<returned>` is one: the
statements behind it run where it is not set. A loop that it leaves carries it; a function that the body calls hands it
back, with the exception: a number that stands for its class, and what it was made with, where a handler looks at it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autobatch.frontend.lowering.branches import run
from autobatch.frontend.lowering.joins import arms, join
from autobatch.frontend.lowering.numbers import operand_of
from autobatch.frontend.lowering.raising import EXCEPTION, among, exception, is_caught
from autobatch.frontend.lowering.state import FLAGS, RAISED, RESULT, RETURNED, LoweringState
from autobatch.frontend.types import values as v


def try_statement(s: LoweringState, node: ast.Try) -> None:
    """`try: ... except ...: ... else: ... finally: ...`"""
    classes = [_classes(s, h) for h in node.handlers]
    s.bind(RAISED, v.Static(False))
    s.frame.trying.append(tuple(x for found in classes for x in found))
    try:
        s.context.rules.execute(s, node.body)
    finally:
        s.frame.trying.pop()
    if not s.dead and not s.left:
        s.context.rules.execute(s, node.orelse)
    if not s.dead:
        _handle(s, node, classes)
    _finally(s, node)


def _classes(s: LoweringState, handler: ast.ExceptHandler) -> list[type[BaseException]]:
    if handler.type is None:
        return [BaseException]
    found = s.evaluate(handler.type)
    held = list(found.items) if isinstance(found, v.Record) else [found]
    kinds = [x.value for x in held if isinstance(x, v.Static)]
    kinds = [k for kind in kinds for k in (kind if isinstance(kind, tuple) else (kind,))]
    if len(kinds) < len(held) or not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
        s.refuse("a handler catches what is no class of exceptions", "name the classes")
    return kinds


def _handle(s: LoweringState, node: ast.Try, classes: Sequence[Sequence[type[BaseException]]]) -> None:
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
    join(s, operand_of(s, raised), a, b, node=_behind(node))


def _behind(node: ast.Try) -> ast.stmt:
    """The statement behind which is read what may be read behind the handlers: `finally` is, too."""
    return node.body[-1] if node.finalbody else node


def _dispatch(s: LoweringState, node: ast.Try, classes: Sequence[Sequence[type[BaseException]]], at: int) -> None:
    """The first handler, from one on, that catches what was raised."""
    if at == len(classes):
        s.bind(RAISED, v.Static(True))  # for a `try` around
        return
    code = s.env[EXCEPTION].value
    kinds = {k: _first(kind, classes) for k, kind in enumerate(s.context.memory.raised)}
    kinds = {k: place for k, place in kinds.items() if place < len(classes) or is_caught(s, s.context.memory.raised[k])}
    found = [k for k, place in kinds.items() if place == at]
    rest = [k for k, place in kinds.items() if place > at]
    if isinstance(code, v.Static):
        found, rest = [k for k in found if k == code.value], [k for k in rest if k == code.value]
    handler = node.handlers[at]
    among(
        s,
        found,
        rest,
        _behind(node),
        lambda t: _run_handler(t, handler, found),
        lambda t: _dispatch(t, node, classes, at + 1),
    )


def _run_handler(s: LoweringState, handler: ast.ExceptHandler, found: Sequence[int]) -> None:
    """A handler, for exceptions of some kinds. Where it looks at the exception, it is run for each kind apart."""
    looked_at = handler.name is not None and handler.name in stores_and_loads(handler)
    if looked_at and len(found) > 1:
        one, rest = found[:1], found[1:]
        among(s, one, rest, handler, lambda t: _run_handler(t, handler, one), lambda t: _run_handler(t, handler, rest))
        return
    held = f"<handled {handler.lineno}>"
    s.bind(held, s.env[EXCEPTION].value)
    around, s.frame.handling = s.frame.handling, (held, tuple(found), handler.name)
    try:
        if looked_at:
            assert handler.name is not None
            s.bind(handler.name, exception(s, s.context.memory.raised[found[0]]))
        s.context.rules.execute(s, handler.body)
        if looked_at and not s.dead:
            s.bind(handler.name or "", v.Unset(handler.name or ""))  # as in Python
    finally:
        s.frame.handling = around


def stores_and_loads(handler: ast.ExceptHandler) -> frozenset[str]:
    """The variables that the statements of a handler name, but where they only raise what it caught again."""
    again = {n.exc for b in handler.body for n in ast.walk(b) if isinstance(n, ast.Raise)}
    again |= {n.cause for b in handler.body for n in ast.walk(b) if isinstance(n, ast.Raise)}
    found = (n for b in handler.body for n in ast.walk(b) if n not in again)
    return frozenset(n.id for n in found if isinstance(n, ast.Name))


def _first(kind: type[BaseException], classes: Sequence[Sequence[type[BaseException]]]) -> int:
    """The position of the handler that catches an exception; behind all where none does."""
    return next((k for k, found in enumerate(classes) if issubclass(kind, tuple(found))), len(classes))


_KEPT = "<result, in finally>"


def _finally(s: LoweringState, node: ast.Try) -> None:
    if not node.finalbody or s.dead:
        return
    flags = {name: s.env[name] for name in FLAGS if name in s.env}
    if RESULT in s.env and s.flag(RETURNED) != v.Static(False):
        s.bind(_KEPT, s.env[RESULT].value)  # what is returned is changed too
    for name in flags:
        s.bind(name, v.Static(False))
    s.context.rules.execute(s, node.finalbody)
    s.env.pop(_KEPT, None)
    if any(s.flag(name) != v.Static(False) for name in FLAGS):
        s.refuse("`finally` leaves the function or the loop that it is in", "do it behind the `try`")
    s.env |= flags
