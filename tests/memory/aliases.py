"""One object under several names, in lists whose items are columns: programs of test_aliases.py."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PROGRAMS: list[Callable[[Any, list[float]], Any]] = []
XS = [[1.0, 2.0, 0.5], [0.3], [2.0, 2.5]]
W = np.array([0.7, 1.3, 0.4, -0.5], np.float32)


@dataclass(order=True)
class Task:
    at: Any
    kind: int = 0
    more: Any = field(default=0.0, compare=False)


def program(f: Callable[[Any, list[float]], Any]) -> Callable[[Any, list[float]], Any]:
    PROGRAMS.append(f)
    return f


def tasks(w: Any, xs: list[float]) -> list[Task]:
    return [Task(x * w[0]) for x in xs]


# ---- put into a list, and changed


@program
def appended(w: Any, xs: list[float]) -> Any:
    q, x = tasks(w, xs), Task(w[1] * 5)
    q.append(x)
    x.more = w[2]
    return q[-1].more


@program
def appended_and_popped(w: Any, xs: list[float]) -> Any:
    q, x = tasks(w, xs), Task(w[1] * 5)
    q.append(x)
    y = q.pop()
    y.more = w[2]
    return x.more


@program
def added(w: Any, xs: list[float]) -> Any:
    x = Task(w[1] * 5)
    q = [Task(y) for y in xs] + [x]
    y = q.pop()
    y.more = w[2]
    return x.more


@program
def inserted_beside_a_slice(w: Any, xs: list[float]) -> Any:
    q, x = tasks(w, xs), Task(w[1] * 5)
    q.insert(0, x)
    r = q[1:]
    y, z = q.pop(0), q.pop(0)
    y.more, z.more = w[2], w[3]
    return x.more + sum(e.more for e in r)


@program
def assigned(w: Any, xs: list[float]) -> Any:
    x, q = Task(w[0]), tasks(w, xs)
    q[0] = x
    x.more = w[1]
    return q[0].more


@program
def in_every_place(w: Any, xs: list[float]) -> Any:
    x = Task(w[0])
    q = [x for _ in xs]
    x.more = w[1]
    return q[0].more


@program
def in_pairs(w: Any, xs: list[float]) -> Any:
    x = Task(w[0])
    q = [(y, x) for y in xs]
    x.more = w[1]
    return q[0][1].more


@program
def one_of_two(w: Any, xs: list[float]) -> Any:
    x, y = Task(w[0]), Task(w[1])
    q = [x if a > 1 else y for a in xs]
    x.more, y.more = w[2], w[3]
    return sum(e.more for e in q)


@program
def before_a_loop(w: Any, xs: list[float]) -> Any:
    x = Task(w[0])
    stack = [x]
    for a in xs:
        stack.append(Task(a))
    x.more = w[1]
    return stack[0].more


@program
def last_of_a_loop(w: Any, xs: list[float]) -> Any:
    q, x = [], Task(w[0])
    for a in xs:
        x = Task(a * w[0])
        q.append(x)
    x.more = w[1]
    return q[-1].more


@program
def in_the_next_turn(w: Any, xs: list[float]) -> Any:
    q, x = [], Task(w[0])
    for a in xs:
        x.more = x.more + w[1]
        x = Task(a * w[0])
        q.append(x)
    return sum((k + 1) * e.more for k, e in enumerate(q))


@program
def rows(w: Any, xs: list[float]) -> Any:
    q, x = [[a * w[0]] for a in xs], [w[1] * 5]
    q.append(x)
    y = q.pop()
    y.append(w[2])
    return sum(x)


@program
def records(w: Any, xs: list[float]) -> Any:
    q, x = [{"a": a * w[0]} for a in xs], {"a": w[0]}
    q.append(x)
    x["a"] = w[1]
    return q[-1]["a"]


# ---- read from a list, and changed


@program
def first_and_popped(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    first = q[0]
    e = q.pop(0)
    e.more = w[2]
    return first.more + first.at


@program
def first_of_a_deque(w: Any, xs: list[float]) -> Any:
    q = deque(Task(x * w[0]) for x in xs)
    first = q[0]
    e = q.popleft()
    e.more = w[2]
    return first.more


@program
def twice(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    q.append(q[0])
    e = q.pop()
    e.more = w[1]
    return q[0].more


@program
def repeated(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs) * 2
    e = q.pop()
    e.more = w[1]
    return sum(e.more for e in q)


@program
def turned_around(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    r = list(reversed(q))
    e = r.pop()
    e.more = w[1]
    return q[0].more


@program
def of_a_function(w: Any, xs: list[float]) -> Any:
    def first(q: list[Task]) -> Task:
        return q[0]

    q = tasks(w, xs)
    x = first([e for e in q])
    x.more = w[2]
    return q[0].more


@program
def numbered_rows(w: Any, xs: list[float]) -> Any:
    q = [[a * w[0]] for a in xs]
    pairs = [(k, e) for k, e in enumerate(q)]
    _, e = pairs.pop()
    e.append(w[1])
    return sum(q[-1])


@program
def moved_from_list_to_list(w: Any, xs: list[float]) -> Any:
    q, seen, last = tasks(w, xs), [], None
    while q:
        e = q.pop()
        if last is not None:
            last.more = e.at
        seen.append(e)
        last = e
    return sum(e.more * (k + 1) for k, e in enumerate(seen))


@program
def a_list_in_each_turn(w: Any, xs: list[float]) -> Any:
    """The same empty one."""
    held: list[Any] = []
    rows: list[list[Any]] = []
    for _ in xs:
        rows.append(held)
    if w[0] * xs[0] > 0.5:
        held.append(w[0])
    return sum(sum(r) for r in rows)


@program
def put_in_each_turn(w: Any, xs: list[float]) -> Any:
    q, x = tasks(w, xs), Task(w[1])
    for y in xs:
        if y * w[0] > 0.3:
            q[-1] = x
    x.more = w[2]
    return sum(e.more for e in q)


# ---- slices, which are lists of their own with the items of others


@program
def two_slices(w: Any, xs: list[float]) -> Any:
    """The list itself is gone."""
    q = tasks(w, xs)
    r, t = q[1:], q[1:]
    q = []
    for e in t:
        e.more += w[1]
    return sum(e.more for e in r) + len(q)


@program
def item_of_a_slice(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    x, r = q[0], q[:2]
    q = []
    x.more += w[1]
    return sum(e.more for e in r) + len(q)


@program
def slice_of_a_slice(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    r, t = (q[:2][:1], w[0]), q[:]
    q = []
    for e in t:
        e.more += w[1]
    return sum(e.more for e in r[0]) + len(q)


@program
def slice_left_by_turns(w: Any, xs: list[float]) -> Any:
    """A loop leaves in one variable what another one holds."""
    q, r = tasks(w, xs), tasks(w, xs)
    for _ in xs:
        for e in q:
            q = r[1:]
            e.more = e.more + w[1]
    return sum(e.more * (k + 1) for k, e in enumerate(q))


# ---- values of dicts


@program
def in_some_examples(w: Any, xs: list[float]) -> Any:
    """A dict that has a key in some examples, and objects there that its values are read of."""
    d, x = {}, Task(w[0])
    if len(xs) > 1:
        d[1] = x
    for e in d.values():
        e.more += w[1]
    return x.more + sum(e.more for e in d.values())


@program
def set_in_each_turn(w: Any, xs: list[float]) -> Any:
    d, x = {}, Task(w[1])
    for y in xs:
        if y * w[0] > 0.3:
            d[1] = x
    x.more = w[2]
    return sum(e.more for e in d.values())


# ---- objects in an order


@program
def least_is_changed(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    first = q[0]
    e = min(q)
    e.more = w[2]
    return first.more + max(q).at


@program
def sorted_and_changed(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    first = q[-1]
    q.sort()
    e = q.pop()
    e.more = w[2]
    return first.more + first.at + sorted(q, reverse=True)[-1].at if q else first.more


@program
def pushed_and_changed(w: Any, xs: list[float]) -> Any:
    q: list[Task] = []
    keep = Task(w[0] * 9.0)
    heapq.heappush(q, keep)
    for x in xs:
        heapq.heappush(q, Task(x * w[0]))
    keep.more = keep.more + w[1]
    return sum(e.more + e.at for e in q)


@program
def first_of_a_heap(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    first = q[0]
    heapq.heapify(q)
    e = heapq.heappop(q)
    e.more = w[2]
    return first.more + first.at


@program
def pushed_again(w: Any, xs: list[float]) -> Any:
    """A simulation: tasks make others, later ones."""
    q = tasks(w, xs)
    heapq.heapify(q)
    now, last = 0.0 * w[0], None
    while q:
        e = heapq.heappop(q)
        if last is not None:
            last.more = e.at
        last, now = e, now * 0.5 + e.at
        if e.kind == 0:
            heapq.heappush(q, Task(e.at + w[1], 1))
    return now + last.more if last is not None else now
