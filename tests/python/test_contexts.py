"""`with` of classes whose `__exit__` looks at what was raised, or ends it."""

from __future__ import annotations

import pytest

import autobatch as ab
from autobatch.testing import assert_same

LISTS = [[1, 2], [0, 3], [2, 0, 5], [3, 1, 4], [0, 1, 5], [-1, 2]]


class Logged:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append("out" if kind is None else kind.__name__)
        return kind is ZeroDivisionError


class Kept:
    def __init__(self):
        self.said, self.count = "", 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is not None and issubclass(kind, ValueError):
            self.said = str(error)
            self.count += 1
            return True
        return False


class Ignored:
    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return True


class Locked:
    def __init__(self):
        self.open = 0

    def __enter__(self):
        self.open += 1
        return self

    def __exit__(self, kind, error, traceback):
        self.open -= 1
        if kind is KeyError:
            self.open += 10


def logged(xs):
    log, total = [], 0.0
    for x in xs:
        with Logged(log):
            total += 10 / x
            if x < 0:
                break
    return total, "; ".join(log)


def kept(xs):
    kept, total = Kept(), 0
    for x in xs:
        with kept:
            if x > 2:
                raise ValueError(f"big {x}")
            total += x
    return total, kept.said, kept.count


def passed_on(xs):
    kept = Kept()
    try:
        with kept:
            return 1 // xs[0], kept.count
    except ZeroDivisionError:
        return -1, kept.count


def ignored(xs):
    total = 0
    with Ignored():
        for x in xs:
            total += 6 // x
    return total


def locked(xs):
    lock, known, total = Locked(), {1: 2, 3: 4}, 0
    for x in xs:
        try:
            with lock:
                total += known[x]
        except KeyError:
            total -= 1
    return total, lock.open


def returned(xs):
    with Kept() as kept:
        if xs[0] > 2:
            raise ValueError("no")
        return 1, kept.count
    return 0, kept.count


@pytest.mark.parametrize("backend", ["auto", "llvm"])
@pytest.mark.parametrize("function", [logged, kept, passed_on, ignored, locked, returned])
def test_contexts(function, backend):
    with ab.options(trace=False):
        got = ab.batched(function, backend=backend)(LISTS)
    got = list(zip(*map(list, got), strict=True)) if isinstance(got, tuple) else list(got)
    assert_same(got, list(map(function, LISTS)))


def test_what_an_exit_does_not_end_fails_the_example():
    def divided(xs):
        with Kept():
            return xs[0] // xs[1]

    with pytest.raises(ab.ExampleError, match="ZeroDivisionError") as raised:
        ab.batched(divided, backend="llvm")(LISTS)
    assert [f.index for f in raised.value.failures] == [2]


def length_or_none(xs):
    try:
        return len(xs) if xs else -1
    except TypeError:
        return -2


def lengths(xs):
    try:
        return len(xs)
    except TypeError as error:
        return len(str(error))


@pytest.mark.parametrize("function", [length_or_none, lengths])
def test_examples_that_are_none(function):
    lists = [[1, 2], None, [3], []]
    with ab.options(trace=False):
        assert_same(list(ab.batched(function)(lists)), list(map(function, lists)))
