"""Results in which one object stands in several places, where lists of different lengths meet."""

from __future__ import annotations

from dataclasses import dataclass, field

import autobatch as ab
from tests.api.structures import agrees, trees


@dataclass
class Out:
    v: float
    first: Out | None = None
    all: list[Out] = field(default_factory=list)


@ab.batched
def one_in_one_arm_and_two_in_the_other(t):
    a = Out(t.x * 3, None, [])
    if t.left is None:
        return Out(t.x, a, [a])
    return Out(t.x, a, [a, one_in_one_arm_and_two_in_the_other(t.left)])


def in_an_expression(t):
    a = Out(t.x * 3, None, [])
    every = [a] if t.left is None else [a, Out(t.x, a, [a])]
    return Out(t.x, every[0], every)


def appended(t):
    a = Out(t.x)
    every = [a]
    if t.left is not None:
        every.append(a)
    if t.kids:
        every.append(Out(2 * t.x, a, [a]))
    return a, every


def in_dicts(t):
    a = Out(t.x)
    return {"p": a, "q": [a]} if t.left is None else {"p": a, "q": [a, a]}


@ab.batched
def among_results(t):
    a = Out(t.x, None, [])
    below = [among_results(k) for k in t.kids]
    return Out(t.x, a, [a, *below, a])


def test_lists_of_objects_that_stand_elsewhere():
    for function in (one_in_one_arm_and_two_in_the_other, in_an_expression, appended, in_dicts, among_results):
        agrees(function, trees())
