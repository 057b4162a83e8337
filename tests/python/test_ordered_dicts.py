"""`collections.OrderedDict`: its order is changed, keys are taken out at either end, it is compared in order."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import ExampleError
from autobatch.testing import assert_same

XLA = pytest.param("xla", marks=pytest.mark.xla)
BACKENDS = ["llvm", "auto", XLA]
INTEGERS = [[3, 1, 3, 2], [5, 5, 0], [1, 2, 3, 4, 5, 1], [0, 4]]


class Recent:
    def __init__(self, size):
        self.size, self.hits, self.held = size, 0, OrderedDict()

    def get(self, key):
        if key not in self.held:
            return -1
        self.held.move_to_end(key)
        self.hits += 1
        return self.held[key]

    def put(self, key, value):
        if key in self.held:
            self.held.move_to_end(key)
        self.held[key] = value
        if len(self.held) > self.size:
            self.held.popitem(last=False)


def cached(keys):
    """The least recently used key is dropped."""
    cache, found = Recent(2), []
    for key in keys:
        found.append(cache.get(key))
        cache.put(key, key * key)
    return found, cache.hits, list(cache.held)


def moved(keys):
    d = OrderedDict()
    for key in keys:
        d[key] = d.get(key, 0) + 1
    d.move_to_end(keys[0], last=False)
    d.move_to_end(keys[1])
    return d


def from_both_ends(keys):
    d, found = OrderedDict((key, k) for k, key in enumerate(keys)), []
    while d:
        found.append(d.popitem(last=len(found) % 2 == 0))
    return found


def compared(keys):
    a, b = OrderedDict.fromkeys(keys, 0), OrderedDict.fromkeys(sorted(keys), 0)
    return a == b, dict(a) == dict(b), a == dict(b), list(reversed(a)), isinstance(a, dict), isinstance(a, OrderedDict)


def copied(keys):
    a = OrderedDict.fromkeys(keys, 1)
    b = a.copy()
    b[99] = 2
    b.move_to_end(99, last=False)
    return list(a), b, {**a, 7: 1}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [cached, moved, from_both_ends, compared, copied])
def test_equals_python(function, backend):
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(INTEGERS))
    assert_same(found, list(map(function, INTEGERS)))
    if function is moved:
        assert [type(d) for d in found] == [OrderedDict] * len(INTEGERS)


def weighted(xs, w):
    d = OrderedDict()
    for k, x in enumerate(xs):
        d[k % 3] = d.get(k % 3, 0.0) * w + x
        d.move_to_end(k % 3)
    return sum(v * (k + 1) for k, v in enumerate(d.values()))


def test_derivatives():
    examples, w, step = [[1.0, 2.0, 3.0, 4.0], [0.5, 1.5]], [0.5, 2.0], 1e-6
    found = ab.grad(ab.batched(weighted), 1)(examples, w)
    wanted = [(weighted(x, y + step) - weighted(x, y - step)) / (2 * step) for x, y in zip(examples, w, strict=True)]
    np.testing.assert_allclose(list(found), wanted, rtol=1e-4)


def test_nothing_to_take_out():
    def first(n):
        d = OrderedDict((k, k) for k in range(n))
        return d.popitem(last=False)

    with pytest.raises(ExampleError, match="KeyError: 'dictionary is empty'"):
        ab.batched(first, backend="llvm")([2, 0])


def test_as_examples():
    """Those of the examples keep their order, and are the caller's where they are changed."""
    examples = [OrderedDict([(2, 1.0), (1, 2.0)]), OrderedDict([(5, 3.0)])]
    assert ab.unbatch(ab.batched(lambda d: list(d))(examples)) == [[2, 1], [5]]

    def add(d):
        d[7] = 0.5
        return len(d)

    assert ab.unbatch(ab.batched(add)(examples)) == [3, 2]
    assert [list(d) for d in examples] == [[2, 1, 7], [5, 7]]
