"""The order of tuples and lists: that of their first elements that differ.

Objects whose classes have no order may stand in them, as in heaps of `(score, count, node)`: an example fails where two
such objects decide. It fails too where they are two that `==` calls equal: to compare the fields of whole trees would
take more than the heap does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autobatch.frontend.library.equality import have_no_order
from autobatch.frontend.lowering.branches import truth
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v

Compared = Callable[[LoweringState, v.Abstract, v.Abstract], v.Abstract]


class Comparison(NamedTuple):
    """A comparison, by its function in `operator` and the name of its method; how elements are compared: by `==`, `is`
    and an order."""

    function: Callable[..., Any]
    method: str
    equal: Compared
    same: Compared
    ordered: Callable[[LoweringState, Callable[..., Any], v.Abstract, v.Abstract], v.Abstract]


def lexicographic(
    s: LoweringState, order: Comparison, xs: Sequence[v.Abstract], ys: Sequence[v.Abstract]
) -> v.Abstract:
    """Elements are ordered where all in front of them are equal."""
    if not xs or not ys:
        return v.Static(order.function(len(xs), len(ys)))
    words = have_no_order(s, order.method, xs[0], ys[0])

    def differing(t: LoweringState) -> v.Abstract:
        if words is None:
            return order.ordered(t, order.function, xs[0], ys[0])
        t.check(t.scalar(False), "TypeError", words)
        return v.Static(False)

    same = truth(s, (order.equal if words is None else order.same)(s, xs[0], ys[0]))
    if isinstance(same, bool):
        return lexicographic(s, order, xs[1:], ys[1:]) if same else differing(s)
    return conditional(s, same, lambda t: lexicographic(t, order, xs[1:], ys[1:]), differing)


# ---- lists whose lengths are data: lowered like functions of the user


def _less(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x < y
    return len(xs) < len(ys)


def _at_most(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x <= y
    return len(xs) <= len(ys)


def _greater(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x > y
    return len(xs) > len(ys)


def _at_least(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x >= y
    return len(xs) >= len(ys)


_OF_LISTS: dict[Any, Callable[..., Any]] = {
    operator.lt: _less,
    operator.le: _at_most,
    operator.gt: _greater,
    operator.ge: _at_least,
}


def of_lists(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """The order of two lists, or two tuples, of any length."""
    return s.call(v.Static(_OF_LISTS[function]), [a, b])
