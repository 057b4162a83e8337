"""Functions that return on every path of a `try`: nothing is behind it; and when `zip(strict=True)` raises in one."""

from __future__ import annotations

import pytest

import autobatch as ab
from autobatch.testing import assert_same

XLA = pytest.param("xla", marks=pytest.mark.xla)


def over_all(xs):
    total = 0.0
    try:
        for x in xs:
            total += 1 / x
        return total
    except ZeroDivisionError:
        return -1.0


def in_a_branch(xs):
    if len(xs) > 1:
        try:
            return xs[0] / xs[1]
        except ZeroDivisionError:
            if xs[0] > 1:
                return -1.0
            else:
                return -2.0
    return 5.0


def with_finally(xs):
    last = 0.0
    try:
        try:
            return xs[2] / xs[0]
        except IndexError:
            raise ValueError("short") from None
        finally:
            last += 1.0
    except (ValueError, ZeroDivisionError):
        return -last


def in_a_loop(xs):
    for x in xs:
        try:
            return 1 / x
        except ZeroDivisionError:
            continue
    return 0.0


@pytest.mark.parametrize("backend", ["auto", "llvm", XLA])
@pytest.mark.parametrize("function", [over_all, in_a_branch, with_finally, in_a_loop])
def test_every_path_of_a_try_returns(function, backend):
    lists = [[1.0, 2.0], [0.0], [2.0, 0.0], [3.0, 1.0, 4.0], [0.0, 1.0, 5.0]]
    with ab.options(trace=False):
        got = ab.batched(function, backend=backend)(lists)
    assert got.dtype == "float32"
    assert_same(list(got), list(map(function, lists)))


def zipped(xs, ys):
    total = 0.0
    try:
        for x, _ in zip(xs, ys, strict=True):
            total += x
    except ValueError as error:
        return total, str(error)
    return -total, ""


def divided(xs, ys):
    try:
        return sum(x / y for x, y in zip(xs, ys, strict=True))
    except ValueError:
        return -1.0
    except ZeroDivisionError:
        return -2.0


def broken_off(xs, ys):
    turns = 0
    try:
        for k, (x, y) in enumerate(zip(xs, ys, strict=True), start=1):
            turns += k
            if x == y:
                break
        else:
            turns += 100
    except ValueError:
        turns += 1000
    return turns


@pytest.mark.parametrize("function", [zipped, divided, broken_off])
def test_lengths_are_compared_where_a_loop_ends(function):
    pairs = [([1.0, 2.0], [1.0]), ([1.0, 2.0], [0.0, 1.0]), ([1.0], [2.0, 3.0]), ([1.0, 3.0], [3.0, 3.0]), ([], [])]
    pairs += [([0.0], []), ([], [1.0])]
    with ab.options(trace=False):
        got = ab.batched(function, backend="llvm")(*map(list, zip(*pairs, strict=True)))
    got = list(zip(*map(list, got), strict=True)) if isinstance(got, tuple) else list(got)
    assert_same(got, [function(*p) for p in pairs])
