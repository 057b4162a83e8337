"""Methods that read, by other names, and methods of base classes: what they are when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import assert_same, check_equivalence
from tests.frontend.batches import fails, refused

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

    for f, what in ((a_method, "get is a method of a list or dict"), (a_view, "values is a view")):
        refused(f, XS, W, saying=f"{what}.*read after what it depends on has changed")


def grow(ys: Any) -> None:
    ys.append(9.0)


def test_an_iterator_whose_list_a_function_changes() -> None:
    def of_a_module(w, xs):
        ys = [x for x in xs if x * w > 0.3]
        pairs = zip(ys, xs, strict=False)
        grow(ys)
        return sum([p * q for p, q in pairs], 0.0)

    def of_the_second(w, xs):
        ys = [x for x in xs if x * w > 0.3]
        pairs = zip(xs, ys, strict=False)
        grow(ys)
        return sum([p * q for p, q in pairs], 0.0)

    def of_the_function(w, xs):
        ys = [x for x in xs if x * w > 0.3]

        def longer():
            ys.append(w)

        places = enumerate(ys)
        longer()
        return sum([k * y for k, y in places], 0.0)

    for f in (of_a_module, of_the_second, of_the_function):
        with ab.options(trace=False):
            found = ab.unbatch(ab.batched(f, in_axes=(None, 0), backend="llvm")(W, XS))
        assert_same(found, [f(W, xs) for xs in XS])


def test_a_method_that_only_one_arm_names() -> None:
    def f(w, xs):
        out = []
        if xs[0] * w > 0.3:
            push = out.append
        for x in xs:
            push(x)
        return out

    fails(f, XS, W)


def test_a_method_that_is_named_in_a_branch_and_called_there() -> None:
    def f(w, xs):
        out = [w]
        if xs[0] * w > 0.3:
            push = out.append
            for x in xs:
                push(x)
        return out

    check_equivalence(ab.batched(f, in_axes=(None, 0)), XS, (W,), grads=False, backends=("llvm",), jit=False)
