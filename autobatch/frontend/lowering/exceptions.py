"""`try`: what a statement of its body can fail with, and a handler catches, is a branch.

    try:                                    %ok = 0 <= k < len(xs)
        s = s + xs[k]                       if %ok:  s = s + item(xs, k)
    except IndexError:              ->      else:    <raised> = True, <exception> = 0
        s = s + 1.0                         if <raised>: s = s + 1.0

Which statements fail, and where, is the business of `exceptions.py`. `<raised>` is a flag as `<returned>` is one: the
statements behind it run where it is not set. A loop that it leaves carries it; a function that the body calls hands it
back, with the exception: a number that stands for its class, and what it was made with, where a handler looks at it.
"""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from autobatch.frontend.library.strings import text
from autobatch.frontend.lowering.attributes import may_be_none
from autobatch.frontend.lowering.branches import run
from autobatch.frontend.lowering.joins import arms, attempt, join, stored
from autobatch.frontend.lowering.numbers import negate, operand_of, traced
from autobatch.frontend.lowering.state import (
    FLAGS,
    RAISED,
    RESULT,
    RETURNED,
    LoweringState,
    MemoryChanged,
    UnknownResult,
)
from autobatch.frontend.memory import heaps
from autobatch.frontend.syntax.flattening import flattened, with_test_inside
from autobatch.frontend.syntax.scopes import MUTATORS
from autobatch.frontend.types import values as v
from autobatch.ir import strings
from autobatch.ir.buffers import NO_ROOM
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
    Call,
    Instruction,
    List,
    Literal,
    Operand,
    Region,
    Tag,
    Value,
    walk,
)
from autobatch.ir.ops import NO_ELEMENTS, OWN, own

# ---- raising
#
# Exceptions that a `try` catches, on their way to its handler: a flag, a number for the class, what it was made with.
#
#     raise TooFar(y)      ->      <raised> = True; <exception> = 3; <TooFar 0> = y
#
# A function that is called in a `try` gives all that back beside its result (`called`); the caller goes on behind a
# check that nothing was raised, at which its statement is cut like at any other (`exceptions.py`). What an exception
# was made with is kept for classes that some handler looks at: the first one that does has all lowered again.


if TYPE_CHECKING:
    import ast

EXCEPTION = "<exception>"
KIND = "<class of what was raised>"
"""A variable of handlers that are written for `with`."""
HANDED_ON = "<handed on>"
"""The kind of the check that nothing was raised in a function."""
Kind = type[BaseException]


def is_caught(s: LoweringState, kind: Kind) -> bool:
    """Does a `try` around the statement at hand catch exceptions of a class?"""
    return any(issubclass(kind, caught) for around in s.frame.trying for caught in around)


def code_of(s: LoweringState, kind: Kind) -> int:
    """The number of a class of exceptions. Handlers lowered before it had one do not know it: all is lowered again."""
    kinds = s.context.memory.raised
    if kind not in kinds:
        kinds.append(kind)
        s.context.changed = True
    return kinds.index(kind)


def raise_here(s: LoweringState, kind: Kind, arguments: Callable[[], Sequence[v.Abstract]]) -> None:
    """Leave the body of the `try` with an exception. `arguments`: what it is made with, where a handler looks at it."""
    s.bind(RAISED, v.Static(True))
    s.bind(EXCEPTION, v.Static(code_of(s, kind)))
    if kind not in s.context.memory.looked_at:
        return
    given = arguments()
    known = s.context.memory.looked_at[kind]
    if known not in (None, len(given)):
        s.refuse(
            f"{kind.__name__} is raised with {known} arguments and with {len(given)}, and a handler looks at it",
            "give it as many everywhere",
        )
    if known is None:
        s.context.memory.looked_at[kind] = len(given)
        raise MemoryChanged  # loops and calls in front of this pass it on
    for k, value in enumerate(given):
        s.bind(_argument(kind, k), stored(s, value))


def _argument(kind: Kind, k: int) -> str:
    return f"<{kind.__module__}.{kind.__qualname__} {k}>"


def exception(s: LoweringState, kind: Kind) -> v.Abstract:
    """What was caught, for a handler that looks at it."""
    known = s.context.memory.looked_at
    if kind not in known:
        known[kind] = None
        raise MemoryChanged
    count = known[kind]
    names = [_argument(kind, k) for k in range(count or 0)]
    if count is None or any(n not in s.env for n in names):
        s.context.changed = True  # this round has not come to where it is raised
        raise UnknownResult
    items = tuple(s.env[n].value for n in names)
    args = v.Record("tuple", tuple(range(len(items))), items)
    made = v.Record("object", ("args",), (args,), kind)
    return s.context.rules.initialised(s, made, items)


def among(s: LoweringState, found: Sequence[int], rest: Sequence[int], node: ast.AST, then: Body, orelse: Body) -> None:
    """Run one piece of code where the exception is one of `found`, the other where it is one of `rest`."""
    if not found:
        orelse(s)
    elif not rest:
        then(s)
    else:
        test = operand_of(s, traced(s, _is_one_of(tuple(found)), s.env[EXCEPTION].value))
        a, b = arms(s, test)
        _run(a, then)
        _run(b, orelse)
        join(s, test, a, b, node=node)


Body = Callable[[LoweringState], None]


def _run(s: LoweringState, body: Body) -> None:
    def nothing(t: LoweringState) -> v.Abstract:
        body(t)
        return v.Static(None)

    attempt(s, nothing)


@functools.lru_cache(maxsize=256)
def _is_one_of(codes: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda code: functools.reduce(operator.or_, [code == k for k in codes])


# ---- functions that are called in a `try`


def variables(s: LoweringState) -> list[str]:
    """The variables that say what was raised."""
    looked = s.context.memory.looked_at
    return [RAISED, EXCEPTION, *(_argument(kind, k) for kind, n in looked.items() for k in range(n or 0))]


def with_raised(s: LoweringState, result: v.Abstract) -> v.Abstract:
    """What a function that is called in a `try` hands back: its result, and what was raised in it."""
    items = (result, *(_current(s, n) for n in variables(s)))
    return v.Record("tuple", tuple(range(len(items))), items)


def result_of(s: LoweringState) -> v.Abstract:
    """The result of the function at hand; unset where all of it raises."""
    return s.env[RESULT].value if RESULT in s.env else v.Unset(RESULT)


def _current(s: LoweringState, name: str) -> v.Abstract:
    if name == RAISED:
        return s.flag(RAISED)
    return s.env[name].value if name in s.env else v.Unset(name)


def take_raised(s: LoweringState, returned: v.Abstract) -> v.Abstract:
    """The result of a function, behind a check that nothing was raised in it."""
    assert isinstance(returned, v.Record)
    result, raised, *rest = returned.items
    if raised == v.Static(False):
        return result
    names = variables(s)[1:]
    if len(names) != len(rest):
        raise MemoryChanged
    fine = s.scalar(False) if raised == v.Static(True) else negate(s, operand_of(s, raised))
    if s.block.truth(fine) is True:
        return result
    check = Apply((), own("check", kind=HANDED_ON, message=""), (fine,), s.span)
    s.emit(check)
    s.context.caught.raisings[id(check)] = dict(zip(names, rest, strict=True))
    s.assume(fine, True)
    if raised == v.Static(True):
        s.dead = True
    return result


def raise_on(s: LoweringState, check: Apply) -> None:
    """Leave the body of the `try` with what a function has raised."""
    s.bind(RAISED, v.Static(True))
    for name, value in s.context.caught.raisings[id(check)].items():
        if not isinstance(value, v.Unset):
            s.bind(name, value)


def raise_again(s: LoweringState, codes: Sequence[int], node: ast.AST) -> None:
    """`raise` in a handler: to the `try` around, or the example fails."""
    kinds = [(k, s.context.memory.raised[k]) for k in codes]
    caught = [k for k, kind in kinds if is_caught(s, kind)]
    rest = [k for k, kind in kinds if not is_caught(s, kind)]
    among(s, caught, rest, node, lambda t: t.bind(RAISED, v.Static(True)), lambda t: _fail(t, rest, node))


def _fail(s: LoweringState, codes: Sequence[int], node: ast.AST) -> None:
    """The example fails with one of these exceptions."""
    first, *rest = codes
    kind = s.context.memory.raised[first]

    def fail(t: LoweringState) -> None:
        t.check(t.scalar(False), kind.__name__, *_said(t, kind))
        t.dead = True

    among(s, [first], rest, node, fail, lambda t: _fail(t, rest, node))


def _said(s: LoweringState, kind: Kind) -> tuple[str, Sequence[Operand]]:
    """The message of an exception that is raised again, where a handler looks at it: a format, and values for it."""
    form = "{!r}" if issubclass(kind, KeyError) else "{}"
    bound = s.env.get(_argument(kind, 0))
    match bound.value if bound is not None else None:
        case v.Static(value=held):
            return form.format(held).replace("{", "{{").replace("}", "}}"), ()
        case v.Leaf(type=Array() | Tag(), operand=operand):
            return form, (operand,)
        case _:
            return "", ()


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
    reads = stores_and_loads(handler)
    looked_at = handler.name is not None and handler.name in reads
    if (looked_at or KIND in reads) and len(found) > 1:
        one, rest = found[:1], found[1:]
        among(s, one, rest, handler, lambda t: _run_handler(t, handler, one), lambda t: _run_handler(t, handler, rest))
        return
    held = f"<handled {handler.lineno}>"
    s.bind(held, s.env[EXCEPTION].value)
    around, s.frame.handling = s.frame.handling, (held, tuple(found), handler.name)
    try:
        s.bind(KIND, v.Static(s.context.memory.raised[found[0]]))
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


# ---- protected
#
# Statements in the body of a `try`: each is cut where it may fail with what the `try` catches.
#
#     s = f(xs[k])                         %ok = 0 <= k < len(xs)
#                                          if %ok:
#                               ->             %2 = item(xs, k)
#                                              s = call f(%2)
#                                          else:
#                                              <raised> = True, <exception> = 0
#
# A statement is lowered as ever; its instructions are then cut at the first one that may fail so, and those behind it
# belong to the arm in which it does not. Where it fails the variables are what they were when that instruction was
# written. What may fail inside an expression that is evaluated in part, or more than once, is put in front of it as
# statements, where that can be (`flattening.py`).


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
        raise_here(s, kind, lambda: _given(s, failed, kind))


def _given(s: LoweringState, failed: Apply, kind: type[BaseException]) -> list[v.Abstract]:
    """What Python makes the exception with where an operation has failed."""
    words, operands = _words(s, failed)
    values: list[v.Abstract] = [v.Leaf(x) for x in operands]
    if not issubclass(kind, KeyError):
        if values:
            return [text(s, "format", v.Static(words), *values)]
        return [v.Static(words.format())] if words else []
    if values and words == "{}":
        return values
    if values and words == f"({', '.join('{}' for _ in operands)})":
        return [v.Record("tuple", tuple(range(len(values))), tuple(values))]
    try:
        return [v.Static(ast.literal_eval(words.format()))]
    except (ValueError, SyntaxError, IndexError):
        _refuse_to_say(s, failed)


def _words(s: LoweringState, failed: Apply) -> tuple[str, Sequence[Operand]]:
    """What Python says where an operation has failed: a format, and the values for it."""
    match failed.op.name:
        case "check" if not failed.op["message"].startswith(_OWN_WORDS):
            return failed.op["message"], failed.operands[1:]
        case "item":
            return "list index out of range", ()
        case "reduce":
            return NO_ELEMENTS[failed.op["kind"]], ()
        case "length":
            return "object of type 'NoneType' has no len()", ()
        case "load" | "load_is_none":
            return f"'NoneType' object has no attribute {failed.op['field']!r}", ()
        case "text" if failed.op["function"] in strings.WHAT_FAILS:
            _, words = strings.WHAT_FAILS[failed.op["function"]]
            subject = v.Leaf(failed.operands[0])
            shown = text(s, "__len__", subject) if failed.op["function"] == "ord" else subject
            return words, (operand_of(s, shown),) if "{" in words else ()
        case _:
            _refuse_to_say(s, failed)


_OWN_WORDS = ("None where ", "a value of ", "a number, and ")
"""How messages begin in which Python would name an operator and classes."""


def _refuse_to_say(s: LoweringState, failed: Apply) -> NoReturn:
    s.refuse(
        "what Python says of an exception of its own, which a handler looks at, is not computed here",
        "let the handler do without it, or raise one of your own",
        failed.span,
    )


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
            return [TypeError] if isinstance(held, List) and held.store and may_be_none(s, held) else []
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
    if not strings.may_fail(function, args, [isinstance(x.type, Array) for x in i.operands]):
        return []
    kind, _ = strings.WHAT_FAILS.get(function, ("ValueError", ""))
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
        case "load" | "load_is_none" | "length":
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
    return (number >= 0) & (number < strings.BEHIND)


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
