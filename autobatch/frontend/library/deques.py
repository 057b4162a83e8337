"""`collections.deque`: a list, and how long it may be at most. What changes it is what changes a list.

d.append(x)         put(%items, length(%items), %x)
d.popleft()         the elements from the second one on
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autobatch.frontend.library import tables
from autobatch.frontend.library.joined import concatenate
from autobatch.frontend.lowering.numbers import traced
from autobatch.frontend.lowering.sequences import arithmetic, item, length, maximum, reverse, sequence, sliced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory.rebinding import take_out
from autobatch.frontend.types import values as v

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
Change = Callable[[LoweringState, v.Abstract, Arguments, Named], tuple[v.Abstract, v.Abstract]]
NONE = v.Static(None)


def is_deque(value: v.Abstract) -> bool:
    """Is it a deque that the function builds?"""
    return isinstance(value, v.Record) and value.kind == "table" and value.cls is deque


def make_deque(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`collections.deque(items, maxlen)`"""
    maxlen = args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)
    if not isinstance(maxlen, v.Static):
        s.refuse("the maxlen of a deque must be a constant", "name the argument that decides it in static=(...)")
    items = _listed(s, args[0]) if args else v.Record("list", (), ())
    made = v.Record("table", ("items", "maxlen"), (items, maxlen), deque)
    return with_items(s, made, items)


def items_of(value: v.Abstract) -> v.Abstract:
    """The list of the elements."""
    assert isinstance(value, v.Record)
    return value.items[0]


def with_items(s: LoweringState, old: v.Abstract, items: v.Abstract, from_left: bool = False) -> v.Record:
    """The deque with other elements; those too many are dropped, which stand at the other end than the new ones."""
    assert isinstance(old, v.Record)
    most = old.items[1]
    assert isinstance(most, v.Static)
    if most.value is not None:
        count = length(s, items)
        first = maximum(s, arithmetic(s, operator.sub, count, most), v.Static(0))
        bounds = [NONE, most, NONE] if from_left else [first, NONE, NONE]
        items = s.context.rules.materialise(s, sliced(s, items, bounds))
    return replace(old, items=(items, most))


def _listed(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A sequence as a list of its own."""
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return v.Record("list", tuple(range(len(found.items))), found.items)
    return s.context.rules.materialise(s, found)


def _append(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = items_of(whole)
    if isinstance(items, v.Record):
        items = concatenate(s, items, v.Record("list", (0,), tuple(args)))
    else:
        items = tables.put(s, items, length(s, items), args[0], "elements")
    return NONE, with_items(s, whole, items)


def _append_left(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = concatenate(s, v.Record("list", (0,), tuple(args)), items_of(whole))
    return NONE, with_items(s, whole, items, from_left=True)


def _extend(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, with_items(s, whole, concatenate(s, items_of(whole), _listed(s, args[0])))


def _extend_left(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = concatenate(s, _listed(s, reverse(s, args[0])), items_of(whole))
    return NONE, with_items(s, whole, items, from_left=True)


def _check_some(s: LoweringState, items: v.Abstract) -> None:
    """IndexError where there is no element."""
    count = length(s, items)
    some = (
        s.scalar(count.value > 0) if isinstance(count, v.Static) else traced(s, operator.gt, count, v.Static(0)).operand
    )
    s.check(some, "IndexError", "pop from an empty deque")
    s.dead = s.dead or count == v.Static(0)


def _pop(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return _taken(s, whole, v.Static(-1), [NONE, v.Static(-1), NONE])


def _pop_left(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return _taken(s, whole, v.Static(0), [v.Static(1), NONE, NONE])


def _taken(
    s: LoweringState, whole: v.Abstract, place: v.Static, rest: Sequence[v.Abstract]
) -> tuple[v.Abstract, v.Abstract]:
    items = items_of(whole)
    _check_some(s, items)
    if s.dead:
        return NONE, whole
    found = item(s, items, place)
    take_out(s, found, whole, items)
    return found, with_items(s, whole, s.context.rules.materialise(s, sliced(s, items, rest)))


def _rotate(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items, steps = items_of(whole), args[0] if args else v.Static(1)
    if isinstance(items, v.Record) and isinstance(steps, v.Static):
        held = deque(items.items)
        held.rotate(steps.value)
        return NONE, with_items(s, whole, replace(items, items=tuple(held)))
    if isinstance(items, v.Record) and not items.items:
        return NONE, whole
    return NONE, with_items(s, whole, s.call(v.Static(_rotated), [items, steps]))


def _rotated(items: Any, steps: Any) -> Any:
    """Lowered like a function of the user."""
    count = len(items)
    return [items[(k - steps) % count] for k in range(count)]


def _clear(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, with_items(s, whole, v.Record("list", (), ()))


def _as_list(change: Change) -> Change:
    """A method that changes a deque as it changes a list."""

    def changed(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
        result, items = change(s, items_of(whole), args, named)
        return result, with_items(s, whole, items)

    return changed


def changes(of_lists: Mapping[Any, Change]) -> dict[Any, Change]:
    """The methods that change a deque, by those that change a list."""
    return {
        deque.append: _append,
        deque.appendleft: _append_left,
        deque.extend: _extend,
        deque.extendleft: _extend_left,
        deque.pop: _pop,
        deque.popleft: _pop_left,
        deque.rotate: _rotate,
        deque.clear: _clear,
        deque.insert: _as_list(of_lists[list.insert]),
        deque.remove: _as_list(of_lists[list.remove]),
        deque.reverse: _as_list(of_lists[list.reverse]),
    }
