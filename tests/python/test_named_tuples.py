"""NamedTuples of any fields: `_replace`, `_make`, `_asdict`, made inside, in lists and dicts, and of the examples."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import pytest

import autobatch as ab
from autobatch.testing import assert_same


class Named(NamedTuple):
    name: str
    x: float


class Outer(NamedTuple):
    name: str
    inner: Named

    def raised(self) -> Outer:
        return self._replace(inner=self.inner._replace(x=self.inner.x + 1))


CONSTANT = Named("constant", 3.0)


def on_a_branch(x: float) -> Any:
    p = Named("a", x)
    if x > 0:
        p = p._replace(name="b")
    return p.x + (1 if p.name == "b" else 0)


def in_a_list(x: float) -> Any:
    ps = [Named("a", x), Named("b", 2 * x)]
    for k in range(2):
        if ps[k].x > 1:
            ps[k] = ps[k]._replace(name="big")
    return sum(1.0 for p in ps if p.name == "big")


def in_a_loop(x: float) -> Any:
    p = Named("start", 0.0)
    while p.x < x:
        p = p._replace(name="run", x=p.x + 1)
    return p.x + (10 if p.name == "run" else 0)


def kept(x: float) -> Any:
    history, p = [], Named("s", x)
    for k in range(4):
        p = p._replace(name="up" if p.x > k else "down", x=p.x - 0.5)
        history.append(p)
    return sum(q.x for q in history if q.name == "up")


def in_a_dict(x: float) -> Any:
    held = {"s": Named("s", x)}
    if x > 1:
        held["s"] = held["s"]._replace(name="t")
    return 1.0 if held["s"].name == "t" else 0.0


def made_inside(x: float) -> Any:
    pair = namedtuple("pair", "a b")  # noqa: PYI024
    t = pair(x, "q")
    t = t._replace(b="r" if x > 0 else "q")
    return t.a if t.b == "r" else -t.a


def by_its_methods(x: float) -> Any:
    p, found = Named._make(["q", x]), Named("a", x)._asdict()
    return p.x + len(p._fields) + found["x"] + len(found["name"])


def of_a_constant(x: float) -> Any:
    p = CONSTANT._replace(x=x)
    q = Named._replace(p, name="z")
    return p.x + (1 if q.name == "z" else 0) + (2 if p.name == "constant" else 0)


def nested(x: float) -> Any:
    m = Outer("m", Named("i", x))
    for _ in range(3):
        m = m.raised()
    return m.inner.x


def chosen(x: float) -> Any:
    ms = [Outer("m", Named("i", x)), Outer("n", Named("j", -x))]
    best = max(ms, key=lambda t: t.inner.x)._replace(name="best")
    return best.inner.x + sum(1 for t in [*ms, best] if t.name == "best")


def of_the_example(p: Named) -> Any:
    q = p._replace(name="other", x=p.x * 2) if p.name == "a" else p._replace(x=-p.x)
    return q.x + (5 if q.name == "other" else 0)


NUMBERS = [1.5, 2.0, 7.25, -3.0]
PROGRAMS = (
    *(on_a_branch, in_a_list, in_a_loop, kept, in_a_dict, made_inside),
    *(by_its_methods, of_a_constant, nested, chosen),
)


@pytest.mark.parametrize("backend", ["auto", "llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("program", [*PROGRAMS, of_the_example], ids=lambda f: f.__name__)
def test_as_python_does(program: Any, backend: str) -> None:
    given: Any = [Named("a", 1.5), Named("b", 2.0)] if program is of_the_example else NUMBERS
    found = ab.unbatch(ab.batched(program, backend=backend)(given))
    assert found == pytest.approx([program(x) for x in given])


class Ranked(NamedTuple):
    rank: int
    name: int = 0


class Reversed(NamedTuple):
    rank: int

    def __lt__(self, other):
        return self.rank > other.rank


def _ordered_by_elements(x):
    a, b = Ranked(x, 1), Ranked(2, x)
    ranked = [Ranked(k * x % 3, k) for k in range(3)]
    return a < b, a >= b, max(a, b).name, sorted(ranked)[0].name, a < (x, 2), Reversed(x) < Reversed(2)


def _smallest(ranked):
    return min(ranked).name, sorted(ranked)[-1].rank, ranked[0] < ranked[-1]


@pytest.mark.parametrize("backend", ["auto", "llvm"])
@pytest.mark.parametrize(
    ("function", "examples"),
    [(_ordered_by_elements, [1, 2, 3]), (_smallest, [[Ranked(1, 2), Ranked(0, 5)], [Ranked(3, 3)]])],
)
def test_order(function, examples, backend):
    with ab.options(trace=False):
        got = ab.batched(function, backend=backend)(examples)
    assert_same(list(zip(*map(list, got), strict=True)), list(map(function, examples)))
