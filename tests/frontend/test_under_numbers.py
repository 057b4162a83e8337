"""Ordinary Python under data-dependent control flow: it is compiled, as no trace could take it."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import refused

XS = [[0.9, 0.41, -0.7, 1.3, 2.1], [0.5, 1.7], [1.4, 0.31, 0.8], [0.05]]
PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


class Shape:
    sides = 0
    unit = 1.0

    def __init__(self, r):
        self.r = r

    def area(self):
        return 0.0

    def describe(self):
        return self.area() * self.unit + self.sides


class Square(Shape):
    sides = 4

    def area(self):
        return self.r * self.r


class Circle(Shape):
    unit = 0.5

    def __init__(self, r, k):
        if r > 1.0:
            super().__init__(r * k)
        else:
            Shape.__init__(self, r)
        self.k = k
        self.r *= 2.0

    def area(self):
        return 3.0 * self.r * self.k + super().area()


@dataclass
class Line:
    x: float
    y: float = 2.0
    z: float = field(init=False, default=0.5)

    def total(self):
        return self.x + self.y * self.z


class Slope(Line):
    def __init__(self, x, k):
        super().__init__(x, y=x * k)
        self.k = k


@program
def bases_set_attributes(w, xs):
    shapes, s = [], 0.0
    for x in xs:
        if x * w > 0.3:
            shapes.append(Square(x))
        else:
            shapes.append(Circle(x, w))
        line = Slope(x, w) if x * w > 0.5 else Line(x)
        s += shapes[-1].describe() * line.total()
    return s + len(shapes) + sum(q.r for q in shapes)


class Linked:
    def __init__(self, value, parent=None):
        self.value = value
        self.parent = parent
        self.kids = []
        if parent is not None:
            parent.kids.append(self)


class Weighted(Linked):
    def __init__(self, value, parent, weight):
        super().__init__(value, parent)
        self.weight = weight


@program
def a_base_hands_the_object_on(w, xs):
    last = Weighted(0.0, None, 0.0)
    for x in xs:
        new = Weighted(x, last, w)
        if x * w > 0.3:
            last = new
    s = 0.0
    while last is not None:
        s = s * 0.5 + last.value + last.weight + len(last.kids)
        last = last.parent
    return s


@program
def methods_by_other_names(w, xs):
    out, s = [], 0.0
    push = out.append

    def visit(keep):
        for k, x in enumerate(xs):
            if x * w > 0.4:
                push(x)
                keep(k % 3)

    seen = set()
    visit(seen.add)
    for x in xs:
        row = [x]
        more, less = row.append, row.pop
        for y in xs:
            if y * w > 0.3:
                more(y)
            elif len(row) > 1:
                s += less()
        s += sum(row) * len(row)
    return s + sum(out) * len(seen)


@dataclass
class Town:
    pop: float
    add: float


@program
def fields_named_like_methods(w, xs):
    town = Town(1.0, w)
    for x in xs:
        if x * w > 0.3:
            town = Town(town.pop + x, town.add)
    pop = town.pop
    return pop * max(town.pop, town.add)


@program
def iterators_are_stepped(w, xs):
    it, s = iter(xs), 0.0
    first = next(it)
    for x in it:
        if x * w > 0.6:
            s += x * next(it, 1.0)
        elif x * w < 0.0:
            break
    else:
        s -= 1.0
    rest = [x * first for x in it]
    pairs = enumerate(xs)
    k, best = next(pairs)
    for j, x in pairs:
        if x * w > best:
            k, best = j, x * w
    return s + sum(rest) * len(rest) + best * (k + 1)


@program
def iterators_end(w, xs):
    it = iter(xs)
    s = 0.0
    while True:
        try:
            x = next(it)
        except StopIteration:
            break
        if x * w > 0.3:
            s += x
    known = {k: x for k, x in enumerate(xs)}
    keys = iter(known)
    while (k := next(keys, None)) is not None:
        if known[k] * w > 0.3:
            s += known[k] * next(keys, 9)
    it = iter(xs)
    while s * w < 2.0:
        s += next(it)
    return s


@program
def endless_iterators(w, xs):
    ids = itertools.count(1, 2)
    signs = itertools.cycle((1.0, -1.0, 0.5))
    found = {}
    for x in xs:
        if x * w > 0.3:
            found[next(ids)] = x * next(signs)
    return sum(k * x for k, x in found.items())


class Halves:
    def __init__(self, x, n):
        self.x = x
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0 or self.x < 0.05:
            raise StopIteration
        self.n -= 1
        self.x *= 0.5
        return self.x


@program
def iterators_of_classes(w, xs):
    s, kept = 0.0, Halves(xs[0] * w, 4)
    for x in xs:
        for h in Halves(x * w, 4):
            if h > 0.6:
                continue
            if h > 0.5:
                break
            s += h
        else:
            s -= 1.0
        if x * w > 0.3:
            s += next(kept, 0.25) * x
    return s + next(Halves(1.0, 1))


@dataclass
class Account:
    total: float = 0.0
    items: list = field(default_factory=list)


@program
def copies(w, xs):
    path, best, known = [w], Account(), {}
    for k, x in enumerate(xs):
        longer, other, more = copy.copy(path), copy.copy(best), copy.copy(known)
        longer.append(x)
        other.total += x
        more[k] = x
        if x * w > 0.3:
            path, best, known = longer, other, more
            best.items.append(x)
    return sum(path) * len(path) + best.total + sum(best.items) + sum(known.values())


@program
def deep_copies(w, xs):
    board, state = [[0.0] * 2 for _ in range(2)], {"past": [w], "account": Account()}
    for k, x in enumerate(xs):
        other, new = copy.deepcopy(board), copy.deepcopy(state)
        other[k % 2][0] += x
        new["past"].append(x)
        new["account"].total += x
        new["account"].items.append(w)
        if x * w > 0.3:
            board, state = other, new
    return board[0][0] + 2.0 * board[1][0] + sum(state["past"]) * state["account"].total + len(state["account"].items)


@program
def functions_of_itertools(w, xs):
    ys = [x for x in xs if x * w > 0.3]
    s = sum(a * b for a, b in itertools.permutations(ys, 2))
    s += sum(a - b for a, b in itertools.product(ys, repeat=2) if a > b)
    s += sum(itertools.starmap(lambda a, b: a * b, zip(ys, xs, strict=False)))
    s += sum(itertools.filterfalse(lambda v: v * w > 0.3, xs)) + sum(map(operator.mul, xs, itertools.repeat(w)))
    return s + sum(a * b for a, b in itertools.zip_longest(ys, xs, fillvalue=0.5))


@program
def groups_of_neighbours(w, xs):
    s = 0.0
    for large, group in itertools.groupby(xs, key=lambda x: x * w > 0.3):
        if large:
            s += sum(group) ** 2
    places = [k // 2 for k, x in enumerate(xs) if x * w > 0.3]
    counts = {k: len(list(group)) for k, group in itertools.groupby(places)}
    runs = [len(list(group)) for _, group in itertools.groupby(places)]
    return s + sum(k * n * w for k, n in counts.items()) + sum(runs) * w


@program
def getters(w, xs):
    pairs = [(k, x * w) for k, x in enumerate(xs) if x * w > 0.3]
    if not pairs:
        return 0.0
    top, last = max(pairs, key=operator.itemgetter(1)), sorted(pairs, key=operator.itemgetter(1, 0))[0]
    town = min([Town(x, -x * w) for _, x in pairs], key=operator.attrgetter("add"))
    return top[0] + last[1] + town.pop


@program
def generators_with_comprehensions(w, xs):
    def large(n):
        ys = [x * n for x in xs if x * w > 0.3]
        for y in ys:
            if y > 0.5:
                yield y

    return sum(large(2.0)) + sum(y * y for y in large(w))


@program
def lists_that_may_be_none(w, xs):
    best, seen, queue, s = None, None, None, 0.0
    account = Account(items=None)
    for k, x in enumerate(xs):
        if x * w > 0.3:
            if best is None:
                best = []
            best.append(x)
            if seen is None:
                seen = set()
            seen.add(k % 2)
            if account.items is None:
                account.items = []
            account.items.append(k)
        if queue is None or len(queue) == 0:
            queue = [x, w]
        elif x * w > 0.3:
            s += queue.pop()
            queue[0] = x
    return s + sum(queue) + (sum(best) + len(seen) + sum(account.items) if best else -1.0)


@program
def none_has_no_methods(w, xs):
    best = None
    for x in xs:
        if x * w > 0.6:
            best = [x]
    best.append(w)
    return sum(best)


class Table:
    def __init__(self):
        self.names = []
        self.values = []

    def __setitem__(self, name, value):
        for k in range(len(self.names)):
            if self.names[k] == name:
                self.values[k] = value
                return
        self.names.append(name)
        self.values.append(value)

    def __getitem__(self, name):
        return self.values[self.names.index(name)]

    def __delitem__(self, name):
        k = self.names.index(name)
        del self.names[k]
        self.values.pop(k)

    def __contains__(self, name):
        return name in self.names


@program
def items_of_classes_are_set(w, xs):
    table = Table()
    for k, x in enumerate(xs):
        if x * w > 0.3:
            table[k % 3] = x
            table[k % 3] += 1.0
        elif 0 in table:
            del table[0]
    return sum(table.values) * len(table.names)


@program
def cached_functions(w, xs):
    @functools.lru_cache(maxsize=None)
    def best(k, room):
        if k == len(xs) or room <= 0:
            return 0.0
        with_it = xs[k] * w + best(k + 1, room - 1 - k % 2)
        return max(best(k + 1, room), with_it) if with_it > 0.3 else best(k + 1, room)

    @functools.cache
    def walk(k):
        if k >= len(xs):
            return 1.0
        return walk(k + 1) + walk(k + 2) * xs[k] if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

    return best(0, 4) + walk(0)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_agreement(function: Callable[..., Any], backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    grads = backend == "interpret" and function in (a_base_hands_the_object_on, copies, iterators_are_stepped)
    check_equivalence(f, XS, (jnp.float32(1.1),), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


def test_a_method_of_a_list_that_its_variable_holds_no_more() -> None:
    def f(w, xs):
        out = [1.0]
        push = out.append
        out = [2.0]
        for x in xs:
            if x * w > 0.3:
                push(x)
        return sum(out)

    refused(f, XS, jnp.float32(1.1), saying=r"append\(\) of this list or dict is called by another name")


def test_a_group_that_is_read_twice() -> None:
    def f(w, xs):
        s = 0.0
        for _, group in itertools.groupby(xs, key=lambda x: x * w > 0.3):
            s += len(list(group)) + sum(group)
        return s

    refused(f, XS, jnp.float32(1.1), saying="a group of itertools.groupby.* may be read more than once")


def test_isclose() -> None:
    def f(w, xs):
        return [math.isclose(x * w, 0.5, rel_tol=0.3) or math.isclose(x, 2.0, abs_tol=0.2) for x in xs]

    f = ab.batched(f, in_axes=(None, 0))
    xs = [*XS, [float("inf"), float("nan"), 0.5]]
    check_equivalence(f, xs, (jnp.float32(1.1),), grads=False, backends=("interpret", "llvm"), jit=False)
