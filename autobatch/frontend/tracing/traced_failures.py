"""What examples fail with whose structure is traced: the operations of a trace are no Python, so each that may fail has
a check, a number, which the program over traces looks at.

    first = min([failure_at(k, check(x)) for k, x in enumerate(n.checks)], default=FINE)
    fail(first, 0, 'ZeroDivisionError', 'float division by zero', 'f.py', 7, ...)
->  check[kind='ZeroDivisionError', message='float division by zero'](...)       at line 7 of f.py
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.errors import Span
from autobatch.frontend.lowering.numbers import operand_of, traced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.ir.core import BOOL
from autobatch.ir.ops import own

FINE = 2**31 - 1
"""What a check gives of an operation that does not fail; else the number of the failure."""
MOST = 1 << 12
"""So many different failures one function may have."""
_LAST = FINE // MOST - 1


@jax.jit
def failure_at(place: Any, number: Any) -> Any:
    """A number that orders failures by their places in a run."""
    return jnp.where(number == FINE, FINE, jnp.minimum(place, _LAST) * MOST + number)


def fail(first: Any, number: int, kind: str, message: str, *span: Any) -> None:
    """Fail an example if its first failure has this number."""
    if first != FINE and first % MOST == number:
        raise getattr(builtins, kind)(message)


def _is_other(first: Any, number: Any) -> Any:
    return (first == FINE) | (first % MOST != number)


def _failing(s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]) -> v.Abstract:
    first, number, *told = args
    kind, message, *span = (x.value for x in told if isinstance(x, v.Static))
    fine = operand_of(s, traced(s, _is_other, first, number))
    s.check(s.apply(own("unknown"), (fine,), BOOL), kind, message, span=Span(*span))
    return v.Static(None)


TRACED_FAILURES = {fail: _failing}
