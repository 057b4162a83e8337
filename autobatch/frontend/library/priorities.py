"""`heapq` and `bisect`: lists that are kept in an order. What their functions do is written in Python, and lowered like
a function of the user where they are called.

heapq.heappush(h, x)        h = _pushed(h, x)
x = heapq.heappop(h)        x, h = _popped(h)

The steps are those of CPython's `heapq`, so that a list holds the same elements at the same places, and of equal ones
the same comes first.
"""

from __future__ import annotations

import ast
import bisect
import heapq
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.frontend.library.prelude import run
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.memory import container_heap, list_heap
from autobatch.frontend.memory.heap import is_given
from autobatch.frontend.memory.rebinding import rebind, refuse_change, refuse_given, take_out
from autobatch.frontend.syntax.scopes import ORDERED
from autobatch.frontend.syntax.sources import read_before_change
from autobatch.frontend.types import values as v

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


# ---- what the functions do: compiled, not run


def _pushed(items: Any, x: Any) -> Any:
    heap = [*items, x]
    place = len(heap) - 1
    while place > 0:
        above = (place - 1) // 2
        if not x < heap[above]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = x
    return heap


def _settled(items: Any, start: Any, end: Any) -> Any:
    """A heap whose element at `start` may be too large: it goes down to a leaf, and up to its place from there."""
    heap = [*items]
    x, place, child = heap[start], start, 2 * start + 1
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child = child + 1
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    while place > start:
        above = (place - 1) // 2
        if not x < heap[above]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = x
    return heap


def _popped(items: Any) -> Any:
    if len(items) == 0:
        raise IndexError("index out of range")
    first, last, heap = items[0], items[-1], items[:-1]
    if len(heap) > 0:
        heap = _settled([last, *heap[1:]], 0, len(heap))
    return first, heap


def _replaced(items: Any, x: Any) -> Any:
    if len(items) == 0:
        raise IndexError("index out of range")
    return items[0], _settled([x, *items[1:]], 0, len(items))


def _pushed_and_popped(items: Any, x: Any) -> Any:
    heap = [*items]
    if len(heap) > 0 and heap[0] < x:
        first, heap = heap[0], _settled([x, *heap[1:]], 0, len(heap))
        return first, heap
    return x, heap


def _heapified(items: Any) -> Any:
    heap = [*items]
    for k in range(len(heap) // 2):
        heap = _settled(heap, len(heap) // 2 - 1 - k, len(heap))
    return heap


def _smallest(n: Any, items: Any, key: Any) -> Any:
    return sorted(items, key=key)[:n]


def _largest(n: Any, items: Any, key: Any) -> Any:
    return sorted(items, key=key, reverse=True)[:n]


def _left(items: Any, x: Any, lo: Any, hi: Any, key: Any) -> Any:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    low, high = lo, len(items) if hi is None else hi
    while low < high:
        middle = (low + high) // 2
        if (items[middle] if key is None else key(items[middle])) < x:
            low = middle + 1
        else:
            high = middle
    return low


def _right(items: Any, x: Any, lo: Any, hi: Any, key: Any) -> Any:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    low, high = lo, len(items) if hi is None else hi
    while low < high:
        middle = (low + high) // 2
        if x < (items[middle] if key is None else key(items[middle])):
            high = middle
        else:
            low = middle + 1
    return low


def _inserted_left(items: Any, x: Any, lo: Any, hi: Any, key: Any) -> Any:
    place = _left(items, x if key is None else key(x), lo, hi, key)
    return [*items[:place], x, *items[place:]]


def _inserted_right(items: Any, x: Any, lo: Any, hi: Any, key: Any) -> Any:
    place = _right(items, x if key is None else key(x), lo, hi, key)
    return [*items[:place], x, *items[place:]]


READING: dict[Any, Callable[..., Any]] = {
    heapq.nsmallest: _smallest,
    heapq.nlargest: _largest,
    bisect.bisect_left: _left,
    bisect.bisect_right: _right,
}
CHANGING: dict[Any, Callable[..., Any]] = {
    heapq.heappush: _pushed,
    heapq.heapify: _heapified,
    bisect.insort_left: _inserted_left,
    bisect.insort_right: _inserted_right,
}
TAKING: dict[Any, Callable[..., Any]] = {
    heapq.heappop: _popped,
    heapq.heapreplace: _replaced,
    heapq.heappushpop: _pushed_and_popped,
}
"""Those that change a list and give an element of it."""

_BOUNDED = (bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right)
_BOUNDS: Named = {"lo": v.Static(0), "hi": v.Static(None), "key": v.Static(None)}
"""What those take beside the list and the element."""


def call(s: LoweringState, node: ast.Call, function: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract | None:
    """The result of a call of `heapq` or `bisect`; None when the call is of another function."""
    held = function.value if isinstance(function, v.Static) else None
    if not callable(held) or getattr(held, "__module__", None) not in ("_heapq", "_bisect", "heapq", "bisect"):
        return None
    if held in _BOUNDED:
        default = dict(tuple(_BOUNDS.items())[max(len(args) - 2, 0) :])
    else:
        default = {"key": v.Static(None)} if held in (heapq.nsmallest, heapq.nlargest) and len(args) == 2 else {}
    if held in READING:
        return run(s, READING[held], args, {**default, **kwargs})
    meaning = CHANGING.get(held) or TAKING.get(held)
    name = held.__name__
    if meaning is None:
        return None
    if kwargs and held not in _BOUNDED:
        s.refuse(f"{name}() takes no named arguments here", "pass the list and the element by position")
    if args and list_heap.is_row(args[0]):
        return _in_memory(s, held, meaning, list_heap.there(s, args[0]), args[1:], {**default, **kwargs})
    holder = node.args[0] if node.args else node
    if not isinstance(holder, ast.Name) or _called(node.func) not in ORDERED:
        words = f"{name}() changes a list that no variable holds, or is called by another name"
        assert isinstance(holder, ast.expr)
        refuse_change(s, holder, words, f"give the list a name: h = ...; {name}(h, ...)")
    if node in read_before_change(s.frame.source.node):
        s.refuse(
            f"{holder.id} is read and then changed in one expression, which reads what it is changed to",
            f"change it in a statement of its own in front: x = {ast.unparse(node)}",
        )
    items = expand(s, s.env[holder.id].value if holder.id in s.env else args[0])
    if is_given(items):
        refuse_given(s, items, "only a list built in this function can be changed", "build a new one: list(xs)")
    if isinstance(items, v.Static) or not isinstance(items, v.Record | v.Listing):
        s.refuse("only a list built in this function can be changed", "build a new one: list(xs)")
    found = run(s, meaning, [items, *args[1:]], {**default, **kwargs})
    if held in CHANGING:
        s.context.identities.renewed(found, items, args[1:])
        rebind(s, holder.id, found)
        return v.Static(None)
    if s.dead:
        return found
    assert isinstance(found, v.Record)
    take_out(s, found.items[0], items)
    s.context.identities.renewed(found.items[1], items, args[1:])
    rebind(s, holder.id, found.items[1])
    return found.items[0]


def _in_memory(
    s: LoweringState, function: Any, meaning: Callable[..., Any], row: v.MemoryRow, args: Arguments, kwargs: Named
) -> v.Abstract:
    """The same of a list that has memory."""
    for x in args:
        s.context.identities.stored(x)
    found = run(s, meaning, [list_heap.copied(s, row), *args], kwargs)
    if s.dead:
        return found
    if function in CHANGING:
        container_heap.assign_list(s, row, found)
        return v.Static(None)
    assert isinstance(found, v.Record)
    container_heap.assign_list(s, row, found.items[1])
    return found.items[0]


def _called(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""
