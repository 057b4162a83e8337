"""Trees whose nodes hold lists of others, and functions in which lists of the examples stand where some do that the
function makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class T:
    x: float
    kids: list[T]


@dataclass
class Maybe:
    x: float
    kids: list[Maybe] | None


@dataclass
class Weighted:
    x: float
    pairs: list[tuple[float, Weighted]]


@dataclass
class Rows:
    x: float
    rows: list[list[Rows]]


@dataclass
class Named:
    name: str
    x: float
    kids: list[Named | None]


MAYBE = [Maybe(0.7, [Maybe(0.1, None), Maybe(0.9, [Maybe(0.3, [])])]), Maybe(0.1, None), Maybe(0.4, [])]
WEIGHTED = [
    Weighted(0.7, [(0.5, Weighted(0.1, [])), (0.2, Weighted(0.9, [(1.0, Weighted(0.5, []))]))]),
    Weighted(0.1, []),
]
ROWS = [Rows(0.7, [[Rows(0.1, [])], [], [Rows(0.9, [[Rows(0.2, [])]]), Rows(0.5, [])]]), Rows(0.1, [])]
NAMED = [Named("ab", 0.7, [Named("c", 0.1, []), None, Named("cat", 0.9, [None])]), Named("x", 0.1, [None])]
TREES = [
    T(0.7, [T(-0.2, []), T(0.9, [T(0.1, []), T(0.6, [])]), T(0.3, [])]),
    T(-0.5, []),
    T(0.2, [T(0.8, [T(-0.4, [T(0.5, [])])])]),
]


def total(t):
    r = t.x
    for k in t.kids:
        r = r * 0.9 + 0.5 * total(k)
    return r


def pruned(p, t):
    """What is left as it is, beside new nodes of lists that `append` fills."""

    def go(t):
        if t.x < 0:
            return t
        kids = []
        for k in t.kids:
            if k.x > -0.3:
                kids.append(go(k))
        return T(t.x * p[0], kids)

    return total(go(t))


def joined(p, t):
    def go(t):
        more = [T(p[1], [])]
        return T(t.x * p[0], t.kids + more) if t.x > 0.4 else T(t.x, more + [go(k) for k in t.kids])

    return total(go(t))


def merged(p, t):
    def go(a, b):
        if not a.kids or not b.kids:
            return b if not a.kids else a
        return T(a.x + p[0] * b.x, [go(x, y) for x, y in zip(a.kids, b.kids, strict=False)])

    return total(go(t, t.kids[0] if t.kids else t))


def gathered(p, t):
    """All nodes in a list of a closure, and one more."""
    found = []

    def go(t):
        found.append(t)
        for k in t.kids:
            go(k)

    go(t)
    found.append(T(p[0], []))
    return sum(n.x * (1 + len(n.kids)) for n in found)


def extended(p, t):
    kids = [T(p[0], [])]
    kids.extend(t.kids[1:])
    return total(T(t.x, kids)) + max(kids, key=lambda k: k.x).x


def worklist(p, t):
    level, s, d = [t], 0.0, 1.0
    while level:
        behind = []
        for n in level:
            s += n.x * d
            for k in n.kids:
                behind.append(k if k.x > 0.2 else T(k.x * p[0], k.kids))
        level, d = behind, d * p[1]
    return s


def collapsed(t):
    if len(t.kids) == 1:
        return collapsed(t.kids[0])
    return T(t.x * 2.0, [k if k.x > 0.5 else collapsed(k) for k in t.kids])


def with_none(p, t):
    def go(t):
        if t.kids is None:
            return t
        return Maybe(t.x * p[0], [go(k) for k in t.kids] if t.x > 0.2 else None)

    def whole(t):
        return t.x + (p[1] if t.kids is None else sum(0.5 * whole(k) for k in t.kids))

    return whole(go(t))


def with_pairs(p, t):
    def go(t):
        return t if t.x < 0.4 else Weighted(t.x, [(w * p[0], go(k)) for w, k in t.pairs])

    def whole(t):
        r = t.x
        for w, k in t.pairs:
            r += w * whole(k)
        return r

    return whole(go(t))


def with_rows(p, t):
    def go(t):
        return t if t.x < 0.3 else Rows(t.x * p[0], [[go(k) for k in row] for row in t.rows])

    def whole(t):
        r = t.x
        for row in t.rows:
            for k in row:
                r += 0.5 * whole(k)
        return r

    return whole(go(t))


def with_names(t):
    if t.x < 0.3:
        return t
    return Named(t.name + "?", t.x, [k if k is None else with_names(k) for k in t.kids])


NUMBERS = [(f, TREES) for f in (pruned, joined, merged, gathered, extended, worklist)]
NUMBERS += [(with_none, MAYBE), (with_pairs, WEIGHTED), (with_rows, ROWS)]
OBJECTS = [(collapsed, TREES), (with_names, NAMED)]
