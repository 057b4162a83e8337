"""Deep copies of what memory holds: what stands in two places, or leads back to itself, does so in the copy."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS: list[Callable[[Any, Any], Any]] = []


@dataclass
class Cell:
    value: Any
    next: Any = None


@dataclass
class Bst:
    key: Any
    left: Any = None
    right: Any = None


@dataclass
class Two:
    a: Any
    b: Any


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


@program
def chosen_rows(w: Any, xs: Any) -> Any:
    a, b = [w], [2 * w]
    q = [a, b, a]
    for x in xs:
        q.append(a if w * x > 1 else b)
    p = copy.deepcopy(q)
    p[0].append(1.0)
    p[1].append(5.0)
    return [list(r) for r in p], [list(r) for r in q]


@program
def one_row(w: Any, xs: Any) -> Any:
    row = [0.0 * w] * 2
    grid = [row] * 3
    for x in xs:
        if w * x > 1:
            grid[1][0] += x
    g = copy.deepcopy(grid)
    g[2][1] = 7.0 * w
    return g, grid


@program
def in_a_dict(w: Any, xs: Any) -> Any:
    a, b, d = [w], [w, w], {}
    for i, x in enumerate(xs):
        d[i] = a if w * x > 1 else b
    e = copy.deepcopy(d)
    for i in range(len(xs)):
        e[i].append(1.0)
    return [len(e[i]) for i in range(len(xs))], len(a), len(b)


@program
def in_two_fields(w: Any, xs: Any) -> Any:
    a, b = [w], [w, w]
    t, pair = Two(a, b), (a, b)
    for x in xs:
        if w * x > 1:
            t.b, pair = a, (a, a)
    u, other = copy.deepcopy(t), copy.deepcopy(pair)
    u.a.append(3.0)
    other[0].append(4.0)
    return len(u.a), len(u.b), len(t.a), len(other[0]), len(other[1]), len(pair[1])


@program
def in_a_deque(w: Any, xs: Any) -> Any:
    d: Any = deque()
    for x in xs:
        if w * x > 1:
            d.append([x])
    e = copy.deepcopy(d)
    for r in e:
        r.append(1.0)
    return [len(r) for r in d], [len(r) for r in e]


@program
def objects_in_a_list(w: Any, xs: Any) -> Any:
    a, b = Cell(w), Cell(2 * w)
    q = [a, b]
    for x in xs:
        q.append(a if w * x > 1 else b)
    p = copy.deepcopy(q)
    p[0].value = 9.0 * w
    p[1].value = 7.0 * w
    return [c.value for c in p], [c.value for c in q]


@program
def a_ring(w: Any, xs: Any) -> Any:
    first = Cell(w)
    first.next = first
    for x in xs:
        if w * x > 1:
            first.next = Cell(w * x, first.next)
    other = copy.deepcopy(first)
    other.value = 100.0 * w
    s, c = 0.0 * w, other
    for _ in range(len(xs) + 2):
        s = s * 0.5 + c.value
        c = c.next
    return s, first.value


def insert(t: Any, k: Any) -> Any:
    if t is None:
        return Bst(k)
    if k < t.key:
        t.left = insert(t.left, k)
    else:
        t.right = insert(t.right, k)
    return t


def weighed(t: Any, d: Any) -> Any:
    return 0.0 if t is None else t.key * d + weighed(t.left, d * 0.5) + weighed(t.right, d * 0.25)


@program
def a_tree(w: Any, xs: Any) -> Any:
    root = None
    for x in xs:
        root = insert(root, w * x)
    other = copy.deepcopy(root)
    if other is not None:
        other.key = other.key + 100.0
    return weighed(root, 1.0), weighed(other, 1.0)


@program
def objects_with_lists_of_objects(w: Any, xs: Any) -> Any:
    a = Two(w, [])
    for x in xs:
        if w * x > 1:
            a.b.append(Cell(x))
        elif a.b:
            a.b.append(a.b[0])
    c = copy.deepcopy(a)
    for cell in c.b:
        cell.value += w
    return [x.value for x in c.b], [x.value for x in a.b]


@program
def again_and_again(w: Any, xs: Any) -> Any:
    states = [[w, w]]
    for x in xs:
        if w * x > 1:
            new = copy.deepcopy(states[-1])
            new[0] += x
            states.append(new)
        else:
            states[-1][1] += x
    return states


@program
def before_and_after(w: Any, xs: Any) -> Any:
    grid = [[x, w] for x in xs]
    for _ in range(2):
        old = copy.deepcopy(grid)
        for i in range(len(grid)):
            if old[i - 1][0] > 1:
                grid[i][1] = old[i - 1][0] + old[i][1]
    return grid


@program
def one_object_at_two_places(w: Any, xs: Any) -> Any:
    cell = Cell(w)
    pair = [cell, cell]
    for x in xs:
        if w * x > 1:
            pair = copy.deepcopy(pair)
            pair[0].value += x
    return pair[1].value, cell.value
