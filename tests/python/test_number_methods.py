"""Functions of Python that objects of the user have methods for: `int(x)`, `float(x)`, `abs(x)`, `sum(objects)`."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import autobatch as ab
from autobatch.testing import assert_same

BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"]


@dataclass
class Money:
    cents: float

    def __int__(self):
        return int(self.cents / 100)

    def __float__(self):
        return self.cents / 100

    def __abs__(self):
        return Money(abs(self.cents))

    def __add__(self, other):
        return Money(self.cents + other.cents)

    def __radd__(self, other):
        return self if other == 0 else Money(self.cents + other)


def converted(x):
    held = Money(x * 100) if x > 1 else Money(x * 50)
    return int(held), float(held), abs(held).cents


def summed(xs):
    return sum([Money(x) if x > 1 else Money(2 * x) for x in xs if x > 0.2]).cents


def of_the_examples(objects):
    return sum(objects).cents, sum(float(m) for m in objects)


CASES = [
    (converted, [3.0, 0.5, -2.5]),
    (summed, [[0.5, 1.5], [3.0, 0.25, 0.1]]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "data"), CASES)
def test_methods_of_objects(function, data, backend):
    assert_same(ab.unbatch(ab.batched(function, backend=backend)(data)), list(map(function, data)))


@pytest.mark.parametrize("backend", ["llvm", "auto"])
def test_objects_of_the_examples_are_added(backend):
    """Their sum is one that the function makes: machine code has both in one memory."""
    data = [[Money(1.0), Money(2.5)], [Money(3.0)]]
    assert_same(ab.unbatch(ab.batched(of_the_examples, backend=backend)(data)), list(map(of_the_examples, data)))
