"""What classes do where attributes are set: properties, descriptors, `__setattr__`; and objects that are called."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

import autobatch as ab
from autobatch.testing import assert_same

NUMBERS = [1, -2, 5]


class Positive:
    def __init__(self, value):
        self.value = value

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = max(value, 0)


class Derived(Positive):
    def __init__(self, value):
        super().__init__(value)
        self.other = 1


class Checked:
    """A descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, cls=None):
        return getattr(owner, self.name)

    def __set__(self, owner, value):
        if value < 0:
            raise ValueError("negative")
        setattr(owner, self.name, value)


class Weighted:
    weight = Checked()

    def __init__(self, weight):
        self.weight = weight


class Clamped:
    def __init__(self, start):
        self.total, self.count = start, 0

    def __setattr__(self, name, value):
        super().__setattr__(name, 10 if name == "total" and value > 10 else value)

    def add(self, x):
        self.total += x
        self.count += 1


@dataclass(frozen=True)
class Fraction:
    num: int
    den: int

    def __post_init__(self):
        divisor = math.gcd(self.num, self.den)
        object.__setattr__(self, "num", self.num // divisor)
        object.__setattr__(self, "den", self.den // divisor)

    def __add__(self, other):
        return Fraction(self.num * other.den + other.num * self.den, self.den * other.den)

    def __radd__(self, other):
        return self if other == 0 else self + other

    def __mul__(self, other):
        return Fraction(self.num * other.num, self.den * other.den)

    def __str__(self):
        return f"{self.num}/{self.den}"


class Scaled:
    def __init__(self, factor):
        self.factor, self.calls = factor, 0

    def __call__(self, x):
        self.calls += 1
        return self.factor * x + self.calls


class Squashed:
    def __call__(self, x):
        return math.tanh(x)


class Kept:
    found = None

    def __init__(self, x):
        self.x = x

    def get(self):
        if self.found is None:
            self.found = self.x * 2
        return self.found


def kept(x):
    """What an object keeps in the place of a default of its class."""
    made = Kept(x)
    first, made.x = made.get(), 100
    return first + made.get(), Kept(x).found is None


def by_property(x):
    made = Positive(x)
    made.value = made.value - 3
    return made.value + Derived(x).value + Derived(x).other


def in_a_loop(x):
    made = Derived(20)
    for k in range(4):
        made.value -= k * x
    return made.value


def by_descriptor(x):
    try:
        made = Weighted(x)
    except ValueError:
        return -1
    made.weight = made.weight + 1
    return made.weight


def by_setattr(x):
    made = Clamped(x)
    for k in range(4):
        made.add(x + k)
    return made.total + 100 * made.count


def frozen(x):
    made = Fraction(x, 4) + Fraction(2, 8)
    return made.num, made.den


def summed(x):
    """The sum of no elements is the int 0, which has no product with a Fraction."""
    total = sum([Fraction(x, k + 1) for k in range(abs(x))])
    return str(total), str(total * Fraction(2, 4))


def callables(x):
    layers = [Scaled(k) if k % 2 else Squashed() for k in range(abs(x) + 1)]
    total = 0.5
    for layer in layers:
        total = layer(total)
    return total + sum(map(Scaled(x), [1.0, 2.0]))


@pytest.mark.parametrize("backend", ["auto", "llvm"])
@pytest.mark.parametrize(
    "function", [kept, by_property, in_a_loop, by_descriptor, by_setattr, frozen, summed, callables]
)
def test_setters(function, backend):
    with ab.options(trace=False):
        got = ab.batched(function, backend=backend)(NUMBERS)
    got = list(zip(*map(list, got), strict=True)) if isinstance(got, tuple) else list(got)
    assert_same(got, list(map(function, NUMBERS)))
