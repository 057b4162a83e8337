"""`for` over lists that its turns change: each turn reads what the list holds then, as in Python."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence

BATCH = [[1.0, 2.0, 0.5], [0.3], [2.0, 2.6], []]
W = jnp.float32(0.7)


def work_list(w: Any, xs: list[float]) -> Any:
    todo = [x * w for x in xs]
    s, turns = 0.0, 0
    for x in todo:
        if x < 0.12:
            continue
        todo.append(x * 0.5)
        s = s * 0.9 + x
        turns += 1
    else:
        s = s + len(todo)
    pairs = [(x * w, 0) for x in xs]
    for k, (x, depth) in enumerate(pairs, 1):
        s = s + x * k
        if x > 0.4 and depth < 3:
            pairs += [(x * 0.6, depth + 1), (x * 0.4, depth + 2)]
    return s, turns, [depth for _, depth in pairs]


def taken_out(w: Any, xs: list[float]) -> Any:
    removed, popped, cleared = ([x * w for x in xs] for _ in range(3))
    s = 0.0
    for x in removed:
        if x > 0.3:
            removed.remove(x)
        s = s + x
    for k, x in enumerate(popped):
        s = s * 0.9 + x * k
        if x > 0.3:
            del popped[k]
    for x in cleared:
        s = s + x
        if s > 4.0:
            cleared.clear()
    return s, removed, popped, len(cleared)


def put_in_front(w: Any, xs: list[float]) -> Any:
    q = [x * w for x in xs]
    s = 0.0
    for k, x in enumerate(q, start=1):
        s = s + x * k
        if x > 0.3:
            q.insert(k, x * 0.4)
        if len(q) > 9:
            break
    else:
        s = s + 100.0
    ordered = [3.0 - x * w for x in xs]
    for x in ordered:
        s = s * 0.7 + x
        if s > 1.5:
            ordered.sort()
    for x in ordered:
        if x > 2.0:
            ordered[1:] = [x * 0.3]
    return s, q, ordered


def backwards(w: Any, xs: list[float]) -> Any:
    grown, shrunk = [x * w for x in xs], [x * w for x in xs]
    s = 0.0
    for x in reversed(grown):
        s = s * 0.9 + x
        if x > 0.3:
            grown.append(x * 0.5)
    for x in reversed(shrunk):
        s = s * 0.9 + x
        if x > 0.3:
            shrunk.pop(0)
        if x > 1.0:
            shrunk.clear()
    return s, grown, shrunk


def items_ahead(w: Any, xs: list[float]) -> Any:
    out = [w, *xs]
    for k, x in enumerate(out):
        if k + 1 < len(out) and x > 0.4:
            out[k + 1] = out[k + 1] + x
    few = [0.5, w]
    same, s = few, 0.0
    for y in few:
        same[-1] = 7.0
        s = s * 0.5 + y
    return out, s, few


def assigned_meanwhile(w: Any, xs: list[float]) -> Any:
    todo, s = [x * w for x in xs], 0.0
    for x in todo:
        s = s + x
        if s < 0.8:
            todo.append(x + 0.2)
        if s > 1.0:
            todo = [s]
    for x in todo:
        s = s + x * 0.1
    len = 2.0  # noqa: A001
    for x in todo:
        s = s + x * len
        if s < 2.0:
            todo.append(x)
    return s


def returned_early(w: Any, xs: list[float]) -> Any:
    todo, s = [x * w for x in xs], 0.0
    for x in todo:
        if s > 2.0:
            return s
        s = s + x
        todo.insert(0, x * 0.9)
    return s * 2.0


def by_functions(w: Any, xs: list[float]) -> Any:
    todo, s = [x * w for x in xs], 0.0

    def more(x: Any) -> None:
        todo.append(x * 0.5)

    def put(items: Any, x: Any) -> None:
        items.append(x * 0.4)

    for x in todo:
        s = s + x
        if x > 0.3:
            more(x)
    for x in todo:
        s = s * 0.9 + x
        if x > 0.3:
            put(todo, x)
    return s, todo


def nested(w: Any, xs: list[float]) -> Any:
    q, s = [x * w for x in xs], 0.0
    for x in q:
        for y in q:
            s = s + x * y
            if s < 2.0:
                q.append(s)
    for x in xs:
        parts = [x * w]
        for y in parts:
            s = s + y
            if y > 0.2:
                parts.append(y * 0.5)
    return s, len(q)


class Box:
    def __init__(self, items: list[Any]) -> None:
        self.items, self.turns = items, 0


def held(w: Any, xs: list[float]) -> Any:
    box, s = Box([x * w for x in xs]), 0.0
    for x in box.items:
        s = s + x
        if x > 0.3:
            box.items.append(x * 0.5)
    boxes = [Box([x * w]) for x in xs]
    for b in boxes:
        b.turns += 1
        s = s + b.items[0] * b.turns
        if b.turns < 3:
            boxes.append(b)
        for x in b.items:
            if len(b.items) < 4:
                b.items.append(x * 0.5)
    return s, len(boxes)


def by_structure(w: Any, xs: list[float]) -> Any:
    q, s = [x * w for x in xs], 0.0
    for k, x in enumerate(q):
        s = s + x * k
        if len(q) < 5:
            q.append(x * 0.5)
    return jnp.tanh(s)


PROGRAMS = (
    *(work_list, taken_out, put_in_front, backwards, items_ahead, assigned_meanwhile, returned_early, by_functions),
    *(nested, held, by_structure),
)
EVERYWHERE = (work_list, by_functions, held)


@pytest.mark.parametrize(
    "program",
    [pytest.param(f, id=f.__name__, marks=pytest.mark.long if f is nested else ()) for f in PROGRAMS],
)
def test_each_turn_reads_what_the_list_holds_then(program: Any) -> None:
    with ab.options(trace=False):
        f = ab.batched(program, in_axes=(None, 0))
        check_equivalence(f, BATCH, (W,), backends=("llvm",), jit=False)


@pytest.mark.parametrize("program", EVERYWHERE, ids=lambda f: f.__name__)
def test_on_every_back_end(program: Any) -> None:
    with ab.options(trace=False):
        f = ab.batched(program, in_axes=(None, 0))
        check_equivalence(f, BATCH[:3], (W,), backends=("interpret", "xla"), jit=False, grads=program is work_list)
