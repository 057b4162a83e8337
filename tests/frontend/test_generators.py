"""Generators of the user that a loop runs over, or that `list`, `sum`, `any`, `next` read, where numbers decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab
from tests.memory.pairs import check


def halves(v: Any, n: Any) -> Any:
    for i in range(n):
        yield v / (i + 1)


def growing(v: Any, stop: Any) -> Any:
    while v < stop:
        v = v * 1.5 + 0.3
        if v > 2.0:
            yield -v
            continue
        yield v


def early(v: Any) -> Any:
    if v > 2.0:
        return
    yield v
    yield v * v


def both(v: Any) -> Any:
    yield from halves(v, 2)
    yield from growing(v, 3.0)


def endless(v: Any) -> Any:
    while True:
        yield v
        v = v * 1.5 + 0.1


def local(w: Any, xs: list[float]) -> Any:
    def gen(v: Any, n: Any) -> Any:
        for i in range(n):
            yield v * w / (i + 1)

    s, y = w, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        for v in gen(y, 3):
            s = s + v
    return s


def computed(w: Any, xs: list[float]) -> Any:
    s = w
    for v in growing(w * xs[0], 5.0):
        s = s * 0.5 + v
    return s


def breaks(w: Any, xs: list[float]) -> Any:
    s, k = w, 0
    for v in endless(w * xs[0]):
        if v < 0.5:
            continue
        k = k + 1
        s = s * 0.5 + v
        if v > 4.0:
            break
    else:
        s = s + 100.0
    return s + k


def returned(w: Any, xs: list[float]) -> Any:
    for v in growing(w * xs[0], 9.0):
        if v < -2.5:
            return v
    return w


def chained(w: Any, xs: list[float]) -> Any:
    s = w
    for v in both(w * xs[0]):
        s = s * 0.5 + v
    for v in early(w * xs[0]):
        s = s * 0.5 + v
    else:
        s = s + 1.0
    return s


def consumers(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]
    squares = [v * v for v in growing(y, 4.0) if v < 0.0]
    return sum(growing(y, 5.0)) + max(halves(y, 3)) + len(list(growing(y, 4.0))) + next(endless(y)) + sum(squares)


def anyall(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]

    def above(v: Any) -> Any:
        while True:
            yield v > 4.0
            v = v + 1.0

    return y * any(above(y)) + next(early(y), 7.0)


def nested(w: Any, xs: list[float]) -> Any:
    s = w
    for a in halves(w * xs[0], 2):
        for b in halves(a, 3):
            if b < 0.3:
                break
            s = s * 0.9 + a * b
    return s


PROGRAMS: tuple[Callable[..., Any], ...] = (local, computed, breaks, returned, chained, consumers, anyall, nested)
FEW = (breaks, nested)


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


def test_one_that_is_sent_values() -> None:
    def sent(x: Any) -> Any:
        y = yield x
        yield y

    def f(x: float) -> Any:
        s = 0.0
        for v in sent(x):
            s = s + v
        return s

    with pytest.raises(ab.ExampleError, match="TypeError: None"):  # a loop sends None
        ab.batched(f)([1.0])
