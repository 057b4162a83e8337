"""Loops that never end fail their examples, on every back end; the other examples have results."""

from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab

BACKENDS = ["interpret", "xla", "llvm", "auto"]
XS, NS = [1.0, 2.0, 3.0], [0, 1, 2]


def forgotten_step(x: float, n: int) -> Any:
    i = 0
    while i < n:
        x = x * 0.5
    return x


def constant_test(x: float, n: int) -> Any:
    i = 0
    while i < 10:
        x = x * 0.5
    return x


def literal_test(x: float, n: int) -> Any:
    while True:
        x += n


def of_a_list(x: float, n: int) -> Any:
    xs = [x] * n
    while xs:
        pass
    return 1.0


def in_a_branch(x: float, n: int) -> Any:
    if n > 1:
        while True:
            x += 1.0
    return x


def inside(x: float, n: int) -> Any:
    for i in range(n):
        while i < n:
            x += 1.0
    return x


def by_numbers(x: float, n: int) -> Any:
    while n > 0:
        n = n + 0
    return n


def back_and_forth(x: float, n: int) -> Any:
    while n > 0:
        n = 3 - n
    return n + x


def of_floats(x: float, n: int) -> Any:
    while x > 1.0:
        x = x * 1.0
    return x


ENDLESS = {
    forgotten_step: [1, 2], constant_test: [0, 1, 2], literal_test: [0, 1, 2], of_a_list: [1, 2], in_a_branch: [2],
    inside: [1, 2], by_numbers: [1, 2], back_and_forth: [1, 2], of_floats: [1, 2],
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", ENDLESS, ids=lambda f: f.__name__)
def test_endless(program: Callable[..., Any], backend: str) -> None:
    with pytest.raises(ab.ExampleError, match="never ends") as raised:
        ab.batched(program, backend=backend)(XS, NS)
    assert [f.index for f in raised.value.failures] == ENDLESS[program]
    assert {f.line for f in raised.value.failures} <= set(range(1, 100))


def until_it_fails(x: float, n: int) -> Any:
    while True:
        if x > 100.0:
            raise ValueError("large")
        x = x * 2.0


def until_it_breaks(x: float, n: int) -> Any:
    while True:
        x += 1.0
        if x > 10.0:
            break
    return x


def until_it_is_caught(x: float, n: int) -> Any:
    try:
        while True:
            x = x + 1.0
            1.0 / (x - 6.0)
    except ZeroDivisionError:
        return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_ends(backend: str) -> None:
    with pytest.raises(ab.ExampleError) as raised:
        ab.batched(until_it_fails, backend=backend)(XS, NS)
    assert [(f.index, f.kind) for f in raised.value.failures] == [(k, "ValueError") for k in range(3)]
    assert ab.unbatch(ab.batched(until_it_breaks, backend=backend)(XS, NS)) == [11.0] * 3
    assert ab.unbatch(ab.batched(until_it_is_caught, backend=backend)(XS, NS)) == [6.0] * 3


def always_failing(x: float, n: int) -> Any:
    raise ValueError(f"no {n}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_example_fails(backend: str) -> None:
    with pytest.raises(ab.ExampleError) as raised:
        ab.batched(always_failing, backend=backend)(XS, NS)
    assert [(f.kind, f.message) for f in raised.value.failures] == [("ValueError", f"no {n}") for n in NS]
