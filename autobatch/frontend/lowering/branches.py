"""Truth, `if`, conditional expressions, `and`/`or`/`not`; what follows a branch that some path has left.

The statements behind an `if` are never duplicated: they belong to the arm that goes on when the other one leaves
(returns, fails), and follow the join when both go on. Where only some paths of an arm leave, flags say so, and the
rest runs under `not flag`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autobatch.frontend.library.strings import tag_equal
from autobatch.frontend.lowering.attributes import (
    alternatives,
    attribute,
    class_list,
    classes_of,
    fields_of,
    forms_of,
    is_none,
    is_stack,
    may_be_none,
)
from autobatch.frontend.lowering.joins import arms, attempt, conditional, join
from autobatch.frontend.lowering.numbers import combine, negate, note_connected, present, refuse_made, traced
from autobatch.frontend.lowering.selection import apply_choice
from autobatch.frontend.lowering.sequences import length
from autobatch.frontend.lowering.state import FLAGS, Ended, LoweringState, UnknownResult, hand_out, note_contents
from autobatch.frontend.lowering.unions import by_type
from autobatch.frontend.memory import heaps
from autobatch.frontend.types import values as v
from autobatch.frontend.types.specialisation import decided
from autobatch.frontend.types.statics import container_kind, inputs
from autobatch.ir.core import BOOL, Apply, Array, List, Operand, Ref, Tag, Value
from autobatch.ir.ops import OWN

Body = Callable[[LoweringState], None]
BodyAndRest = Callable[[LoweringState, Sequence[ast.stmt]], None]


def truth(s: LoweringState, value: v.Abstract) -> bool | Operand:
    """The truth of a value: known, or a bool operand."""
    refuse_made(s, value)
    if alternatives(s, value):
        return truth(s, by_type(s, value, lambda t, x: _as_value(truth(t, x)), v.Static(False)))
    if (method := _truth_method(s, value)) is not None:
        return _truth_by_method(s, value, method)
    match value:
        case v.Choice():
            return truth(s, apply_choice(s, value, lambda t, x: _as_value(truth(t, x))))
        case v.Static(value=held):
            note_contents(s.context, value)
            if container_kind(held) is None:
                hand_out(s.context, held)
            return bool(held)
        case _ if is_stack(s, value):
            s.refuse("the truth of an array is ambiguous", "use jnp.any(...), jnp.all(...) or len(...)")
        case v.Optional(value=inner, missing=missing, unset="") if s.block.truth(missing) is not False:
            there = negate(s, missing)
            kept = conditional(s, there, lambda t: _as_value(truth(t, inner)), lambda t: v.Static(False))
            return truth(s, kept)
        case v.Optional():
            return truth(s, present(s, value))
        case v.Leaf(operand=operand) if forms_of(s, value) is not None:
            there = is_none(s, operand, negated=True)
            return truth(s, both(s, there, lambda t: traced(t, _positive, length(t, value))))
        case v.Leaf() if isinstance(value.type, Ref) and (parts := fields_of(s, value)) is not None and not parts.items:
            return False
        case v.MemoryRow(heap=heap) if heap.in_segments or heap.is_record:
            some = negate(s, heaps.missing(s, value))
            return truth(s, both(s, some, lambda t: traced(t, _positive, length(t, replace(value, null=False)))))
        case v.MemoryRow():
            return _as_truth(s, negate(s, heaps.missing(s, value)))
        case v.Leaf(operand=operand):
            return _truth_of_leaf(s, operand)
        case v.Record(kind="tuple" | "list" | "dict" | "namedtuple", items=items):
            return bool(items)
        case v.Record(kind="table", items=items):
            return truth(s, items[0])
        case v.Listing() | v.Lazy():
            return truth(s, traced(s, _positive, length(s, value)))
        case _:
            return True


def _truth_method(s: LoweringState, value: v.Abstract) -> str | None:
    """`__bool__` or `__len__`, where the classes of the user that an object may have define it."""
    classes: list[type | None] = []
    match value:
        case v.Record(kind="object" | "namedtuple", cls=cls):
            classes = [cls]
        case v.MemoryRow():
            classes = list(heaps.classes_of(s, value))
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            classes = [class_list(s, operand.type)[c].cls for c in sorted(classes_of(s, value))]
        case v.Static(value=held) if inputs(held):
            classes = [type(held)]
    asked = [next((m for m in ("__bool__", "__len__") if _is_written(c, m)), None) for c in classes]
    if len(set(asked)) > 1:
        s.refuse(
            "the truth of an object whose classes tell it differently", "test with isinstance() or `is not None` first"
        )
    return asked[0] if asked else None


def _is_written(cls: type | None, method: str) -> bool:
    return cls is not None and inspect.isfunction(inspect.getattr_static(cls, method, None))


def _truth_by_method(s: LoweringState, value: v.Abstract, method: str) -> bool | Operand:
    def asked(t: LoweringState) -> v.Abstract:
        return _as_value(truth(t, t.call(attribute(t, value, method), [])))

    if isinstance(value, v.MemoryRow):
        there = negate(s, heaps.missing(s, value))
    elif isinstance(value, v.Leaf):
        there = is_none(s, value.operand, negated=True)
    else:
        return truth(s, asked(s))
    known = s.block.truth(there)
    if known is not None:
        return truth(s, asked(s)) if known else False
    return truth(s, conditional(s, there, asked, lambda t: v.Static(False)))


def _as_truth(s: LoweringState, condition: Operand) -> bool | Operand:
    known = s.block.truth(condition)
    return condition if known is None else known


def _as_value(truth_: bool | Operand) -> v.Abstract:
    return v.Static(truth_) if isinstance(truth_, bool) else v.Leaf(truth_)


def _truth_of_leaf(s: LoweringState, operand: Operand) -> bool | Operand:
    type = operand.type
    if isinstance(type, Array):
        if not type.is_scalar:
            s.refuse(f"the truth of an array of shape {type.shape} is ambiguous", "use jnp.any(...) or jnp.all(...)")
        if type.is_bool and operand in s.context.integers:
            return decided(s, operand)  # two programs at most, and each without the other's arm
        result = operand if type.is_bool else traced(s, _nonzero, v.Leaf(operand)).operand
    elif isinstance(type, Ref):
        result = is_none(s, operand, negated=True)
    elif isinstance(type, List):

        def holds(t: LoweringState) -> v.Leaf:
            return traced(t, _positive, length(t, v.Leaf(operand)))

        if not s.block.fact(operand).null or not may_be_none(s, type):
            result = holds(s).operand
        else:
            found = truth(s, conditional(s, is_none(s, operand, negated=True), holds, lambda t: v.Static(False)))
            if isinstance(found, bool):
                return found
            result = found
    else:
        assert isinstance(type, Tag)
        if type.vocabulary != "str":
            s.refuse("the truth of an enum member cannot be compiled", "compare it with a member")
        result = negate(s, tag_equal(s, operand, v.Static("")))
    known = s.block.truth(result)
    return known if known is not None else result


def _nonzero(x: object) -> object:
    return x != 0


def _positive(x: int) -> bool:
    return x > 0


def if_statement(s: LoweringState, node: ast.If, rest: Sequence[ast.stmt]) -> None:
    """`if`, with the statements behind it."""
    with s.at(node.test):
        test = condition(s, node.test)
    execute = s.context.rules.execute
    branch_on(s, test, lambda t: execute(t, node.body), lambda t, tail: execute(t, [*node.orelse, *tail]), rest, node)


def branch_on(
    s: LoweringState,
    condition: bool | Operand,
    then: Body,
    orelse: BodyAndRest,
    rest: Sequence[ast.stmt],
    node: ast.stmt,
) -> None:
    """Run one of two pieces of code, then `rest`, which `orelse` takes along when the first one leaves."""
    execute = s.context.rules.execute
    if condition is False:
        orelse(s, rest)
        return
    if condition is True:
        then(s)
        execute(s, rest)
        return
    assert not isinstance(condition, bool)
    a, b = arms(s, condition)
    last = rest[-1] if rest else node
    run(a, then)
    if a.left:
        run(b, lambda t: orelse(t, rest))
        rest = ()
    else:
        run(b, lambda t: orelse(t, ()))
    if b.left and not a.left:
        run(a, lambda t: execute(t, rest))
        rest = ()
    with s.at(node):
        join(s, condition, a, b, node=node if rest else last)
    execute(s, rest)


def run(s: LoweringState, body: Body) -> None:
    """Execute the code of one arm; it ends where a result is not known yet."""

    def nothing(t: LoweringState) -> v.Abstract:
        body(t)
        return v.Static(None)

    attempt(s, nothing)


def leaving(s: LoweringState) -> Operand | None:
    """A bool that says whether some path has left the statements at hand; None when none has."""
    found = [f.operand for name in FLAGS if isinstance(f := s.flag(name), v.Leaf)]
    found = [f for f in found if s.block.truth(f) is not False]
    if not found:
        return None
    result = found[0]
    for other in found[1:]:
        result = combine(s, "or", result, other)
    return result


def guarded(s: LoweringState, rest: Sequence[ast.stmt]) -> None:
    """The rest of a block that some paths have left already."""
    left = leaving(s)
    assert left is not None
    guarded_by(s, left, lambda t: t.context.rules.execute(t, rest), rest[-1])


def guarded_by(s: LoweringState, left: Operand, body: Body, node: ast.AST) -> None:
    """Run code where some flag is false."""
    a, b = arms(s, left)
    run(b, body)
    with s.at(node):
        join(s, left, a, b, node=node)


def conditional_expression(s: LoweringState, node: ast.IfExp) -> v.Abstract:
    test = condition(s, node.test)
    if isinstance(test, bool):
        return s.evaluate(node.body if test else node.orelse)
    places = (s.frame.source.at(node.body), s.frame.source.at(node.orelse))
    return conditional(s, test, lambda t: t.evaluate(node.body), lambda t: t.evaluate(node.orelse), places)


def bool_expression(s: LoweringState, node: ast.BoolOp) -> v.Abstract:
    """`a and b`, `a or b`: the value of the last operand evaluated."""
    return _short_circuit(s, isinstance(node.op, ast.And), node.values)


def _short_circuit(s: LoweringState, conjunction: bool, nodes: Sequence[ast.expr]) -> v.Abstract:
    first = s.evaluate(nodes[0])
    if len(nodes) == 1:
        return first
    condition = truth(s, first)
    if isinstance(condition, bool):
        return _short_circuit(s, conjunction, nodes[1:]) if condition is conjunction else first
    a, b = arms(s, condition)
    live = a if conjunction else b
    try:
        rest = _short_circuit(live, conjunction, nodes[1:])
    except Ended:
        live.dead = True
        rest = first
    except UnknownResult:
        s.frame.unknown = True
        return first
    if is_bool(first) and is_bool(rest) and harmless(live, s.env):
        s.block.body += live.block.body
        return v.Leaf(combine(s, "and" if conjunction else "or", condition, operand(s, rest)))
    return join(s, condition, a, b, [(rest, first) if conjunction else (first, rest)])[0]


def is_bool(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return isinstance(value.value, bool)
    return isinstance(value, v.Leaf) and value.operand.type == BOOL


def operand(s: LoweringState, value: v.Abstract) -> Operand:
    if isinstance(value, v.Static):
        return s.scalar(value.value)
    assert isinstance(value, v.Leaf), "the truth of a condition"
    return value.operand


def condition(s: LoweringState, node: ast.expr) -> bool | Operand:
    """The truth of an expression. In `and`, `or` and `not` only truth matters, so operands of any types may meet."""
    with s.at(node):
        match node:
            case ast.BoolOp(op=op, values=values):
                return _fold_conditions(s, isinstance(op, ast.And), values)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                held = condition(s, inner)
                return not held if isinstance(held, bool) else negate(s, held)
            case _:
                return truth(s, s.evaluate(node))


def _fold_conditions(s: LoweringState, conjunction: bool, nodes: Sequence[ast.expr]) -> bool | Operand:
    first = condition(s, nodes[0])
    if len(nodes) == 1 or (first is not conjunction and isinstance(first, bool)):
        return first
    if isinstance(first, bool):
        return _fold_conditions(s, conjunction, nodes[1:])
    rest = lambda t: _as_value(_fold_conditions(t, conjunction, nodes[1:]))
    return truth(s, (both if conjunction else either)(s, first, rest))


def both(s: LoweringState, first: Operand, rest: Callable[[LoweringState], v.Abstract]) -> v.Abstract:
    """`first and rest()`, the rest evaluated only where the first holds, or where it does no harm."""
    return _connect(s, True, first, rest)


def either(s: LoweringState, first: Operand, rest: Callable[[LoweringState], v.Abstract]) -> v.Abstract:
    """`first or rest()`, likewise."""
    return _connect(s, False, first, rest)


def _connect(
    s: LoweringState, conjunction: bool, first: Operand, rest: Callable[[LoweringState], v.Abstract]
) -> v.Abstract:
    t, other = s.fork(), s.fork()
    t.assume(first, conjunction)
    other.assume(first, not conjunction)
    value: bool | Operand = conjunction

    def run_rest(u: LoweringState) -> None:
        nonlocal value
        value = truth(u, rest(u))

    run(t, run_rest)
    decided = v.Static(not conjunction)
    if not harmless(t, s.env):
        pair = (_as_value(value), decided)
        a, b = (t, other) if conjunction else (other, t)
        (found,) = join(s, first, a, b, [pair if conjunction else pair[::-1]])
        if isinstance(found, v.Leaf) and isinstance(found.operand, Value) and isinstance(value, Value):
            note_connected(s, found.operand, "and" if conjunction else "or", first, value)
        return found
    if value is not conjunction and isinstance(value, bool):
        return decided
    s.block.body += t.block.body
    return v.Leaf(first if isinstance(value, bool) else combine(s, "and" if conjunction else "or", first, value))


def harmless(s: LoweringState, before: Mapping[str, v.BoundVariable]) -> bool:
    """May the code run where Python would not run it? Nothing in it fails, loops or calls, and no variable has become
    another one, as `xs` would by `xs.append(1)`."""
    same = len(s.env) == len(before) and all(before.get(name) is bound for name, bound in s.env.items())
    return same and not s.dead and all(isinstance(i, Apply) and not can_fail(s, i) for i in s.block.body)


def can_fail(s: LoweringState, instruction: Apply) -> bool:
    """Can an example fail in an operation? None has no length."""
    if instruction.op.is_jax:
        return False
    if instruction.op.name == "length":
        return may_be_none(s, instruction.operands[0].type)
    return OWN[instruction.op.name].fails


def not_expression(s: LoweringState, value: v.Abstract) -> v.Abstract:
    condition = truth(s, value)
    return v.Static(not condition) if isinstance(condition, bool) else v.Leaf(negate(s, condition))
