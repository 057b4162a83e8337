"""Dicts of dicts that all examples share, of which data says what is read: state machines, tables of prices."""

from __future__ import annotations

import enum

import pytest

import autobatch as ab
from autobatch.testing import assert_same


class Phase(enum.Enum):
    IDLE = 0
    RUN = 1
    DONE = 2


NUMBER = {
    "start": {"d": "int", "-": "sign"},
    "sign": {"d": "int"},
    "int": {"d": "int", ".": "frac"},
    "frac": {"d": "frac"},
}
PHASES = {Phase.IDLE: {"go": Phase.RUN}, Phase.RUN: {"stop": Phase.DONE, "pause": Phase.IDLE}, Phase.DONE: {}}
PRICES = {"fruit": {"apple": 1.0, "pear": 2.5}, "tool": {"saw": 9.0}, "none": {}}
STEPS = {0: {1: 0.5, 2: 1.5}, 1: {2: 1.0}, 2: {}}
RULES = [{"a": 1, "b": 1}, {"c": 2}, {}]


def machine(word):
    state = "start"
    for letter in word:
        following = NUMBER[state].get("d" if letter.isdigit() else letter)
        if following is None:
            return "error"
        state = following
    return state


def phases(events):
    phase, seen = Phase.IDLE, 0
    for event in events:
        if event in PHASES[phase]:
            phase = PHASES[phase][event]
            seen += 1
    return phase, seen


def priced(kind, name):
    table = PRICES[kind]
    return table[name] if name in table else sum(table.values()), len(table), list(table)


def walked(n):
    cost = 0.0
    while STEPS[n]:
        n, more = min(STEPS[n].items(), key=lambda pair: pair[1])
        cost += more
    return n, cost


def fired(k, counts):
    return sum(n * counts.get(name, 0) for name, n in RULES[k].items()), RULES[k] == {"c": 2}


CASES = {
    machine: (["12", "-3.5", "1-", "", ".5"],),
    phases: ([["go", "pause", "go"], ["stop"], ["go", "stop", "go"]],),
    priced: (["fruit", "tool", "none", "fruit"], ["pear", "pear", "saw", "saw"]),
    walked: ([0, 1, 2],),
    fired: ([0, 1, 2], [{"a": 2, "b": 1}, {"c": 3}, {"a": 5}]),
}


@pytest.mark.parametrize("backend", ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_equals_python(function, backend):
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(*CASES[function]))
    assert_same(found, list(map(function, *CASES[function])))


def chosen_by_a_float(xs, w):
    state, cost = "start", 0.0
    for x in xs:
        state = NUMBER[state].get("d" if x > 0 else "-", "start")
        cost += w * x if state == "int" else x
    return cost


def test_derivatives():
    xs, w = [[1.0, 2.0, -1.0], [-2.0, 3.0]], [0.5, 2.0]
    with ab.options(trace=False):
        found = ab.grad(ab.batched(chosen_by_a_float), 1)(xs, w)
    step = 1e-4
    wanted = [
        (chosen_by_a_float(x, y + step) - chosen_by_a_float(x, y - step)) / (2 * step)
        for x, y in zip(xs, w, strict=True)
    ]
    assert_same(list(map(float, found)), wanted, tolerance=1e-2)
