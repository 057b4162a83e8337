"""Functions that return what they were given or what memory holds: programs of test_aliases.py."""

from __future__ import annotations

from typing import Any

from tests.memory.aliases import Task, tasks


def first(q: list[Any]) -> Any:
    return q[0]


def of_given(q: list[Any], k: int) -> Any:
    """In a recursion, which is lowered before it is known what it returns."""
    if k == 0:
        return q[0]
    found = of_given(q, k - 1)
    found.more += 1.0
    return found


def given(q: list[Any], k: int) -> list[Any]:
    if k == 0:
        return q
    found = given(q, k - 1)
    found.append(Task(0.3))
    return found


def the_same_twice(w: Any, k: int) -> Any:
    if k == 0:
        made = Task(w)
        return made, made
    one, other = the_same_twice(w, k - 1)
    one.more += w
    return one, other


def list_and_item(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    return q, q[0] if len(xs) > 0 else Task(w[0])


def changed_item(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    x = of_given(q, len(xs))
    x.more += w[0]
    return sum(e.more * (k + 1) for k, e in enumerate(q)) + x.more


def changed_list(w: Any, xs: list[float]) -> Any:
    q = tasks(w, xs)
    r = given(q, len(xs))
    return sum(e.at for e in q) + sum(e.at for e in r) + len(q)


def path(e: Any, k: int) -> list[Any]:
    if k == 0:
        return []
    found = path(e, k - 1)
    found.append(e)
    return found


def put_into_what_returns(w: Any, xs: list[float]) -> Any:
    x = Task(w[0])
    q = path(x, len(xs))
    x.more += w[1]
    return sum(e.more for e in q)


def one_at_two_places(w: Any, xs: list[float]) -> Any:
    one, other = the_same_twice(w[0], len(xs))
    one.more += w[1]
    return one.more + other.more * 2


def item_beside_its_list(w: Any, xs: list[float]) -> Any:
    q, x = list_and_item(w, xs)
    x.more += w[1]
    return sum(e.more for e in q)


def maybe_empty(w: Any, xs: list[float]) -> Any:
    """Two lists that may be one have memory, and so have their items."""
    q, r = [], tasks(w, xs)
    if len(xs) > 2:
        r = q
    return q, r


def item_of_memory(w: Any, xs: list[float]) -> Any:
    q, r = maybe_empty(w, xs)
    x = first(r) if len(r) > 0 else Task(w[0])
    q.append(Task(w[1]))
    x.more += w[2]
    return sum(e.more for e in q) + sum(e.more for e in r)


def item_of_memory_in_turns(w: Any, xs: list[float]) -> Any:
    q, r, x = [], tasks(w, xs), Task(w[0])
    if len(xs) > 2:
        r = q
    for _ in xs:
        if len(r) > 0:
            x = r[0]
    q.append(Task(w[1]))
    x.more += w[2]
    return sum(e.more for e in q) + sum(e.more for e in r)


PROGRAMS = [
    changed_item,
    changed_list,
    put_into_what_returns,
    one_at_two_places,
    item_beside_its_list,
    item_of_memory,
    item_of_memory_in_turns,
]
