"""Does a function do the same on the same example again? Where it does not, its trace says nothing of later calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from autobatch.call.tracing.classes import equal_numbers
from autobatch.call.tracing.log import OWN, ExampleNumber, Fixed, Log, TracedRun, span_of_place
from autobatch.call.tracing.returned import TracedResults
from autobatch.errors import UnsupportedError
from autobatch.source import NOWHERE, Span


def check(name: str, first: TracedRun, again: Callable[[], TracedRun], returned: TracedResults) -> None:
    """Raise UnsupportedError, at the line of the first operation that differs, unless `again` gives the same run."""
    try:
        second = again()
    except Exception as error:
        raise _differs(name, f"the second time it raised {type(error).__name__}: {error}", NOWHERE) from error
    step = _first_difference(first.log, second.log)
    if step is not None:
        log = first.log if step < len(first.log.sites) else second.log
        place = log.kinds.sites[log.sites[step]].place
        raise _differs(name, "the second time it did something else here", span_of_place(place))
    same = len(first.leaves) == len(second.leaves) and returned.same(first, second)
    if not same or not all(
        _same(a, first.log, b, second.log) for (a, _), (b, _) in zip(first.leaves, second.leaves, strict=True)
    ):
        raise _differs(name, "the second time it returned something else", NOWHERE)


def _first_difference(first: Log, second: Log) -> int | None:
    """The first operation that two runs do not have in common."""
    if first.sites == second.sites and first.words == second.words and not first.own and not second.own:
        return None
    at = 0
    for step, (a, b) in enumerate(itertools.zip_longest(first.sites, second.sites)):
        if a != b:
            return step
        end = at + len(first.kinds.sites[a].types)
        if not all(_same(x, first, y, second) for x, y in zip(first.words[at:end], second.words[at:end], strict=True)):
            return step
        at = end
    return None


def _differs(name: str, how: str, span: Span) -> UnsupportedError:
    return UnsupportedError(
        f"{name}: its structure is traced, which runs it once for all calls, but it does not do the same on the same "
        f"example again: {how}",
        span,
        "pass what changes from call to call as an argument: random numbers, the time, what an earlier example left",
    )


def _same(a: Fixed | int, first: Log, b: Fixed | int, second: Log) -> bool:
    if not isinstance(a, int) or not isinstance(b, int) or not (_is_own(a) and _is_own(b)):
        return a == b
    x, y = first.own[a - OWN], second.own[b - OWN]
    if isinstance(x, ExampleNumber) or isinstance(y, ExampleNumber):
        return isinstance(x, ExampleNumber) and isinstance(y, ExampleNumber)
    return equal_numbers(x, y)


def _is_own(word: int) -> bool:
    return OWN <= word < OWN // 2
