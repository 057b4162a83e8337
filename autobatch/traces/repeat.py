"""Does a function do the same on the same example again? Where it does not, its trace says nothing of later calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from autobatch.errors import UnsupportedError
from autobatch.source import NOWHERE, Span
from autobatch.traces.classes import equal_numbers
from autobatch.traces.record import Given, Known, Operand, Out, Place, Run, Step


def check(name: str, first: Run, again: Callable[[], Run]) -> None:
    """Raise UnsupportedError, at the line of the first operation that differs, unless `again` gives the same run."""
    try:
        second = again()
    except Exception as error:
        raise _differs(name, f"the second time it raised {type(error).__name__}: {error}", NOWHERE) from error
    for a, b in itertools.zip_longest(first.steps, second.steps):
        if a is None or b is None or not _same_step(a, b):
            raise _differs(name, "the second time it did something else here", span_of_place((a or b).place))
    same = len(first.leaves) == len(second.leaves) and first.result == second.result
    if not same or not all(map(_same, first.leaves, second.leaves)):
        raise _differs(name, "the second time it returned something else", NOWHERE)


def _differs(name: str, how: str, span: Span) -> UnsupportedError:
    return UnsupportedError(
        f"{name}: its structure is traced, which runs it once for all calls, but it does not do the same on the same "
        f"example again: {how}",
        span,
        "pass what changes from call to call as an argument: random numbers, the time, what an earlier example left",
    )


def span_of_place(place: Place) -> Span:
    """The place of an operation in the user's source."""
    code = place.code
    if code is None:
        return NOWHERE
    positions = next(itertools.islice(code.co_positions(), place.instruction // 2, None), (None,) * 4)
    line, end, column, stop = (x or 0 for x in positions)
    return Span(code.co_filename, line, column + 1, end, stop + 1)


def _same_step(a: Step, b: Step) -> bool:
    return a.kind is b.kind and a.place is b.place and all(map(_same, a.operands, b.operands))


def _same(a: Operand, b: Operand) -> bool:
    match a, b:
        case Out(), Out():
            return (a.step, a.number) == (b.step, b.number)
        case Known(), Known():
            return equal_numbers(a.value, b.value)
        case Given(), Given():
            return (a.source, a.row) == (b.source, b.row)
        case _:
            return a == b
