"""Classes of trees and expressions, examples of them, and functions that make new ones out of old ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class N:
    x: float
    left: N | None = None
    right: N | None = None


@dataclass
class Num:
    v: float


@dataclass
class Add:
    l: Num | Add | Mul  # noqa: E741
    r: Num | Add | Mul


@dataclass
class Mul:
    l: Num | Add | Mul  # noqa: E741
    r: Num | Add | Mul


@dataclass
class Held:
    name: str
    root: N
    w: float


TREES = [N(0.7, N(-0.2, None, N(0.4)), N(0.3)), N(-0.5), N(0.1, None, N(0.9, N(0.2, N(-0.6)), None))]
TWICE = N(0.3, SHARED := N(0.2, N(0.1)), SHARED)
EXPRESSIONS = [Add(Num(1.0), Mul(Num(0.0), Num(2.0))), Num(3.0), Mul(Add(Num(0.5), Num(1.5)), Num(-1.0))]


def insert(p, t):
    """Two numbers put into a search tree, of which all that is not on their way stays."""

    def go(t, x):
        if t is None:
            return N(x)
        if x < t.x:
            return N(t.x, go(t.left, x), t.right)
        return N(t.x, t.left, go(t.right, x))

    def total(t):
        return 0.0 if t is None else t.x + 0.5 * total(t.left) + 0.25 * total(t.right)

    return total(go(go(t, p[0]), p[0] * 0.5))


def greatest(p, t):
    best = N(p[1])

    def walk(t):
        nonlocal best
        if t is None:
            return
        if t.x > best.x:
            best = t
        walk(t.left)
        walk(t.right)

    walk(t)
    return best.x * 2 + (best.left.x if best.left is not None else p[0])


def among(p, t):
    found = N(p[0])
    for c in [t, t.left, N(p[1], t)]:
        if c is not None and c.x > found.x:
            found = c
    return found.x


def is_itself(p, t):
    a = t if t.x > 0 else N(p[0])
    return p[0] if a is t else 2.0 * a.x


def are_one(p, t):
    """One object of the examples that is read at two places is one."""
    a = N(p[0], t, t) if t.x > 0 else t
    same = 0.5 if a.left is a.right else 1.0
    if t.left is not None and t.right is not None:
        same = same * (3.0 if t.left is t.right else 5.0)
    return same * p[1] + (1.0 if a is t else 0.0)


def in_dict(p, t):
    memo = {}

    def go(t, d):
        if t is None:
            return
        memo[d] = t if t.x > 0 else N(p[0], t, None)
        go(t.left, d + 1)
        go(t.right, d + 1)

    go(t, 0)
    return sum(n.x for n in memo.values())


def simplified(p, e):
    """The value of an expression without products with zero."""

    def go(e):
        if isinstance(e, Num):
            return e
        left, right = go(e.l), go(e.r)
        if isinstance(e, Add):
            return Add(left, right)
        if isinstance(left, Num) and left.v == 0.0:
            return Num(0.0)
        return Mul(left, right)

    def size(e):
        return 1 if isinstance(e, Num) else 1 + size(e.l) + size(e.r)

    return size(go(e)) * p[0]


def mirrored(t):
    if t.left is None and t.right is None:
        return t
    return N(t.x, mirrored(t.right) if t.right is not None else None, mirrored(t.left) if t.left is not None else None)


def scaled(t):
    return None if t is None else N(t.x * 2.0, scaled(t.left), scaled(t.right))


def derivative(e):
    match e:
        case Num():
            return Num(1.0)
        case Add(l, r):
            return Add(derivative(l), derivative(r))
        case Mul(l, r):
            return Add(Mul(derivative(l), r), Mul(l, derivative(r)))


def counted(p, t):
    """Dicts that calls return, and other dicts hold."""

    def go(t):
        if t is None:
            return {"n": 0, "x": p[1], "parts": []}
        parts = [go(c) for c in (t.left, t.right)]
        return {"n": 1 + sum(k["n"] for k in parts), "x": t.x * p[0], "parts": parts}

    def total(d):
        return d["x"] / (d["n"] + 1) + sum(total(k) for k in d["parts"])

    return total(go(t))


def as_dicts(t):
    if t is None:
        return None
    return {"value": t.x * 2.0, "left": as_dicts(t.left), "right": as_dicts(t.right)}


NUMBERS = [
    (insert, TREES),
    (greatest, TREES),
    (among, TREES),
    (is_itself, TREES),
    (are_one, [*TREES, TWICE]),
    (in_dict, TREES),
]
NUMBERS += [(simplified, EXPRESSIONS), (counted, TREES)]
OBJECTS = [(mirrored, TREES), (scaled, TREES), (derivative, EXPRESSIONS), (as_dicts, TREES)]
