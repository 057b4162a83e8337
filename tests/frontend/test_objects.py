"""Classes of the examples and classes built inside: fields, methods, properties, dispatch, None, strings, enums."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.frontend.harness import check


class Op(enum.Enum):
    ADD = "+"
    MUL = "*"
    NEG = "-"


@dataclass
class Num:
    value: float

    def eval(self):
        return self.value

    @property
    def size(self):
        return 1


@dataclass
class Bin:
    op: Op
    left: "Num | Bin"
    right: "Num | Bin"

    def eval(self):
        a, b = self.left.eval(), self.right.eval()
        if self.op is Op.ADD:
            return a + b
        if self.op == Op.MUL:
            return a * b
        return a - b

    @property
    def size(self):
        return 1 + self.left.size + self.right.size


EXPRESSIONS = [
    Num(2.0),
    Bin(Op.ADD, Num(2.0), Num(3.0)),
    Bin(Op.NEG, Bin(Op.MUL, Num(2.0), Num(3.5)), Num(1.0)),
]


def test_methods_dispatch_on_the_class():
    check(lambda e: (e.eval(), e.size), EXPRESSIONS)


def test_isinstance():
    def f(e):
        if isinstance(e, Num):
            return e.value
        a, b = f(e.left), f(e.right)
        return a + b if e.op is Op.ADD else a * b

    check(f, EXPRESSIONS)


def test_match_over_classes():
    def f(e):
        match e:
            case Num(value):
                return value
            case Bin(op=Op.ADD, left=left, right=right):
                return f(left) + f(right)
            case Bin(Op.MUL, left, right):
                return f(left) * f(right)
            case Bin(_, left, right):
                return f(left) - f(right)

    check(f, EXPRESSIONS)


def test_tables_by_enum():
    table = {Op.ADD: 1.0, Op.MUL: 2.0, Op.NEG: 3.0}
    functions = {Op.ADD: lambda a, b: a + b, Op.MUL: lambda a, b: a * b, Op.NEG: lambda a, b: a - b}

    def f(e):
        if isinstance(e, Num):
            return e.value
        return table[e.op] + functions[e.op](f(e.left), f(e.right))

    check(f, EXPRESSIONS)


def test_enum_attributes():
    check(lambda e: 0 if isinstance(e, Num) else (1 if e.op.value == "+" else 2), EXPRESSIONS)


@dataclass
class Item:
    name: str
    weight: float | None = None
    tags: tuple[int, int] = (1, 2)
    info: dict[str, int] = field(default_factory=lambda: {"a": 1})
    vector: np.ndarray = field(default_factory=lambda: np.arange(3, dtype=np.float32))
    parent: "Item | None" = None


ITEMS = [Item("x"), Item("y", 2.5, (3, 4), {"a": 7}), Item("z", 1.5, parent=Item("x", 0.5))]


def test_strings_as_keys_of_shared_dicts():
    def f(p, t):
        return p[t.name] * 2, p["x"], t.name == "x", t.name in ("x", "z")

    check(f, ITEMS, {"x": jnp.ones(2), "y": jnp.zeros(2), "z": jnp.full(2, 3.0)})


def test_strings_not_in_a_table_fail():
    check(lambda p, t: p[t.name], ITEMS, {"x": jnp.ones(2), "y": jnp.zeros(2)})


def test_optional_fields():
    def f(t):
        w = 0.0 if t.weight is None else t.weight * 2
        return w, t.weight or 7.0

    check(f, ITEMS)
    check(lambda t: t.weight * 2, ITEMS)
    check(lambda t: t.weight, ITEMS)


def test_tuples_dicts_arrays_in_examples():
    def f(t):
        a, b = t.tags
        return a + b, t.tags[1], t.info["a"], t.vector * 2, t.vector[a - 2], len(t.tags), t.vector.shape[0]

    check(f, ITEMS)


def test_none_fails_like_python():
    check(lambda t: t.parent.name == "x", ITEMS)


def test_arguments_that_are_none():
    check(lambda t: 0 if t is None else t.tags[0], [None, *ITEMS])
    check(lambda n: -1 if n is None else n * 2, [None, 3])


class Pair(NamedTuple):
    a: float
    b: float = 2.0

    def total(self):
        return self.a + self.b


@dataclass
class State:
    h: object
    n: int = 0

    def step(self, x):
        return State(self.h + x, self.n + 1)

    def __add__(self, other):
        return State(self.h + other.h, self.n + other.n)

    @property
    def double(self):
        return self.h * 2


class Counter:
    def __init__(self, start, by=1):
        self.value = start
        self.by = by

    def next(self):
        return Counter(self.value + self.by, self.by)


def test_objects_built_inside():
    def f(n):
        p = Pair(n * 1.0)
        s = State(jnp.ones(2) * n).step(3.0)
        t = s + State(jnp.ones(2), 5)
        c = Counter(n, by=3).next().next()
        return p, p.total(), t, t.double, c.value, p._replace(a=1.0).a, replace(t, n=9).n

    check(f, [1, 4])


def test_objects_cross_loops_and_calls():
    def f(xs):
        s = State(0.0)
        for x in xs:
            s = s.step(x)
        return s

    check(f, [[1, 2], []])


def test_random_keys():
    def f(key):
        a, b = jax.random.split(key)
        return jax.random.normal(a, (3,)) + jax.random.uniform(b)

    check(f, [jax.random.key(1), jax.random.key(2)])


def test_lists_of_tuples():
    check(lambda xs: [(x, y * 2) for x, y in xs], [[(1, 2.0)], [(3, 4.0), (5, 6.0)], []])


def test_identity():
    def f(t):
        return t.parent is t, t.parent is not None and t.parent is t.parent

    check(f, ITEMS)
