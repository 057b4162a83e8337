"""Exceptions that a `try` catches, on their way to its handler: a flag, a number for the class, what it was made with.

    raise TooFar(y)      ->      <raised> = True; <exception> = 3; <TooFar 0> = y

A function that is called in a `try` gives all that back beside its result (`called`); the caller goes on behind a check
that nothing was raised, at which its statement is cut like at any other (`protected.py`). What an exception was made
with is kept for classes that some handler looks at: the first one that does has all lowered again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autobatch.frontend.lowering.joins import arms, attempt, join, stored
from autobatch.frontend.lowering.numbers import negate, operand_of, traced
from autobatch.frontend.lowering.state import RAISED, RESULT, LoweringState, MemoryChanged, UnknownResult
from autobatch.frontend.types import values as v
from autobatch.ir.core import Apply
from autobatch.ir.ops import own

if TYPE_CHECKING:
    import ast

EXCEPTION = "<exception>"
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


def raise_here(s: LoweringState, kind: Kind, given: Sequence[v.Abstract] | None = None) -> None:
    """Leave the body of the `try` with an exception. `given`: what it was made with; None where that is not known."""
    s.bind(RAISED, v.Static(True))
    s.bind(EXCEPTION, v.Static(code_of(s, kind)))
    if kind not in s.context.memory.looked_at:
        return
    if given is None:
        s.refuse(
            f"the {kind.__name__} that is looked at in a handler is one of Python's own, whose words are not computed",
            "let the handler do without it, or raise one of your own",
        )
    known = s.context.memory.looked_at[kind]
    if known not in (None, len(given)):
        s.refuse(
            f"{kind.__name__} is raised with {known} arguments and with {len(given)}, and a handler looks at it",
            "give it as many everywhere",
        )
    if known is None:
        s.context.memory.looked_at[kind] = len(given)
        raise MemoryChanged  # loops and calls in front of this hand it on
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
        t.check(t.scalar(False), kind.__name__, "")
        t.dead = True

    among(s, [first], rest, node, fail, lambda t: _fail(t, rest, node))
