"""Expressions: one entry of `EXPRESSIONS` for each kind that can be compiled."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from autobatch.errors import UnsupportedError
from autobatch.frontend.library import priorities, sets, tables
from autobatch.frontend.library.joined import concatenate
from autobatch.frontend.library.stacking import transposed
from autobatch.frontend.library.texts import formatted
from autobatch.frontend.lowering import printing
from autobatch.frontend.lowering.access import expand, variable
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.attributes import attribute
from autobatch.frontend.lowering.branches import bool_expression, conditional_expression
from autobatch.frontend.lowering.comprehensions import (
    comprehension,
    dict_comprehension,
    nested_reduction,
    set_comprehension,
)
from autobatch.frontend.lowering.construct import of_base
from autobatch.frontend.lowering.functions import define
from autobatch.frontend.lowering.indexing import subscript
from autobatch.frontend.lowering.keywords import named_arguments
from autobatch.frontend.lowering.numbers import present
from autobatch.frontend.lowering.operators import BINARY, apply_binary, apply_unary, comparison
from autobatch.frontend.lowering.reductions import first_element
from autobatch.frontend.lowering.refusals import EXPRESSION_REFUSALS
from autobatch.frontend.lowering.sequences import sequence
from autobatch.frontend.lowering.state import Ended, LoweringState
from autobatch.frontend.memory.list_heap import copied, hold
from autobatch.frontend.memory.list_sites import is_given
from autobatch.frontend.memory.making import made_by
from autobatch.frontend.memory.mutation import call_method, set_default
from autobatch.frontend.memory.rebinding import rebind, refuse_change
from autobatch.frontend.syntax import beneath
from autobatch.frontend.syntax.beneath import refuse_given
from autobatch.frontend.syntax.iterators import refuse_kept, refuse_moving_views, refuse_second_reads
from autobatch.frontend.syntax.sources import changed_later
from autobatch.frontend.types import values as v


def evaluate(s: LoweringState, node: ast.expr) -> v.Abstract:
    """The abstract value of an expression."""
    if s.dead:
        raise Ended
    with s.at(node):
        rule = EXPRESSIONS.get(type(node))
        if rule is None:
            message, cure = EXPRESSION_REFUSALS.get(type(node), ("this expression cannot be compiled", ""))
            raise UnsupportedError(message, s.span, cure)
        value = rule(s, node)
        if isinstance(node, MAKING) or is_given(value):
            value = made_by(s, value, node)
    if s.dead:
        raise Ended
    return value


def _constant(s: LoweringState, node: ast.Constant) -> v.Abstract:
    return v.Static(node.value)


def _name(s: LoweringState, node: ast.Name) -> v.Abstract:
    value = variable(s, node.id)
    if isinstance(value, v.Optional) and value.unset:
        if node.id not in s.env:  # a variable of the function around this one
            return present(s, value, "NameError")
        value = present(s, value)
        s.bind(node.id, value, s.env[node.id].span)
    return value


def _attribute(s: LoweringState, node: ast.Attribute) -> v.Abstract:
    return attribute(s, s.evaluate(node.value), node.attr)


def _elements(s: LoweringState, nodes: list[ast.expr]) -> list[v.Abstract]:
    """The elements of a display; `*x` spreads a sequence of known length."""
    found = _parts(s, nodes)
    if any(not isinstance(part, v.Record) for part in found):
        s.refuse("`*` spreads only a sequence of known length here", "pass the list itself")
    return [x for part in found if isinstance(part, v.Record) for x in part.items]


def _parts(s: LoweringState, nodes: list[ast.expr]) -> list[v.Abstract]:
    """The elements of a display as lists behind one another: those written out, and those that `*` spreads."""
    parts: list[v.Abstract] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            parts.append(_record("list", [hold(s, s.evaluate(node))]))
            continue
        value = s.evaluate(node.value)
        found = sequence(s, value)
        if isinstance(found, v.Lazy) and isinstance(found.length, v.Static):
            parts.append(_record("list", [found.item(s, v.Static(k)) for k in range(found.length.value)]))
        else:
            parts.append(found if isinstance(found, v.Record) else value)
    for k in changed_later(nodes):
        parts[k] = _record("list", [hold(s, s.evaluate(nodes[k]))])
    return parts


def _tuple(s: LoweringState, node: ast.Tuple) -> v.Abstract:
    return _display(s, "tuple", node.elts)


def _list(s: LoweringState, node: ast.List) -> v.Abstract:
    return _display(s, "list", node.elts)


def _display(s: LoweringState, kind: Any, nodes: list[ast.expr]) -> v.Abstract:
    parts = _parts(s, nodes)
    if any(isinstance(x, v.Generator) for part in parts if isinstance(part, v.Record) for x in part.items):
        s.refuse("a generator is kept in a list or tuple here", "make a list of it: list(...)")
    made = concatenate(s, v.Record(kind, (), ()), *parts)
    return made if isinstance(made, v.Record | v.Listing) else s.context.rules.materialise(s, sequence(s, made))


def _record(kind: Any, items: list[v.Abstract]) -> v.Record:
    return v.Record(kind, tuple(range(len(items))), tuple(items))


def _set(s: LoweringState, node: ast.Set) -> v.Abstract:
    return sets.make_set(s, set, _elements(s, node.elts))


def _dict(s: LoweringState, node: ast.Dict) -> v.Abstract:
    made = v.Record("dict", (), ())
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            spread = expand(s, copied(s, s.evaluate(value)))
            if not isinstance(spread, v.Record) or spread.kind not in ("dict", "table"):
                s.refuse("`**` spreads only dicts", "write the keys out")
            made = tables.updated(s, made, spread)
            continue
        name = s.evaluate(key)
        made = tables.with_item(s, made, name, hold(s, s.evaluate(value)))
    return made


def _binary(s: LoweringState, node: ast.BinOp) -> v.Abstract:
    left = s.evaluate(node.left)
    right = s.evaluate(node.right)
    if changed_later([node.left, node.right]):
        left = s.evaluate(node.left)
    return apply_binary(s, BINARY[type(node.op)], left, right)


def _unary(s: LoweringState, node: ast.UnaryOp) -> v.Abstract:
    return apply_unary(s, node.op, s.evaluate(node.operand))


def _subscript(s: LoweringState, node: ast.Subscript) -> v.Abstract:
    value = s.evaluate(node.value)
    index = s.evaluate(node.slice)
    if not isinstance(value, v.Record) or not tables.has_default(value):
        return subscript(s, value, index)
    if not isinstance(node.value, ast.Name):
        words = "a defaultdict is read here that no variable holds"
        refuse_change(s, node.value, words, "give it a name, or read it with .get()", value)
    found = tables.get_or_make(s, value, index)
    rebind(s, node.value.id, tables.store(s, value, index, found))
    return found


def _slice(s: LoweringState, node: ast.Slice) -> v.Abstract:
    bounds = [v.Static(None) if n is None else s.evaluate(n) for n in (node.lower, node.upper, node.step)]
    if all(isinstance(b, v.Static) for b in bounds):
        return v.Static(slice(*(b.value for b in bounds if isinstance(b, v.Static))))
    return v.Record("object", ("start", "stop", "step"), tuple(bounds), slice)


def _call(s: LoweringState, node: ast.Call) -> v.Abstract:
    if (result := beneath.reduced(s, node)) is not None:
        return result
    if (nested := nested_reduction(s, node)) is not None:
        return s.evaluate(nested)
    if (element := first_element(s, node)) is not None:
        return element
    function = s.evaluate(node.func)
    if function == v.Static(print):
        return printing.call(s, node)
    if function == v.Static(zip) and (columns := _zipped(s, node)) is not None:
        return columns
    if (held := set_default(s, node, function)) is not None:
        return held
    refuse_second_reads(s, function, node.args)
    refuse_moving_views(s, function, node.args)
    given = beneath.ended(s, node, lambda: _arguments(s, function, node.args))
    if not isinstance(given, list):
        return given
    items = given
    named = named_arguments(s, node.keywords)
    for k in changed_later(node.args, [x.value for x in node.keywords]) if node.keywords else ():
        items[k] = s.evaluate(node.args[k])
    if s.dead:
        raise Ended
    changed = of_base(s, function, items, named)
    changed = call_method(s, node, function, items, named) if changed is None else changed
    changed = priorities.call(s, node, function, items, named) if changed is None else changed
    result = changed if changed is not None else s.call(function, items, named)
    refuse_given(s, node, function)
    return result


def _zipped(s: LoweringState, node: ast.Call) -> v.Abstract | None:
    """`zip(*rows)` where the number of rows is data."""
    match node:
        case ast.Call(args=[ast.Starred(value=rows)], keywords=[]):
            take_back = s.mark()
            found = sequence(s, s.evaluate(rows))
            if isinstance(found, v.Lazy) and not isinstance(found.length, v.Static):
                return transposed(s, found)
            take_back()
    return None


def _arguments(s: LoweringState, function: v.Abstract, nodes: list[ast.expr]) -> list[v.Abstract]:
    """Positional arguments. `max(*xs, y)` is `max([*xs, y])`, whatever the length of `xs`."""
    if function in (v.Static(min), v.Static(max)) and any(isinstance(n, ast.Starred) for n in nodes):
        return [concatenate(s, *_parts(s, nodes))]
    return _elements(s, nodes)


def _walrus(s: LoweringState, node: ast.NamedExpr) -> v.Abstract:
    value = s.evaluate(node.value)
    refuse_kept(s, node, value)
    assign(s, node.target, value)
    return value


def _string(s: LoweringState, node: ast.JoinedStr) -> v.Abstract:
    return formatted(s, node)


MAKING = (ast.List, ast.ListComp, ast.BinOp, ast.Call, ast.Subscript, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)
"""The expressions that may make a list or dict."""
EXPRESSIONS: dict[type[ast.expr], Callable[[LoweringState, Any], v.Abstract]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Dict: _dict,
    ast.Set: _set,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: bool_expression,
    ast.Compare: comparison,
    ast.IfExp: conditional_expression,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.Lambda: define,
    ast.NamedExpr: _walrus,
    ast.ListComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: dict_comprehension,
    ast.SetComp: set_comprehension,
    ast.JoinedStr: _string,
}
