"""Members of an `IntEnum` that numbers choose are numbers: in arithmetic, comparisons, indices and ranges; attributes
that are deleted."""

import enum

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

A = np.array([1.0, -2.0, 0.5])
B = np.array([0.3, 0.7, -1.1])


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 2
    HIGH = 5


def arithmetic(a, b):
    c = Level.LOW
    if a > b:
        c = Level.HIGH
    k = 1
    if a > 0:
        k = 5
    compared = c > Level.LOW, c == k, k == c, c != k, c < 3, c in (1, 5), c == Level.HIGH, c is Level.HIGH
    return *compared, c + 1, c * a, -c, c / 2, c % 2, abs(c), 1 << c, max(c, 3) + 0, int(c), float(c)


def in_lists(a, b):
    levels, total = [Level.LOW, Level.MIDDLE, Level.HIGH], 0
    for k in range(3):
        c = levels[k] if a > 0 else levels[2 - k]
        total += c * (k + 1) + (100 if c >= Level.MIDDLE else 0)
        total += {Level.LOW: 1, Level.MIDDLE: 2, Level.HIGH: 3}[c]
    return total, sum(levels), sorted(levels, reverse=True)[0] + 0, sum(c for c in levels if c > Level.LOW)


def indices(a, b):
    c, n = Level.MIDDLE if a > 0 else Level.LOW, 0
    for i in range(c):
        n += i + 1
    x = np.zeros(6)
    x[c] = a
    return n, x.sum(), [10, 20, 30][c], c.name == "MIDDLE", np.sqrt(c) > 1.2


class Held:
    shown = 7.0

    def __init__(self, x):
        self.x, self.kept, self.shown = x, 2.0, 3.0


def deleted(a, b):
    h = Held(a)
    other = h if a > b else Held(b)
    if a > 0:
        del h.kept, h.shown
    return h.x + (h.kept if hasattr(h, "kept") else 5.0) + h.shown + other.shown


@pytest.mark.parametrize("backend", ["auto", "llvm", "xla"])
@pytest.mark.parametrize("function", [arithmetic, in_lists, indices, deleted], ids=lambda f: f.__name__)
def test_members_are_numbers(function, backend):
    found = ab.unbatch(ab.batched(function, backend=backend)(A, B))
    assert_same(found, [function(a, b) for a, b in zip(A, B, strict=True)])


def test_an_attribute_that_is_not_there_is_not_deleted():
    def f(a):
        h = Held(a)
        del h.kept
        del h.kept
        return h.x

    with pytest.raises(ab.UnsupportedError, match="Held has no attribute 'kept'"):
        ab.batched(f)(A)
