"""Classes as users write them: inheritance, class and static methods, operators, callables, containers."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from tests.frontend.harness import check


class Kind(enum.IntEnum):
    A = 0
    B = 1


@dataclass
class Shape:
    scale: float
    count: ClassVar[int] = 3

    def area(self):
        return self.base() * self.scale

    def base(self):
        raise NotImplementedError

    @staticmethod
    def twice(x):
        return 2 * x

    @classmethod
    def unit(cls, scale):
        return cls(scale, 1.0)

    def __call__(self, x):
        return self.area() + x


@dataclass
class Square(Shape):
    side: float = 1.0
    kind: Kind = Kind.A

    def base(self):
        return self.side * self.side

    @functools.cached_property
    def diagonal(self):
        return self.side * 1.5


@dataclass
class Circle(Shape):
    radius: float = 1.0

    def base(self):
        return 3 * self.radius**2

    def area(self):
        return super().area() + 1


SHAPES = [Square(2.0, 3.0), Circle(1.0, 2.0), Square(1.0, kind=Kind.B)]


def test_inheritance_and_methods():
    def f(s):
        extra = s.diagonal if isinstance(s, Square) else 0.5
        return s.area(), s(2.0), s.twice(3), s.count, Square.unit(2.0).side, Shape.twice(s.scale), extra

    check(f, SHAPES)


def test_int_enums():
    check(lambda s: s.kind == Kind.B if isinstance(s, Square) else False, SHAPES)


class Vector(NamedTuple):
    x: Any
    y: Any

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, k):
        return Vector(self.x * k, self.y * k)

    def __neg__(self):
        return Vector(-self.x, -self.y)

    @property
    def norm(self):
        return (self.x**2 + self.y**2) ** 0.5


def test_operators_of_classes():
    def f(n):
        a = Vector(n, 2.0)
        b = a * 2 + Vector(1, 1)
        return -b, b.norm, a == Vector(n, 2.0), b.x < 3

    check(f, [1, 2])


class Stack:
    def __init__(self, items=()):
        self.items = tuple(items)

    def push(self, x):
        return Stack((*self.items, x))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        return self.items[k]


def test_plain_classes():
    def f(n):
        s = Stack().push(n).push(n * 2).push(3)
        return len(s), s[1], s[-1], sum(s.items)

    check(f, [1, 2])


@dataclass
class Sentence:
    words: list[str]
    heads: list[int] = field(default_factory=list)
    vectors: np.ndarray = field(default_factory=lambda: np.ones((2, 3), np.float32))
    pair: Vector = field(default_factory=lambda: Vector(1, 2.0))


SENTENCES = [Sentence(["the", "cat"], [1, -1]), Sentence(["cat"], [-1])]


def test_strings_in_lists():
    table = {"the": 0, "cat": 1}

    def f(p, s):
        xs = [p[table[w]] for w in s.words]
        known = sum(1 for w in s.words if w == "cat")
        default = [table.get(w, 7) for w in s.words]
        return sum(xs), known, default, [w in ("the", "a") for w in s.words], s.pair.x + s.pair[1], s.pair.norm

    check(f, SENTENCES, jnp.arange(6.0).reshape(2, 3))


def test_unpacking_forms():
    def f(s):
        (a, b), c = s.pair, len(s.words)
        [d, *e] = [a, b, c]
        first, *_ = s.heads
        return d, tuple(e), first, {**{"a": a}, "b": c}, [*range(3)], (*s.pair, 1)

    check(f, SENTENCES)


def test_while_with_a_stack_of_nodes_is_a_loop():
    def f(s):
        k, seen = 0, 0
        while k != -1 and seen < 5:
            k = s.heads[k]
            seen += 1
        return seen

    check(f, SENTENCES)


def test_dict_comprehensions_and_methods():
    def f(n):
        d = {k: n * i for i, k in enumerate(("a", "b"))}
        d["c"] = n
        total = 0
        for k, x in d.items():
            total += x if k != "b" else 2 * x
        return total, list(d.values()), "a" in d, d.get("z", 0), sorted(d), dict(d, e=1)["e"]

    check(f, [1, 3])


def test_getattr_hasattr_type():
    def f(s):
        if hasattr(s, "radius"):
            return getattr(s, "radius")
        return s.side

    check(f, SHAPES)


def test_match_everything():
    def f(s):
        match s:
            case Square(side=side, kind=Kind.A) if side > 2:
                return 1.0
            case Square():
                return 2.0
            case Circle(radius=r):
                return r * 3
        return 0.0

    check(f, SHAPES)

    def g(t):
        match t:
            case (0, y):
                return y
            case (x, 0):
                return x
            case (x, y):
                return x * y

    check(g, [(0, 3), (4, 0), (4, 5)])

    def h(xs):
        match xs:
            case []:
                return 0
            case [x]:
                return x
            case [x, *rest]:
                return x + len(rest)

    check(h, [[], [3], [4, 5, 6]])

    def d(n):
        match {"a": n, "b": 2}:
            case {"a": 1, **rest}:
                return rest["b"]
            case {"a": x}:
                return x

    check(d, [1, 5])


def test_nested_conditions_narrow():
    def f(s):
        if not isinstance(s, Square) or s.side < 2:
            return 0.0
        return s.side if s.kind is Kind.A else -1.0

    check(f, SHAPES)


def test_ternary_chains_of_none():
    def f(n):
        best = None
        for k in range(n):
            if best is None or k * (5 - k) > best[0]:
                best = (k * (5 - k), k)
        return -1 if best is None else best[1]

    check(f, [0, 1, 4])


@dataclass
class Totals:
    n: int = 0
    s: float = 0.0


def test_objects_built_inside_may_change():
    def f(xs):
        t = Totals()
        u = t
        for x in xs:
            t.n += 1
            if x > 1:
                t.s = t.s + x
        return t, u.n

    check(f, [[1, 2, 3], []])


def test_dicts_in_examples():
    def f(d):
        total = 0
        for k, x in d.items():
            total += x if k == "a" else 2 * x
        return total, len(d), "a" in d, d.get("a", 0), list(d.keys())[0] == "a"

    check(f, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])


@functools.lru_cache
def cached(n):
    return n if n < 2 else cached(n - 1) + cached(n - 2)


def test_cached_functions():
    check(lambda n: cached(n), [1, 6])


def test_match_on_strings():
    def f(t):
        match t[0]:
            case "+":
                return t[1] + 1
            case "-" | "neg":
                return -t[1]
            case _:
                return 0

    check(f, [("+", 1), ("neg", 2), ("x", 3)])


class Named:
    def twice(self):
        return self.scale * 2


class NamedSquare(Named, Square):
    def __init__(self, side):
        Square.__init__(self, 2.0, side=side)


def test_the_init_of_a_dataclass_called_by_name():
    check(lambda n: NamedSquare(n).twice() + NamedSquare(n).area(), [1, 2])
