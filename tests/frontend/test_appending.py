"""Lists that loops build: comprehensions, functions of the turn, or carried lists."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from autobatch.errors import UnsupportedError
from autobatch.ir.core import For, Map, walk
from tests.frontend.harness import Lowering, check

LISTS = [[1, 2, -3, 4], [], [-1, 2]]


def loops(made):
    return [type(i).__name__ for f in made.module.functions for i in walk(f.region) if isinstance(i, (For, Map))]


def test_an_if_around_append_filters():
    def f(xs):
        out = [7]
        for x in xs:
            y = x * x
            if x > 0:
                z = y + 1
                out.append(z)
        return out

    assert "For" not in loops(check(f, LISTS))


def test_continue_before_append_filters():
    def f(xs):
        out, other = [], []
        for x in xs:
            if x < 0:
                continue
            out.append(x)
            other.append(x * 2)
        return out, other

    assert "For" not in loops(check(f, LISTS))


def test_the_test_reads_the_list():
    def f(xs):
        rising, first = [0], []
        for x in xs:
            if x > rising[-1]:
                rising.append(x)
        for x in xs:
            if len(first) == 2 or x in first:
                continue
            first.append(x)
        return rising, first

    check(f, [[1, 3, 2, 4, 3], [2, 2, 1], []])


def test_append_and_break():
    def f(xs):
        out = []
        for x in xs:
            if x < 0:
                break
            out.append(x)
        return out

    check(f, LISTS)


def test_append_in_both_arms_with_state():
    def f(xs):
        out, s = [], 0
        for x in xs:
            s += x
            if s > 0:
                out.append(s)
            else:
                out.append(0)
        return out, s

    check(f, LISTS)


def test_state_after_each_turn():
    def f(w, xs):
        h, n, hs, ns = w * len(xs), 0, [], []
        for x in xs:
            h = jnp.tanh(h * x + w)
            n += x
            hs.append(h)
            ns.append((n, h[0]))
        return sum(hs), [a for a, _ in ns], h, n

    assert "For" not in loops(check(f, LISTS[:1] + LISTS[2:], jnp.arange(3.0)))


def test_two_names_of_one_list():
    def f(xs):
        a = b = [0]
        for x in xs:
            a.append(x)
        b.append(9)
        return a, len(b)

    check(f, LISTS)


def test_an_element_that_always_fails():
    def fail(x):
        raise ValueError(f"no {x}")

    def f(xs):
        out = []
        for x in xs:
            if x < 0:
                out.append(fail(x))
        return 1

    check(f, [[1, -2], [1, 2]])


def test_lists_of_others_are_not_changed():
    out = []

    def f(xs):
        for x in xs:
            out.append(x)
        return 1

    def g(ys, x):
        for y in (x, x):
            ys.append(y)
        return ys

    with pytest.raises(UnsupportedError, match="made outside this function"):
        Lowering(f, LISTS)
    check(lambda n: len(g([n], n)), [1, 2])  # that of a caller, of the same example, is


def test_one_start_for_two_variables():
    def f(xs):
        a = b = (0, 0)
        for x in xs:
            a = (a[0] + x, b[1])
        return a, b

    check(f, LISTS)


def test_a_list_with_two_names_is_one_list_behind_the_loop():
    def f(xs):
        turns, out = 0, [7]
        same = out
        for x in xs:
            turns = turns + 1
            out.append(x * turns)
        return same, turns

    check(f, LISTS)


def test_a_turn_reads_the_list_by_its_other_name():
    def f(xs):
        total, out = 0, [7]
        same = out
        for x in xs:
            total = total + x * len(same)
            out.append(total)
        return out, len(same)

    check(f, LISTS)
