"""Reads whose result nobody uses: their example fails as in plain Python, and what cannot fail costs nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.ir.core import Apply, walk
from autobatch.ir.printer import print_module


@dataclass
class Leaf:
    n: int


@dataclass
class Node:
    x: float
    n: int
    tag: str
    left: Node | None = None
    kids: list[Node] = field(default_factory=list)
    xs: list[float] = field(default_factory=list)
    some: list[int] | None = None
    either: Leaf | Node | None = None


LEAF = Node(1.0, 0, "a")
MIDDLE = Node(0.5, 1, "1", LEAF, [LEAF, LEAF], [0.5], [1], Leaf(1))
LARGE = Node(0.5, 2, "c", MIDDLE, [MIDDLE, LEAF], [0.5, 0.25], [0, 2], LEAF)
BATCH = [LEAF, MIDDLE, LARGE]
TABLE = {"a": 1.0, "1": 2.0}


CASES: list[Callable[[Node], Any]] = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


@case
def field_of_none(t):
    _ = t.left.left.x


@case
def field_that_a_class_lacks(t):
    t.either.x


@case
def item_of_a_list(t):
    t.xs[1] * 2 + 1


@case
def item_of_no_list(t):
    t.some[0]


@case
def length_of_no_list(t):
    len(t.some)


@case
def key_of_a_dict(t):
    TABLE[t.tag]


@case
def quotient(t):
    1 // t.n


@case
def quotient_by_a_length(t):
    t.x / len(t.xs)


@case
def text_as_int(t):
    int(t.tag)


@case
def float_as_int(t):
    int(t.x * float("inf"))


@case
def shift_to_the_left(t):
    1 << t.n - 1


@case
def shift_to_the_right(t):
    5 >> t.n - 1


@case
def read_of_either_arm(t):
    t.left.left.x if t.n > 0 else t.xs[0]


@case
def behind_a_test(t):
    t.left is not None and t.left.left.x > 0


@case
def in_a_loop(t):
    for c in t.kids:
        c.left.x


@case
def in_a_counted_loop(t):
    for k in range(2):
        t.kids[k]


@case
def in_a_while_loop(t):
    u = t
    while u is not None:
        u.xs[0]
        u = u.left


@case
def in_a_comprehension(t):
    [c.left.x for c in t.kids]


@case
def in_a_comprehension_with_a_filter(t):
    [c.left.x for c in t.kids if c.n == 0]


@case
def in_a_sum(t):
    sum(c.left.x for c in t.kids)


@case
def in_a_key(t):
    sorted(t.kids, key=lambda c: c.left.x)


@case
def in_a_list_made_here(t):
    states = [jnp.tanh(x) for x in t.xs]
    states[1]


@case
def in_a_list_of_which_the_length_is_used(t):
    return len([c.left.x for c in t.kids])


def reads_far_below(t):
    if t.left is None:
        return t.xs[0]
    return reads_far_below(t.left) + t.x


@case
def in_a_recursion(t):
    reads_far_below(t)


def one_by_one(t, k):
    if t.left is None:
        return 1 // k
    return one_by_one(t.left, k - 1)


@case
def in_a_recursion_with_a_number(t):
    one_by_one(t, 1)


def hands_down(t, y):
    return 0.0 if t.left is None else hands_down(t.left, t.xs[0])


@case
def in_an_argument_that_is_not_read(t):
    return hands_down(t, t.xs[0])


def depth(t):
    return 0 if t.left is None else 1 + depth(t.left)


@case
def at_what_a_call_returns(t):
    t.xs[depth(t)]


@case
def before_an_assertion(t):
    t.left.x
    assert t.n > 1, "small"


@case
def behind_an_assertion(t):
    assert t.n > 1, "small"
    t.left.left.x


@case
def before_a_read_that_is_used(t):
    t.xs[1]
    return t.left.x


@case
def behind_a_read_that_is_used(t):
    y = t.left.x
    t.xs[1]
    return y


@case
def overwritten(t):
    y = t.left.x
    y = 2.0
    return y


@pytest.mark.parametrize("function", CASES)
def test_the_failure_is_the_one_that_python_raises_first(function: Callable[[Node], Any]) -> None:
    def f(t):
        y = function(t)
        return t.x if y is None else t.x + y

    expected = []
    for k, t in enumerate(BATCH):
        try:
            f(t)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            expected.append((k, type(error).__name__, str(error).split("\n")[0], line))  # pytest adds lines
    assert expected, "some example fails"
    try:
        result, failures = ab.batched(f, backend="interpret", on_error="mask")(BATCH)
    except ab.ExampleError as error:
        assert len(expected) == len(BATCH)
        failures = error.failures
    else:
        assert [k for k, bad in enumerate(failures.failed.tolist()) if bad] == [k for k, *_ in expected]
        for k in set(range(len(BATCH))) - {k for k, *_ in expected}:
            assert result[k] == pytest.approx(f(BATCH[k]))
    assert [(x.index, x.kind, x.message, x.line) for x in failures] == expected


# ---- what cannot fail is not checked


def behind_tests(t):
    u = t
    while u is not None:
        u.n
        if u.left is not None and u.left.n > 0:
            u.left.x
        u = u.left


def turns_of_loops(t):
    for c in t.kids:
        pass
    for k in range(len(t.kids)):
        t.kids[k]
    for c in reversed(t.kids):
        c.x
    for k, (c, x) in enumerate(zip(t.kids, t.xs, strict=False)):
        c.tag
    for y in [c.x for c in t.kids]:
        pass


def behind_a_class_test(t):
    if isinstance(t.either, Leaf):
        t.either.n
    elif t.either is not None:
        t.either.x


def read_before(t):
    s = t.left.n
    t.left.x
    t.left.kids
    if s > 0:
        t.left.tag


def of_a_fixed_list(t):
    [t.x, 1.0][-2]
    len(t.tag.upper())
    1 << 3


ONE = Node(1.0, 1, "b", Node(2.0, 3, "c"), [Node(3.0, 0, "d")], [0.5, 1.0])
"""Its objects are of one class."""


@pytest.mark.parametrize(
    ("function", "examples"),
    [
        (behind_tests, [ONE]),
        (turns_of_loops, [ONE]),
        (behind_a_class_test, [MIDDLE, LARGE]),
        (read_before, [ONE]),
        (of_a_fixed_list, [ONE]),
    ],
)
def test_what_cannot_fail_is_not_checked(function: Callable[[Node], Any], examples: list[Node]) -> None:
    def f(t):
        function(t)
        return t.x

    f = ab.batched(f, backend="interpret")
    assert f(examples).tolist() == f.loop(examples)
    module = f.lower(examples)._program.compiled.example
    found = [i for g in module.functions for i in walk(g.region) if isinstance(i, Apply) and i.op.name == "check"]
    assert not found, print_module(module)
