"""Pure functions of values that are known while compiling: called there. What fails in Python fails in the program."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autobatch.frontend.lowering.access import wrap
from autobatch.frontend.lowering.key_order import hand_out
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind

FAILURES = (ArithmeticError, ValueError, LookupError)
"""What a function raises for values that it has no result for; with a TypeError the program itself is wrong."""


ORDERLESS = (operator.eq, operator.getitem)
"""Operators that do not see in which order a dict holds its keys."""


def fold(s: LoweringState, function: Callable[..., Any], *args: Any, origin: v.FreeOrigin | None = None) -> v.Abstract:
    """The result of a call of plain values. `origin`: where it is found."""
    if function not in ORDERLESS or container_kind(args[0]) is None:
        hand_out(s.context, *args)
    try:
        return wrap(s.context, function(*args), origin)
    except FAILURES as error:
        s.check(s.scalar(False), type(error).__name__, str(error).replace("{", "{{").replace("}", "}}"))
        s.dead = True
        return v.Static(None)
    except Exception as error:
        s.refuse(f"{type(error).__name__}: {error}", "plain Python raises this too: check the arguments")


def fold_call(
    s: LoweringState, function: Callable[..., Any], args: Sequence[v.Abstract], kwargs: Mapping[str, v.Abstract]
) -> v.Abstract:
    """The result of a call whose arguments are all known."""
    given = [a.value for a in args if isinstance(a, v.Static)]
    named = {k: a.value for k, a in kwargs.items() if isinstance(a, v.Static)}
    hand_out(s.context, *named.values())
    return fold(s, functools.partial(function, **named), *given)
