"""Generators and context managers that change lists, dicts and objects, run in loops and comprehensions."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import autobatch as ab
from autobatch.testing import assert_same

BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"]
X = [[0.5, 1.5], [3.0], [-1.0, 2.0, 0.25]]


def noted(log, xs):
    for x in xs:
        log.append(x)
        yield x + len(log)


class Account:
    def __init__(self):
        self.total, self.past = 0.0, []

    def added(self, x):
        self.total += x
        self.past.append(x)
        yield self.total


@contextmanager
def entered(account, x):
    account.total += x
    yield account
    account.past.append(account.total)


def a_list(xs):
    log, total = [], 0.0
    for _ in range(3):
        for v in noted(log, xs):
            total += v
    return total, log


def a_dict_of_the_function_around(xs):
    counts = {}

    def count(k):
        counts[k] = counts.get(k, 0) + 1
        yield k

    for x in xs:
        for _ in count(x > 0):
            pass
    return counts.get(True, 0) * 10 + counts.get(False, 0)


def an_object(xs):
    account = Account()
    for x in xs:
        for _ in account.added(x):
            pass
    return account.total, account.past


def by_a_context_manager(xs):
    account = Account()
    for x in xs:
        with entered(account, x) as held:
            held.total *= 2
    return account.total, account.past


def while_it_runs(xs):
    account, i = Account(), 0
    while i < len(xs):
        with entered(account, xs[i]):
            i += 1
    return account.total, account.past


def summed(xs):
    log = []
    for x in xs:
        log.append(sum(noted(log, [x, x])))
    return log


def under_two_names(xs):
    log = []
    other = log
    for x in xs:
        for v in noted(log, [x]):
            other.append(v)
    return log


def on_one_path(xs):
    log = []
    for x in xs:
        if x > 0:
            for _ in noted(log, [x]):
                pass
    return log


def in_a_comprehension(xs):
    log = []
    sums = [sum(noted(log, [x])) for x in xs]
    return sums, len(log)


FUNCTIONS = [
    a_list, a_dict_of_the_function_around, an_object, by_a_context_manager, while_it_runs, summed, on_one_path,
    in_a_comprehension, under_two_names,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_they_change_is_kept(function, backend):
    assert_same(ab.unbatch(ab.batched(function, backend=backend)(X)), list(map(function, X)))
