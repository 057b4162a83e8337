"""Loops and comprehensions over sets whose results do not depend on the order; those that do are refused."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import UnsupportedError
from autobatch.testing import assert_same

XLA = pytest.param("xla", marks=pytest.mark.xla)
LISTS = [[1, 2, 3, 2], [3, 1], [2], [5, 4, 4, 7, 1]]
SETS = [{1, 2, 3}, {5, 9}, {2}, {0, 4, 7, 8}]


def comprehensions(xs):
    s = set(xs)
    pairs = sorted((v % 2, w) for v in s for w in s if v < w)
    return sorted(v * v for v in s), max(v * 2 for v in s), any(v > 2 for v in s), len({v % 2 for v in s}), pairs


def sums(xs):
    s, total, product, most = set(xs), 0, 1, 0
    for v in s:
        total += v if v > 1 else -v
        product *= v
    for v in s:
        if v % 2:
            continue
        most |= v
    return total, product, most, sum(v for v in s), sum(1 for v in s if v > 1)


def life(xs):
    """A generation of cells on a line, and one of cells in the plane."""
    cells, around = {(x, x % 3) for x in xs}, set()
    for x, y in cells:
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                around.add((x + dx, y + dy))
    alive = set()
    for x, y in around:
        n = sum(1 for a, b in cells if abs(a - x) <= 1 and abs(b - y) <= 1) - ((x, y) in cells)
        if n == 3 or (n == 2 and (x, y) in cells):
            alive.add((x, y))
    return sorted(alive), len(around)


def closure(xs):
    """A fixed point: what is reached by halving."""
    seen, size = set(xs), 0
    while len(seen) > size:
        size = len(seen)
        seen |= {v // 2 for v in seen}
    return sorted(seen)


def found(xs):
    for v in set(xs):
        if v > 4:
            return True
    return False


def given(s):
    more = set()
    for v in s:
        more.add(v + 1)
        more.update({v, v * 2})
    low = {v for v in s if v < 4}
    return sorted(more), sorted(low), max(v * v for v in s), sum(v for v in s)


def of_words(xs):
    words, lengths = {"ab" if x % 2 else "cde" for x in xs}, 0
    for w in words:
        lengths += len(w)
    return lengths, sorted(w for w in words)


def around(xs):
    """A function of its own makes what each member leads to."""

    def near(v):
        found = []
        for d in (-1, 1):
            found.append(v + d)
        return found

    return sorted({w for v in set(xs) for w in near(v)})


FREE = [comprehensions, sums, life, closure, found, around]


@pytest.mark.parametrize("backend", ["llvm", "auto", XLA])
@pytest.mark.parametrize("function", [*FREE, given, of_words], ids=lambda f: f.__name__)
def test_equals_python(function, backend):
    examples = SETS if function is given else LISTS
    with ab.options(trace=False):
        got = ab.unbatch(ab.batched(function, backend=backend)(examples))
    assert_same(got, list(map(function, examples)))


def weighted(s, w):
    total = 0.0
    for v in s:
        total += math.exp(-w * v)
    return total + sum(w * v for v in s)


def test_derivatives():
    w, step = [0.5, 1.0, 2.0, 0.1], 1e-4
    with ab.options(trace=False):
        got = ab.grad(ab.batched(weighted), 1)(SETS, w)
    wanted = [(weighted(s, x + step) - weighted(s, x - step)) / (2 * step) for s, x in zip(SETS, w, strict=True)]
    np.testing.assert_allclose(list(got), wanted, rtol=1e-2)


def listed(xs):
    out = []
    for v in set(xs):
        out.append(v)
    return out


def as_a_list(xs):
    return [v for v in set(xs)]


def folded(xs):
    n = 0
    for v in set(xs):
        n = n * 10 + v
    return n


def joined(xs):
    text = ""
    for v in set(xs):
        text += str(v)
    return text


def last(xs):
    for v in set(xs):
        last = v
    return last


def sum_and_product(xs):
    n = 1
    for v in set(xs):
        n += v
        n *= 2
    return n


def reads_what_it_adds_to(xs):
    n, m = 0, 0
    for v in set(xs):
        n += v
        m += n
    return m


def stops(xs):
    n = 0
    for v in set(xs):
        if v > 3:
            break
        n += 1
    return n


def grown(xs):
    out = []
    for v in set(xs):
        out += [v]
    return out


def counted(xs):
    counts = {}
    for v in set(xs):
        counts[v % 3] = v
    return counts


def grows(xs):
    s = set(xs)
    for v in s:
        s.add(v + 1)
    return len(s)


def by_key(xs):
    return max((v for v in set(xs)), key=lambda v: v % 2)


def concatenated(xs):
    return sum(([v] for v in set(xs)), [])


def numbered(xs):
    numbers = {}
    return sorted(numbers.setdefault(v, len(numbers)) for v in set(xs)), list(numbers)


def kept(xs):
    return any((first := v) > 0 for v in set(xs)), first


def numbered_by_a_function(xs):
    numbers = {}

    def number(v):
        numbers[v] = len(numbers)
        return numbers[v]

    return len({number(v) for v in set(xs)}), list(numbers)


def makes_keys(xs):
    counts, total = defaultdict(int), 0
    for v in set(xs):
        total += counts[v % 3]
    return total, list(counts)


ORDERED = [
    listed,
    as_a_list,
    folded,
    joined,
    last,
    sum_and_product,
    reads_what_it_adds_to,
    stops,
    grown,
    counted,
    grows,
    by_key,
    concatenated,
    numbered,
    kept,
    numbered_by_a_function,
    makes_keys,
]


@pytest.mark.parametrize("function", ORDERED, ids=lambda f: f.__name__)
def test_the_order_of_python_is_not_kept(function):
    with ab.options(trace=False), pytest.raises(UnsupportedError, match="the order of a set is not kept|changed while"):
        ab.batched(function, backend="llvm")(LISTS)
