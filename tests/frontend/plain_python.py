"""Plain Python functions of a shared number and a list: the programs of `test_plain_python.py`."""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import math
import operator
import statistics
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


# ---- slices and places of lists


@program
def slices_with_steps(w, xs):
    q = [w * x for x in xs if w * x > 0.4]
    r, t = list(q), [w * x for x in xs] + [1.0, 2.0]
    r[::2] = [0.0 * w for _ in r[::2]]
    t[::2] = [v + 1.0 if v > 1 else v for v in t[::2]]
    u = list(q)
    del u[::2], t[-1::-2]
    q[::-1] = list(q)
    return q, r, t, u


@program
def slices_of_another_length(w, xs):
    q = [w * x for x in xs if w * x > 0.4]
    q[::2] = [w, w]
    return q


@program
def places(w, xs):
    q = [w * x for x in xs if w * x > 0.4] + [w, 1.0, w]
    r, order = sorted(q), []
    for x in xs:
        bisect.insort(order, (w * x, x), key=lambda p: -p[0])
    return q.index(w, len(q) - 2), q.index(1.0, -3, 100), bisect.bisect_right(r, 1.0, 0, len(r)), [x for _, x in order]


# ---- functions of the library


@program
def choices_of_three(w, xs):
    q = [w * x for x in xs if w * x > 0.4]
    s = sum([a + 2 * b + 4 * c for a, b, c in itertools.permutations(q, 3)])
    s = s + sum([a + 2 * b + 4 * c for a, b, c in itertools.combinations(q, 3)])
    return s + sum([a * b + c for a, b, c in itertools.product(q, [1, 2], q)]), len(
        list(itertools.product(q, repeat=3))
    )


class Outer:
    def __init__(self, inner):
        self.inner = inner


@program
def getters(w, xs):
    q = [Outer(Least(w * x, x)) for x in xs if w * x > 0.4]
    rows = [(x, w * x, 1.0) for x in xs]
    s = sum(map(operator.attrgetter("inner.v"), q)) + len(sorted(q, key=operator.attrgetter("inner.v", "inner.tag")))
    counts = map(operator.methodcaller("count", 1.0), rows)
    return s, [operator.itemgetter(1, 2, 0)(r) for r in rows], list(counts)


# ---- trees with lists of children


class Node:
    def __init__(self, value, kids):
        self.value = value
        self.kids = kids


def total(n):
    s = n.value
    for c in n.kids:
        s = s + 0.5 * total(c)
    return s


def full(xs, i):
    return Node(xs[i], [full(xs, j) for j in (2 * i + 1, 2 * i + 2) if j < len(xs)])


@program
def grown_tree(w, xs):
    def make(k, y):
        if k == 0 or y > 3.0:
            return Node(y, [])
        return Node(y, [make(k - 1, y * 1.5), make(k - 1, y + w)])

    return total(make(2, w * xs[0]))


@program
def pruned_tree(w, xs):
    def prune(n):
        return Node(n.value * w, [prune(c) for c in n.kids if w * c.value > 0.5])

    return total(prune(full(xs, 0)))


@program
def pruned_to_none(w, xs):
    def prune(n):
        kids = []
        for c in n.kids:
            p = prune(c)
            if p is not None:
                kids.append(p)
        if not kids and w * n.value < 0.5:
            return None
        return Node(n.value * w, kids)

    p = prune(full(xs, 0))
    return total(p) if p is not None else -1.0


# ---- functions that keep variables, exceptions that are looked at


@program
def counters(w, xs):
    def make(start):
        n = start
        seen = []

        def step(v):
            nonlocal n
            n += v
            seen.append(v)
            return n

        def mean():
            return sum(seen) / max(len(seen), 1)

        return step, mean

    (a, of_a), (b, of_b) = make(0.0), make(w)
    for x in xs:
        if w * x > 1:
            a(x)
        else:
            b(1.0)
    return a(0.5), b(0.25), of_a(), of_b()


@program
def functions_in_a_tuple(w, xs):
    def make(k):
        return lambda v: v * k, lambda v: v + k

    f, g = make(w)
    s = 0.0
    for x in xs:
        if w * x > 1:
            s = f(s) + g(x)
    return s


@program
def one_handler_for_two(w, xs):
    n = 0.0
    for x in xs:
        try:
            if w * x > 1:
                raise ValueError("high", x)
            if w * x < 0.4:
                raise KeyError("low")
            n = n + x
        except (ValueError, KeyError) as e:
            n = n + (10.0 * e.args[1] if isinstance(e, ValueError) else 100.0)
    return n


@program
def statistics_of_a_list(w, xs):
    q = [w * x for x in xs if w * x > 0.2] + [w, 2.0]
    known = statistics.mean(q), statistics.median(q), statistics.fmean(q[1:]), math.dist([w, 1.0], [2.0, w])
    return known, statistics.pstdev(q), statistics.stdev(q), statistics.variance(q), statistics.pvariance(q, mu=w)


@program
def merged_and_keyed(w, xs):
    q = sorted([w * x for x in xs if w * x > 0.4])
    d = dict.fromkeys(range(len(q)), 0)
    a = {i for i, x in enumerate(xs) if w * x > 1}
    return list(heapq.merge(q, sorted([w * x + 0.25 for x in xs]))), d, sorted(a.union([7], {8, 9}))


# ---- sets inside of containers; counters


@program
def sets_by_keys(w, xs):
    d, e = {}, collections.defaultdict(set)
    for i, x in enumerate(xs):
        d.setdefault(1 if w * x > 1 else 0, set()).add(i % 2)
        e[i % 2].add(1 if w * x > 1 else 0)
    return d, len(e[0]) + 10 * len(e[1]), 1 in e[0], sorted(e[1])


@program
def sets_of_neighbours(w, xs):
    n = len(xs)
    near = [set() for _ in range(n)]
    for i in range(n):
        for j in range(i):
            if w * xs[i] > xs[j]:
                near[i].add(j)
                near[j].add(i)
    return [len(a) for a in near], sum(sum(a) for a in near), len(near[0] & near[-1]), [0 in a for a in near]


@program
def sets_in_a_list(w, xs):
    one = {1}
    groups, two = [{0}, {1}, {2}], [one, {2}]
    for i, x in enumerate(xs):
        if w * x > 1:
            groups[i % 3] |= groups[(i + 1) % 3]
            groups[0].update([5, i])
            two[i % 2].add(i)
            two[1] = one
        elif 0 in groups[0]:
            groups[0].remove(0)
    return [sorted(g) for g in groups], groups[1] <= groups[0], sorted(one), [len(x) for x in two]


@program
def set_of_a_function(w, xs):
    def visit(i, seen):
        if i in seen:
            return 0.0
        seen.add(i)
        s = w * xs[i]
        if s > 1:
            s = s + visit((i + 1) % len(xs), seen)
        return s + visit((i * 2) % len(xs), seen)

    seen = set()
    return visit(0, seen), len(seen)


@program
def counters_together(w, xs):
    c, e = collections.Counter(), collections.Counter()
    for i, x in enumerate(xs):
        if w * x > 1:
            c[i % 2] += 1
        else:
            e[i % 2] += 1
        c[0] += 1
    both = (c | e)[0], (c | e)[1], (c & e)[0], (c + e)[0], (c - e)[1], (c + e).total()
    return both, c == e, (c | e) == c
