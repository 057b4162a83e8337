"""Generators as classes, run by Python beside the generators that they are made of."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from autobatch.frontend.syntax.sources import source_of
from autobatch.frontend.syntax.state_machines import NotAMachine, class_of
from autobatch.testing.programs import Program
from tests.python import drawn_iterators


def machine(function: Any) -> Any:
    source = source_of(function)
    assert isinstance(source.node, ast.FunctionDef)
    return class_of(source.node, source.file, source.globals, {})


def taken(iterator: Any, sent: list[int]) -> list[Any]:
    """What an iterator gives, by `send` where numbers are given; how it ends."""
    found: list[Any] = []
    try:
        found.append(next(iterator))
        for k in itertools.islice(itertools.cycle([*sent, None]), 30):
            found.append(next(iterator) if k is None else iterator.send(k))
    except Exception as error:
        found.append((type(error).__name__, str(error)))
    return found


@settings(max_examples=150, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_iterators.generators(), st.integers(-2, 4), st.integers(-2, 4), st.lists(st.integers(0, 3), max_size=2))
def test_random_generators(program: Program, n: int, k: int, sent: list[int]) -> None:
    cls = machine(program.function)
    sent = sent if hasattr(cls, "send") else []
    wanted = taken(program.function(n, k), sent)
    module = program.function.__globals__
    module["summed"] = machine(module["summed"])  # what it returns is a field of its object
    assert taken(cls(n, k), sent) == wanted, program.source


def halves(v, n):
    for i in range(n):
        yield v / (i + 1)


def test_blocks_that_jump_forward_stand_in_no_loop() -> None:
    methods = {name: m for name, m in vars(machine(halves)).items() if hasattr(m, "__syntax_tree__")}
    assert set(methods) == {"__init__", "__iter__", "__next__", "close"}
    step = methods["__next__"].__syntax_tree__
    assert not any(isinstance(n, ast.While) for n in ast.walk(step))
    fields = {n.attr for n in ast.walk(step) if isinstance(n, ast.Attribute)}
    assert fields == {"gi_state", "gi_items0", "v", "n"}, "what no other block reads is a variable"


def in_a_with(path):
    with open(path) as lines:
        yield from lines


def in_finally(xs):
    for x in xs:
        try:
            yield x
        finally:
            xs.append(x)


def in_an_expression(x):
    return (yield x) + 1


def sent_on(x):
    y = yield x
    yield from halves(y, 2)


@pytest.mark.parametrize(
    ("function", "what"),
    [(in_a_with, "with"), (in_finally, "finally"), (in_an_expression, "expression"), (sent_on, "sent")],
)
def test_what_cannot_be_resumed(function: Any, what: str) -> None:
    with pytest.raises(NotAMachine, match=what):
        machine(function)


def test_where_they_end() -> None:
    found = machine(halves)(1.0, 2)
    assert list(found) == [1.0, 0.5]
    assert next(found, None) is None
    other = machine(halves)(1.0, 9)
    next(other)
    other.close()
    assert list(other) == []
