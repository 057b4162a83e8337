"""`keys()` and `items()` of dicts are compared, and taken together with others, as sets."""

from __future__ import annotations

import pytest

import autobatch as ab
from autobatch.testing import assert_same


def together(xs, ys):
    a, b = dict.fromkeys(xs, 1), dict.fromkeys(ys, 2)
    both = a.keys() & b.keys()
    return sorted(both), len(a.keys() | b.keys()), sorted(a.keys() - b.keys()), sorted(a.keys() ^ b.keys())


def compared(xs, ys):
    a, b = dict.fromkeys(xs, 1), dict.fromkeys(ys, 2)
    return a.keys() == b.keys(), a.keys() != b.keys(), a.keys() <= b.keys(), a.keys() > b.keys(), list(a.keys())


def items(xs, ys):
    a, b = {x: x for x in xs}, {y: y for y in ys}
    return sorted(a.items() & b.items()), a.items() == b.items(), sum(v for _, v in a.items())


def with_others(xs, ys):
    a = dict.fromkeys(xs, 1)
    return sorted(a.keys() & ys), sorted({1, 2} & a.keys()), sorted(a.keys() - {1}), a.keys() == set(xs)


def of_constants(xs, ys):
    a, b = {"u": xs[0], "v": 1}, {"v": 2, "w": ys[0]}
    both = a.keys() & b.keys()
    return "v" in both, len(both), a.keys() == {"v", "u"}, a.keys() == ["u", "v"]


def weighted(xs, ys):
    a, b = {x: 0.5 * x for x in xs}, {y: 2.0 for y in ys}
    return sum(a[k] * b[k] for k in a.keys() & b.keys())


XS, YS = [[1, 2, 3], [3, 1], [2]], [[3, 2], [1, 3], [5]]


@pytest.mark.parametrize("backend", ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", [together, compared, items, with_others, of_constants, weighted])
def test_equals_python(function, backend):
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(XS, YS))
    assert_same(found, list(map(function, XS, YS)))
