"""Plain Python functions of a shared number and a list: the programs of `test_plain_python.py`."""

from __future__ import annotations

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
