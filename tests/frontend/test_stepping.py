"""Generators that other functions than `for` step through: `zip`, `enumerate`, `itertools`, methods that yield."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab
from autobatch.testing import assert_same
from tests.frontend.test_generators import endless, growing, halves
from tests.memory.pairs import W, check


def positive(w: Any, xs: list[float]) -> Any:
    def found() -> Any:
        for x in xs:
            if x * w > 0.5:
                yield x

    return w * sum(a * b for a, b in zip(found(), itertools.count(1), strict=False))


def zipped(w: Any, xs: list[float]) -> Any:
    s, y = w, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        for x, v, (k, z) in zip(xs, growing(y, 9.0), enumerate([1.0, 2.0, 3.0]), strict=False):
            if v < -3.0:
                continue
            s = s * 0.5 + x * v + k * z
        else:
            s = s + 1.0
        for k, v in zip(itertools.count(2, 3), growing(y, 5.0), strict=False):
            if k > 6:
                break
            s = s * 0.9 + k * v
    for v, x in zip(endless(y), xs, strict=False):  # ends as the list does
        s = s * 0.5 + v * x
    return s


def numbered(w: Any, xs: list[float]) -> Any:
    s = w
    for k, v in enumerate(growing(w * xs[0], 9.0), 2):
        s = s * 0.5 + k * v
        if s > 8.0:
            break
    else:
        s = s + 10.0
    return s


def taken(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]
    few = sum(itertools.takewhile(lambda v: v < 2.0 * w, xs))
    squares = sum(v * v for v in itertools.takewhile(lambda v: v < 4.0 * w, endless(y)))
    rest = sum(itertools.dropwhile(lambda v: v > 1.0, growing(y, 5.0)))
    return few + squares + rest + sum(itertools.chain(growing(y, 5.0), xs, halves(y, 2)))


def sliced(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]
    first = sum(itertools.islice(endless(y), int(y) + 1))
    return first + sum(itertools.islice(growing(y, 20.0), 1, None, 2)) + sorted(growing(y, 5.0))[0]


def answers(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]
    found = next(v for v in endless(y) if v > 3.0)
    return y * any(v > 7.0 for v in endless(y)) + all(v < 7.0 for v in endless(y)) + found


def held(w: Any, xs: list[float]) -> Any:
    g = growing(w * xs[0], 5.0)
    h = endless(w * xs[1])
    s = w
    for v in g:
        s = s * 0.5 + v
    return s + next(h)


def collected(w: Any, xs: list[float]) -> Any:
    s = w
    for k, x in dict(enumerate(growing(w * xs[0], 5.0))).items():
        s = s * 0.5 + k * x
    return s + sorted(halves(w * xs[0], 3))[0] + len({int(v) for v in growing(w * xs[0], 9.0)})


def counted(w: Any, xs: list[float]) -> Any:
    n = 0
    seen: list[float] = []

    def each() -> Any:
        nonlocal n
        for x in xs:
            n = n + 1
            seen.append(x)
            yield x * w

    s = w
    for k, x in enumerate(itertools.takewhile(lambda v: v < 2.0, each())):
        s = s + x * len(seen) + k * n
    return s + n


class Walk:
    def __init__(self, xs: list[float], w: Any) -> None:
        self.xs, self.w = xs, w

    def large(self, least: float) -> Any:
        for x in self.xs:
            if x * self.w > least:
                yield x * self.w

    def __iter__(self) -> Any:
        for x in self.xs:
            yield x * self.w
            if x > 2.0:
                yield -x


def methods(w: Any, xs: list[float]) -> Any:
    t = Walk(xs, w)
    s = sum(t.large(1.0)) + max(t) + sum(a * a for a in t)
    for k, x in enumerate(t):
        s = s * 0.5 + k * x
        if s > 4.0:
            break
    return s + sum(map(lambda v: v * w, filter(lambda v: v < 3.0, t.large(0.5))))


def stacked(w: Any, xs: list[float]) -> Any:
    stack, s = [w * xs[0]], w
    while stack and s < 20.0:
        for v in halves(stack.pop(), 2):
            s = s + v
            if v > 0.7:
                stack.append(v * 0.9)
    return s


PROGRAMS = (positive, zipped, numbered, taken, sliced, answers, held, collected, counted, methods, stacked)
FEW = (zipped, taken)


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


def twice(w: Any, xs: list[float]) -> Any:
    g = growing(w * xs[0], 5.0)
    return sum(g) + sum(g)


def in_a_branch(w: Any, xs: list[float]) -> Any:
    g = growing(w, 5.0)
    if w * xs[0] > 1.5:
        g = growing(w * xs[0], 3.0)
    return sum(g)


def handed_on(w: Any, xs: list[float]) -> Any:
    def total(g: Any) -> Any:
        s = 0.0
        for x in g:
            s = s + x
        return s

    return total(growing(w * xs[0], 5.0))


def side_by_side(w: Any, xs: list[float]) -> Any:
    return sum(a * b for a, b in zip(growing(w, 4.0), growing(w * xs[0], 5.0), strict=False))


def in_a_list(w: Any, xs: list[float]) -> Any:
    return sum(sum(g) for g in [growing(w * xs[0], 5.0), halves(w, 2)])


def changed(w: Any, xs: list[float]) -> Any:
    def each(a: list[Any]) -> Any:
        yield from a

    ys, s = [x * w for x in xs], w
    for k, y in enumerate(each(ys)):
        ys.append(y * 0.5 + w)
        s = s + y
        if w * xs[0] + k > 3.0:
            break
    return s


def changed_behind(w: Any, xs: list[float]) -> Any:
    def each(a: list[Any]) -> Any:
        yield from a

    ys, s = [x * w for x in xs], w
    g = each(ys)
    for k, y in enumerate(g):
        ys.append(y * 0.5 + w)
        s = s + y
        if w * xs[0] + k > 3.0:
            break
    return s


def depends(w: Any, xs: list[float]) -> Any:
    k = w

    def each() -> Any:
        for x in xs:
            yield x * k

    g = each()
    k = w * xs[0]
    while k < 3.0:
        k = k * 1.5
    return sum(g)


def unpacked(w: Any, xs: list[float]) -> Any:
    a, b = halves(w, 2)
    return a - b


def looked_up(w: Any, xs: list[float]) -> Any:
    return w * (2.0 in growing(w * xs[0], 5.0))


KEPT = (twice, in_a_branch, handed_on, side_by_side, in_a_list, unpacked, looked_up, changed, changed_behind, depends)


@pytest.mark.parametrize("program", KEPT)
def test_kept(program: Callable[..., Any]) -> None:
    batch = [[0.9, 2.4], [0.3, 0.1]]
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(program, in_axes=(None, 0), backend="llvm")(W, batch))
    assert_same(found, [program(W, xs) for xs in batch])
