"""Loops over what may be one of several containers: `for x in (xs if t else (1.0, 2.0))`."""

from __future__ import annotations

import pytest

import autobatch as ab
from autobatch.errors import ExampleError
from autobatch.testing import assert_same


def a_list_or_a_tuple(xs, t):
    total = 0.0
    for x in xs if t else (1.0, 2.0):
        total += x
    return total


def an_empty_list(xs, t):
    return [x + 1 for x in (xs[1:] if t else [])], sum(xs if t else [])


def added(xs, t):
    todo = []
    todo += xs if t else (5.0, 6.0, 7.0)
    todo.extend(range(2) if t else xs)
    return todo


def letters(xs, t):
    return [w for w in ("abc" if t else ["xy", "z"])]


def keys(xs, t):
    d = {k: x for k, x in enumerate(xs)}
    return [k for k in (d if t else (5, 6, 7))], len(d if t else (1,))


def read_in_all_ways(xs, t):
    ys = xs if t else (1.0, 2.0)
    return list(zip(ys, range(9), strict=False)), max(ys), sorted(ys), 2.0 in ys, list(enumerate(ys)), ys[-1]


def of_a_tuple_of_the_examples(xs, t, e):
    return [c for c in (e[1:] if e[0] == "a" else xs)], t


EXAMPLES = [[1.0, 2.0, 5.0], [3.0], [2.0, 1.0]], [True, False, False]
FORMS = [("a", 1.0, 2.0), ("b", 2.0), ("a", 3.0, 1.0)]
PROGRAMS = [a_list_or_a_tuple, an_empty_list, added, letters, keys, read_in_all_ways]


@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", [*PROGRAMS, of_a_tuple_of_the_examples], ids=lambda f: f.__name__)
def test_equals_python(function, backend):
    if backend == "xla" and function is letters:
        pytest.skip("XLA makes no strings")
    args = (*EXAMPLES, FORMS) if function is of_a_tuple_of_the_examples else EXAMPLES
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(*args))
    assert_same(found, list(map(function, *args)))


def test_what_cannot_be_iterated_over():
    f = ab.batched(lambda xs, t: list(xs if t else 3.0), backend="llvm")
    assert ab.unbatch(f(EXAMPLES[0], [True] * 3)) == EXAMPLES[0]
    with pytest.raises(ExampleError, match="TypeError"):
        f(*EXAMPLES)


class Steps:
    """An iterator."""

    def __init__(self, n):
        self.at, self.n = 0, n

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.n:
            raise StopIteration
        self.at += 1
        return self.at


class Squares:
    """A sequence by `__getitem__` and `__len__` alone."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        if k >= self.n:
            raise IndexError(k)
        return k * k


def whole_iterators(n):
    return (
        sum(Steps(n)),
        sum([k * k for k in Steps(n)]),
        max(Steps(n + 1)),
        sum(a * b for a, b in zip(Steps(2), Squares(n))),
    )


def sequences_by_index(n):
    found = Squares(n)
    return sum(x for x in found), sum(list(found)), 4 in found, sum(k * x for k, x in enumerate(found))


def _counted(n):
    k = 0
    while k < n:
        yield k
        k += 1


def joined(n):
    """Strings of generators."""
    words = "-".join(str(k) for k in _counted(n)), "".join(map(str, _counted(n)))
    return *words, ", ".join(f"{k}={x}" for k, x in enumerate(_counted(n)))


@pytest.mark.parametrize("function", [whole_iterators, sequences_by_index, joined])
def test_classes_that_are_iterated_over(function):
    with ab.options(trace=False):
        got = ab.batched(function, backend="llvm")([1, 3, 4])
    assert_same(list(zip(*map(list, got), strict=True)), list(map(function, [1, 3, 4])))
