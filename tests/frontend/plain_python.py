"""Plain Python functions of a shared number and a list: the programs of `test_plain_python.py`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


# ---- lists that functions return


@program
def returned_early(w, xs):
    out = []
    for x in xs:
        if w * x > 1.5:
            return out
        out.append(w * x)
    return [*out, 0.0]


@program
def returned_early_in_a_loop(w, xs):
    def go(k):
        acc = [w]
        for x in xs[k:]:
            if w * x > 1:
                return acc
            if w * x > 0.6:
                return [x]
            acc.append(x)
        acc.append(100.0)
        return acc

    out = []
    for k in range(len(xs)):
        out.append(sum(go(k)))
    return out


@program
def quicksort(w, xs):
    def sort(q):
        if len(q) <= 1:
            return q
        p, *rest = q
        return [*sort([v for v in rest if v < p]), p, *sort([v for v in rest if v >= p])]

    return sort([w * x for x in xs])


@program
def subsets(w, xs):
    best = 0.0

    def go(i, s, chosen):
        nonlocal best
        if i == len(xs):
            if best < s <= 2.0:
                best = s
            return
        if s + w * xs[i] <= 2.0:
            chosen.append(i)
            go(i + 1, s + w * xs[i], chosen)
            chosen.pop()
        go(i + 1, s, chosen)

    go(0, 0.0, [])
    return best


# ---- objects that say what operators do


class Least:
    def __init__(self, v, tag=0.0):
        self.v = v
        self.tag = tag

    def __lt__(self, other):
        return self.v < other.v


@functools.total_ordering
class Whole:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v

    def __lt__(self, other):
        return self.v < other.v


class Vec:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, other):
        return Vec(self.x + other.x, self.y + other.y)


@program
def ordered_by_a_method(w, xs):
    q = [Least(w)]
    for x in xs:
        if w * x > 0.4:
            q.append(Least(w * x, x))
    q.sort()
    tags = [c.tag for c in q]
    q.sort(reverse=True)
    return min(q).v, max(q).tag, tags, [c.tag for c in sorted(q)], [c.tag for c in q]


@program
def ordered_in_total(w, xs):
    q = [Whole(w * x) for x in xs if w * x > 0.4]
    q.sort()
    s = 0.0
    for a, b in itertools.pairwise(q):
        if a <= b and b >= a and not a > b:
            s = s + a.v
    return s


@program
def ordered_by_a_comparison(w, xs):
    q = [w * x for x in xs if w * x > 0.4]
    return sorted(q, key=functools.cmp_to_key(lambda a, b: -1 if a > b else (1 if a < b else 0)))


@program
def summed_objects(w, xs):
    t = sum([Vec(w * x, w) for x in xs if w * x > 0.4], Vec(0.0, 0.0))
    return t.x, t.y


@program
def ordered_lists(w, xs):
    q = [w * x for x in xs if w * x > 0.4]
    r = [v for v in q if v > 1]
    rows = [[w * x] * (2 if w * x > 1 else 1) for x in xs]
    return q < r, q <= r, q > r, q >= r, tuple(q) < (w, w), max(q, r), min([q, r]), sorted(rows)
