"""Generators that run over themselves: by their own name, by `__iter__` of a part, by each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import autobatch as ab
from autobatch.testing import Tree, assert_same, check_equivalence
from autobatch.testing.programs import typical_tree
from tests.memory.pairs import W


@dataclass
class Bin:
    x: float
    left: Bin | None = None
    right: Bin | None = None

    def __iter__(self) -> Any:
        if self.left is not None:
            yield from self.left
        yield self.x
        if self.right is not None:
            for x in self.right:
                yield -x

    def down(self) -> Any:
        yield self.x
        if self.left is not None:
            yield from self.left.down()


def walk(t: Any) -> Any:
    yield t.x
    for kid in t.kids:
        yield from walk(kid)


def total(w: Any, t: Tree) -> Any:
    s = w
    for x in walk(t):
        s = s * 0.5 + x
    return s + w * sum(walk(t)) + max(x * x for x in walk(t)) + sum(k * x for k, x in enumerate(walk(t)))


def found(w: Any, t: Tree) -> Any:
    s = w
    for x in walk(t):
        if x * w > 0.7:
            break
        s = s * 0.5 + x
    return s + w * any(x > 0.5 for x in walk(t)) + next(walk(t))


def inside(w: Any, t: Tree) -> Any:
    def go(u: Tree, depth: int) -> Any:
        yield u.x * w * depth
        for kid in u.kids:
            for v in go(kid, depth + 1):
                yield v * 0.9

    return sum(v * v for v in go(t, 1))


def computed(w: Any, t: Tree) -> Any:
    def go(v: Any) -> Any:
        if v > 0.2:
            yield v
            yield from go(v * 0.5)
        else:
            return

    return sum(v * v for v in go(w + t.x))


def each_other(w: Any, t: Tree) -> Any:
    def ping(u: Tree) -> Any:
        yield u.x * w
        for kid in u.kids:
            yield from pong(kid)

    def pong(u: Tree) -> Any:
        yield -u.x
        for kid in u.kids:
            yield from ping(kid)

    s = w
    for x in ping(t):
        s = s * 0.5 + x
    return s


def in_order(w: Any, b: Bin) -> Any:
    s = w
    for x in b:
        s = s * 0.5 + x
    return s + w * sum(v * v for v in b) + max(b.down()) + sum(k * x for k, x in enumerate(b.down()))


def made(w: Any, t: Tree) -> Any:
    b = Bin(t.x, Bin(w * 2.0, None, Bin(t.x * 3.0)), Bin(0.3))
    s = w
    for x in b.down():
        s = s * 0.5 + x
    return s + sum(b)


def noting(w: Any, t: Tree) -> Any:
    seen: list[float] = []

    def go(u: Tree) -> Any:
        seen.append(u.x)
        yield u.x * w
        for kid in u.kids:
            yield from go(kid)

    return sum(go(t)) * len(seen)


PROGRAMS = (total, found, inside, computed, each_other, in_order, made, noting)
FEW = (total, computed)


def check(program: Callable[..., Any], backend: str, grads: bool) -> None:
    trees = [typical_tree(), typical_tree().kids[0]]
    bins = [Bin(1.0, Bin(2.0, None, Bin(3.0)), Bin(0.3)), Bin(0.4)]
    batch: list[Any] = bins if program is in_order else trees
    f = ab.batched(program, in_axes=(None, 0))
    check_equivalence(f, batch, (W,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=program in FEW)


@pytest.mark.parametrize("program", FEW)
@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_compiled(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=True)


def endless(v: Any) -> Any:
    yield v
    yield from endless(v + 1.0 / v)


def left(w: Any, t: Tree) -> Any:
    s = w
    for v in endless(w * t.x + 1.0):
        s = s + v
        if s > 3.0:
            break
    return s


def changing(w: Any, t: Tree) -> Any:
    seen: list[float] = []

    def go(u: Tree) -> Any:
        seen.append(u.x)
        yield u.x
        for kid in u.kids:
            yield from go(kid)

    s = w
    for x in go(t):
        s = s + x * len(seen)
    return s


@pytest.mark.parametrize("program", [left, changing])
def test_what_a_loop_tells_from_a_list_is_stepped(program: Callable[..., Any]) -> None:
    trees = [typical_tree(), typical_tree().kids[0]]
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(program, in_axes=(None, 0), backend="llvm")(W, trees))
    assert_same(found, [program(W, t) for t in trees])
