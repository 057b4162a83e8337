"""Statements in the body of a `try`: each is cut where it may fail with what the `try` catches.

    s = f(xs[k])                         %ok = 0 <= k < len(xs)
                                         if %ok:
                              ->             %2 = item(xs, k)
                                             s = call f(%2)
                                         else:
                                             <raised> = True, <exception> = 0

A statement is lowered as ever; its instructions are then cut at the first one that may fail so, and those behind it
belong to the arm in which it does not. Where it fails the variables are what they were when that instruction was
written. What may fail inside an expression that is evaluated in part, or more than once, is put in front of it as
statements, where that can be (`flattening.py`).
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterable, Sequence

from autobatch.frontend.library.texts import text
from autobatch.frontend.lowering.branches import run
from autobatch.frontend.lowering.joins import arms, join
from autobatch.frontend.lowering.numbers import negate, operand_of, traced
from autobatch.frontend.lowering.raising import HANDED_ON, is_caught, raise_here, raise_on
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps
from autobatch.frontend.syntax.flattening import flattened, with_test_inside
from autobatch.frontend.syntax.sources import MUTATORS
from autobatch.frontend.types import values as v
from autobatch.ir import texts
from autobatch.ir.capacity import NO_ROOM
from autobatch.ir.core import Apply, Call, Instruction, Literal, Operand, Region, Value, walk
from autobatch.ir.ops import OWN, own
from autobatch.ir.types import BOOL, INT, Array, List

Statement = Callable[[LoweringState, ast.stmt], None]


def protected(s: LoweringState, node: ast.stmt, statement: Statement) -> None:
    """Run a statement of the body of a `try`, or of a function that is called there."""
    if isinstance(node, ast.While):
        node = with_test_inside(s, node)
    t = s.fork()
    run(t, lambda u: statement(u, node))
    inside = _caught_inside(s, t.block.body)
    if inside is not None:
        simpler = flattened(s, node)
        if simpler is None:
            s.refuse(
                "what `try` catches may fail inside a loop, a comprehension or a choice",
                "make a statement of it, or put the `try` inside",
                inside.span,
            )
        s.context.rules.execute(s, simpler)
        return
    if not isinstance(node, ast.For | ast.While):
        _refuse_half_done(s, t, node)
    _split(s, t, list(t.block.body))


def _caught_inside(s: LoweringState, body: Sequence[Instruction]) -> Instruction | None:
    """What may fail, and is caught, inside another instruction, where no statement has seen to it."""
    for instruction in body:
        for inner in walk(Region((), (instruction,), ())):
            if inner is not instruction and _caught(s, inner) is not None:
                return inner
    return None


def _refuse_half_done(s: LoweringState, t: LoweringState, node: ast.stmt) -> None:
    """Refuse a statement that may have changed something when it fails, where it is not known what."""
    if all(id(i) in s.context.caught.before or _caught(s, i) is None for i in t.block.body):
        return
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
    changes = not plain or any(_changes(x) for x in inner) or isinstance(value, ast.NamedExpr)
    if changes or heaps.is_changed(s, t):
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


def _split(s: LoweringState, t: LoweringState, body: list[Instruction]) -> None:
    """Continue with the instructions of a statement, each behind what it needs to go well."""
    for position, instruction in enumerate(body):
        kind = _caught(s, instruction)
        if kind is None:
            continue
        assert isinstance(instruction, Apply)
        s.block.body += body[:position]
        good, rest = _condition(s, instruction), body[position + (instruction.op.name == "check") :]
        _, before = s.context.caught.before.get(id(instruction), (None, s.env))
        if isinstance(good, Literal) and good.value:
            _split_rest(s, t, rest, instruction)
            return
        a, b = arms(s, good)
        b.env = dict(before)
        if isinstance(good, Literal):
            s.env = b.env
            _raise(s, instruction, kind)
            return
        _split_rest(a, t, rest, instruction)
        _raise(b, instruction, kind)
        join(s, good, a, b)
        return
    s.block.body += body
    s.block.known |= t.block.known
    s.block.facts |= t.block.facts
    s.block.memo |= t.block.memo
    s.env, s.dead = t.env, t.dead


def _raise(s: LoweringState, failed: Apply, kind: type[BaseException]) -> None:
    if failed.op.name == "check" and failed.op["kind"] == HANDED_ON:
        raise_on(s, failed)
    else:
        raise_here(s, kind, _given(failed, kind))


def _given(failed: Apply, kind: type[BaseException]) -> list[v.Abstract] | None:
    """What the exception was made with, of an operation that has failed; None where that is not known."""
    if failed.op.name != "check":
        return None
    message, operands = failed.op["message"], failed.operands[1:]
    if issubclass(kind, KeyError):
        return _key(message, operands)
    if operands:
        return None
    return [v.Static(message.replace("{{", "{").replace("}}", "}"))] if message else []


def _key(message: str, operands: Sequence[Operand]) -> list[v.Abstract] | None:
    """The key that a KeyError names, from its words: `{}`, `({}, {})`, `'left'`."""
    leaves: list[v.Abstract] = [v.Leaf(x) for x in operands]
    if operands and message == "{}":
        return leaves
    if operands and message == f"({', '.join('{}' for _ in operands)})":
        return [v.Record("tuple", tuple(range(len(leaves))), tuple(leaves))]
    try:
        return None if operands else [v.Static(ast.literal_eval(message.replace("{{", "{").replace("}}", "}")))]
    except (ValueError, SyntaxError):
        return None


def _split_rest(s: LoweringState, t: LoweringState, body: list[Instruction], done: Apply) -> None:
    """The instructions behind one whose condition holds."""
    if done.op.name != "check":
        first, *body = body
        s.block.body.append(first)
        s.context.caught.handled[id(first)] = first
    _split(s, t, body)


def _caught(s: LoweringState, instruction: Instruction) -> type[BaseException] | None:
    """What an instruction may fail with that the `try` catches; refused where that cannot be said."""
    if id(instruction) in s.context.caught.handled:
        return None
    if isinstance(instruction, Call):
        if instruction.callee not in s.context.caught.guarded and _may_fail(s, instruction.callee, set()):
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


def _may_fail(s: LoweringState, callee: str, seen: set[str]) -> bool:
    """May something fail in a function, or in one that it calls, that the `try` catches? Of one that is being lowered
    nobody knows yet."""
    if any(x.name == callee and not x.done for x in s.context.specialisations.values()):
        return True
    seen.add(callee)
    inside = list(walk(s.context.functions[callee].region))
    called = {i.callee for i in inside if isinstance(i, Call)} - seen
    fails = any(_caught(s, i) is not None for i in inside if not isinstance(i, Call))
    return fails or any(_may_fail(s, name, seen) for name in sorted(called))


def _kinds(s: LoweringState, i: Apply) -> Iterable[type[BaseException]]:
    match i.op.name:
        case "check":
            name = i.op["kind"]
            if name == NO_ROOM:
                return []
            if name == HANDED_ON:
                return [s.frame.trying[0][0]]
            found = s.context.raisable.get(name) or getattr(builtins, name, None)
            return [found] if isinstance(found, type) and issubclass(found, Exception) else []
        case "item" | "bounds":
            return [IndexError]
        case "tag_index":
            return [KeyError]
        case "load" | "load_is_none":
            return [AttributeError] if s.block.fact(i.operands[0]).null else []
        case "length":
            held = i.operands[0].type
            return [TypeError] if isinstance(held, List) and held.store is not None else []
        case "reduce":
            return [ValueError] if i.op["kind"] in ("max", "min") else []
        case "text":
            return _kinds_of_text(i)
        case name if not i.op.is_jax and OWN[name].fails:
            return [ValueError, TypeError, OverflowError, ZeroDivisionError]
        case _:
            return []


def _kinds_of_text(i: Apply) -> list[type[BaseException]]:
    function, args = i.op["function"], i.op["args"]
    if not texts.may_fail(function, args, [isinstance(x.type, Array) for x in i.operands]):
        return []
    kind, _ = texts.WHAT_FAILS.get(function, ("ValueError", ""))
    return [getattr(builtins, kind)]


def _condition(s: LoweringState, i: Apply) -> Operand:
    """What must hold for an instruction to go well."""
    match i.op.name:
        case "check":
            return i.operands[0]
        case "item":
            items, index = i.operands
            assert isinstance(items.type, List)
            count = s.apply(own("length"), (items,), INT)
            return operand_of(s, traced(s, _in_range, v.Leaf(index), v.Leaf(count)))
        case "reduce":
            count = s.apply(own("length"), i.operands[:1], INT)
            return operand_of(s, traced(s, operator.gt, v.Leaf(count), v.Static(0)))
        case "load" | "load_is_none":
            return negate(s, s.apply(own("is_none"), i.operands[:1], BOOL))
        case "text":
            return _fits(s, i)
        case name:
            s.refuse(
                f"what `try` catches may fail in an operation ({name}) that has no test of its own",
                "test for it with `if`",
                i.span,
            )


def _fits(s: LoweringState, i: Apply) -> Operand:
    """Does a function of strings fit its operands? Of numbers and lengths that is arithmetic."""
    function, args = i.op["function"], i.op["args"]
    rest = iter(i.operands)
    given = [v.Leaf(next(rest)) if a is ... else v.Static(a) for a in args]
    match function:
        case "chr":
            return operand_of(s, traced(s, _is_code, given[0]))
        case "ord":
            return operand_of(s, traced(s, operator.eq, text(s, "__len__", given[0]), v.Static(1)))
        case "__getitem__":
            return operand_of(s, traced(s, _in_range, given[1], text(s, "__len__", given[0])))
        case _:
            return s.apply(own("text", function="fits", args=(function, *args)), i.operands, BOOL)


def _is_code(number: int) -> object:
    return (number >= 0) & (number < texts.BEHIND)


def _in_range(index: int, count: int) -> object:
    return (-count <= index) & (index < count)


ITEMS = ("split_item", "rsplit_item", "splitlines_item")
"""The functions of strings that are read at the turn of a loop over them."""


def in_range(s: LoweringState, index: Value) -> None:
    """What a loop reads at the start of a turn is there: items at its index, or at what is computed of it alone."""
    if not s.frame.trying:
        return
    of_index: set[Operand] = {index}
    for i in s.block.body:
        if not isinstance(i, Apply):
            continue
        read = {x for x in i.operands if isinstance(x, Value)}
        is_text = i.op.name == "text" and i.op["function"] in ("__getitem__", *ITEMS)
        if (i.op.name == "item" or is_text) and i.operands and i.operands[-1] in of_index:
            s.context.caught.handled[id(i)] = i
        elif i.op.is_jax and read & of_index and all(x in of_index or _is_length(s, x) for x in read):
            of_index.update(i.results)


def _is_length(s: LoweringState, x: Value) -> bool:
    """Is it how long a list is, or computed in front of the loop?"""
    made = next((i for i in s.block.body if isinstance(i, Apply) and x in i.results), None)
    return made is None or made.op.name == "length"
