"""Methods that read, by other names, and methods of base classes: what they are when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import refused

XS = [[0.9, 0.41, -0.7, 1.3, 2.1], [0.5, 1.7], [1.4, 0.31, 0.8], [0.05]]
W = jnp.float32(1.1)


def reads_by_another_name(w, xs):
    known, seen, s = {}, [], 0.0
    get, pairs = known.get, known.items
    count = seen.count

    def each(f):
        return f(0, 3.0)

    for k, x in enumerate(xs):
        s += get(k % 2, 7.0)
        if x * w > 0.3:
            known[k % 2] = x
            seen.append(k % 2)
        for a, b in pairs():
            s += (a + 1) * b
        s = 0.5 * s + count(1) + each(known.get)
    return s


class Base:
    def __init__(self, x):
        self.x = x

    def area(self):
        return self.x

    @classmethod
    def made(cls, x):
        return cls(x + 1.0)


class Left(Base):
    def area(self):
        return super().area() * 2.0 + self.x

    @classmethod
    def made(cls, x):
        return super().made(x * 2.0)


class Right(Base):
    def area(self):
        return super().area() * 3.0


class Both(Left, Right):
    def area(self):
        return super(Both, self).area() + 0.5


def bases_in_order(w, xs):
    s = 0.0
    for x in xs:
        if x * w > 0.3:
            s = 2.0 * s + Both(x).area() + Both.made(x).area()
        else:
            s += Left(x).area()
    return s


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("function", [reads_by_another_name, bases_in_order], ids=lambda f: f.__name__)
def test_agreement(function: Callable[..., Any], backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    check_equivalence(f, XS, (W,), grads=False, backends=(backend,), jit=False, tolerance=2e-5)


def test_what_is_read_behind_a_change() -> None:
    def a_method(w, xs):
        known = {}
        if xs[0] > 0.6:
            known = {0: 1.0}
        get = known.get
        s = 0.0
        for k, x in enumerate(xs):
            s += get(k % 2, 7.0)
            if x * w > 0.3:
                known[k % 2] = x
        return s

    def a_view(w, xs):
        known = {}
        values = known.values()
        s = 0.0
        for k, x in enumerate(xs):
            s += sum(values)
            if x * w > 0.3:
                known[k % 2] = x
        return s

    for f, what in ((a_method, "get is a method of a list or dict"), (a_view, "values is an iterator, or a view")):
        refused(f, XS, W, saying=f"{what}.*read after what it depends on has changed")
