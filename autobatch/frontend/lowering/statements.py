"""Statements: one entry of `STATEMENTS` for each kind that can be compiled, one message for each that cannot."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autobatch.errors import UnsupportedError
from autobatch.frontend.lowering.assignment import assign, augment, delete
from autobatch.frontend.lowering.branches import guarded, if_statement, leaving
from autobatch.frontend.lowering.calls import capture
from autobatch.frontend.lowering.contexts import with_statement
from autobatch.frontend.lowering.exceptions import protected, try_statement
from autobatch.frontend.lowering.failures import assert_statement, raise_statement
from autobatch.frontend.lowering.functions import define
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.loops import for_statement, while_statement
from autobatch.frontend.lowering.patterns import match_statement
from autobatch.frontend.lowering.refusals import STATEMENT_REFUSALS
from autobatch.frontend.lowering.state import BROKE, CONTINUED, RESULT, RETURNED, LoweringState
from autobatch.frontend.syntax.flattening import with_test_apart
from autobatch.frontend.syntax.iterators import refuse_kept, refuse_late_reads
from autobatch.frontend.syntax.scopes import is_cell
from autobatch.frontend.types import values as v
from autobatch.ir.core import Operand


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
    value = _captured(s, value)
    if not s.dead:
        s.bind(RESULT, value)
        s.bind(RETURNED, v.Static(True))


def _captured(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value in which local functions hold the variables that they read: they outlive the function."""
    match value:
        case v.LocalFunction():
            return capture(s, value)
        case v.Record(kind="tuple" | "list" | "dict", items=items):
            held = tuple(_captured(s, x) for x in items)
            return value if all(x is y for x, y in zip(held, items, strict=True)) else replace(value, items=held)
        case _:
            return value


def _only_none_left(s: LoweringState) -> bool:
    """Have tests ruled out every class of some object? Then only None comes here, where no case was written for it."""
    seen: set[Operand] = set()
    for block in s.block.chain():
        for operand, fact in block.facts.items():
            if operand not in seen and fact.tested and not fact.classes:
                return True
            seen.add(operand)
    return False


def _assign(s: LoweringState, node: ast.Assign) -> None:
    refuse_late_reads(s, node)
    value = s.evaluate(node.value)
    refuse_kept(s, node, value)
    for target in node.targets:
        assign(s, target, value)


def _annotated(s: LoweringState, node: ast.AnnAssign) -> None:
    if node.value is not None:
        value = s.evaluate(node.value)
        refuse_kept(s, node, value)
        assign(s, node.target, value)


def _flag(name: str) -> Callable[[LoweringState, Any], None]:
    def rule(s: LoweringState, node: ast.stmt) -> None:
        s.bind(name, v.Static(True))

    return rule


def _define(s: LoweringState, node: ast.FunctionDef) -> None:
    s.bind(node.name, define(s, node))


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
    ast.Nonlocal: _nonlocal,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
}
