"""`raise` and `assert`: the example fails, its neighbours do not."""

from __future__ import annotations

import ast

from autobatch.frontend.lowering.branches import condition as holds
from autobatch.frontend.lowering.exceptions import EXCEPTION, is_caught, raise_again, raise_here
from autobatch.frontend.lowering.joins import arms, join
from autobatch.frontend.lowering.key_order import hand_out
from autobatch.frontend.lowering.numbers import operand_of
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.ir.core import Operand
from autobatch.ir.types import Array, Tag


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
        raise_here(s, cls, [s.evaluate(a) for a in args] if cls in s.context.memory.looked_at or args else [])
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
