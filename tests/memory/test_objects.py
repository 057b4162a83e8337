"""Data-dependent objects agree with plain Python: values, gradients, failures, room, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.call import prepared
from autobatch.testing import check_equivalence
from autobatch.testing.programs import load
from tests.memory.objects import PROGRAMS, Cell
from tests.memory.pairs import W, X, check_numbers

BACKENDS = ("interpret", "xla", "llvm")
FAILING = ("last_fails",)
COMMON = ("in_two_lists", "logs", "pop_aug", "named_unpack", "recursive_make", "same_in_loop", "through_call")


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ in COMMON], ids=lambda p: p.__name__)
def test_values(program: Callable[..., Any]) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), "interpret", False)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), backend, program.__name__ not in FAILING)


# ---- random programs


HEAD = """
import jax.numpy as jnp
import autobatch as ab
from tests.memory.objects import Cell

@ab.batched(in_axes=(None, 0))
def main(w, x):
    a = Cell(w)
    b = Cell(x, a)
    c = None
    out = [a, b]
    s, k = w, 0
    while x < 3.0:
        x = x * 1.3 + 0.3
        k = k + 1
"""
TAIL = """
    turns = 0
    while b is not None and turns < 5:
        s = s * 0.7 + b.value
        b = b.next
        turns = turns + 1
    for node in out:
        s = s * 0.9 + node.value
    return s + (c.value if c is not None else 0.0) + a.value * 0.3
"""
STATEMENTS = (
    "a = Cell(x, {u})",
    "{v} = Cell(w * x, b)",
    "b = a",
    "c = {u}",
    "if {v} is not None:\n    {v}.value += x * 0.3",
    "if {v} is not None:\n    {v}.next = {u}",
    "if {v} is not None:\n    c = {v}.next",
    "if b.next is not None:\n    b = b.next",
    "out[k % 2].value *= 0.5",
    "out[k % 2] = a",
    "out.append(Cell(x, c))",
    "out[-1].value = w",
    "if {u} is {v}:\n    s = s + 0.5 * x\nelse:\n    s = s * 0.5",
    "if x > 1.5:\n    a.value, b.value = b.value, a.value * 0.1",
    "s = s + sum(node.value for node in out) * 0.01",
)
NAMES = st.sampled_from("abc")


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A program whose turns link, change and compare objects."""
    drawn = draw(st.lists(st.tuples(st.sampled_from(STATEMENTS), NAMES, NAMES), min_size=2, max_size=5))
    lines = [line for text, u, v in drawn for line in text.format(u=u, v=_taken(text, v)).splitlines()]
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


def _taken(text: str, name: str) -> str:
    """`a` and `b` are always objects."""
    return "c" if text.startswith("{v} =") else name


@settings(max_examples=5)
@given(source=sources())
def test_random_graphs(source: str) -> None:
    check_numbers(load(source), "interpret", False)


@pytest.mark.long
@settings(max_examples=15)
@given(source=sources(), backend=st.sampled_from(BACKENDS))
def test_gradients_of_random_graphs(source: str, backend: str) -> None:
    check_numbers(load(source), backend, True)


def rows_of_objects(w: Any, xs: list[float]) -> Any:
    """Structure decides how many there are, numbers which row stands where."""
    rows = [[Cell(x * w) for _ in range(2)] for x in xs]
    for row in rows:
        for cell in row:
            if cell.value > 0.5:
                row[0].value += 0.25
    if rows and xs[0] * w > 0.3:
        rows[0] = rows[-1]
        rows[0][1].value += 1.0
    return [[cell.value for cell in row] for row in rows]


def test_rows_of_objects() -> None:
    f = ab.batched(rows_of_objects, in_axes=(None, 0))
    check_equivalence(f, [[1.0, 2.0, 0.25], [], [0.125]], (0.75,), backends=["interpret"], jit=False)


# ---- room


def chain(w: Any, x: Any) -> Any:
    head, n = None, 0
    while x < 3.0:
        x = x + 0.02
        head = Cell(x * w, head)
        n = n + 1
    return head.value + n  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["llvm"])
def test_room_grows(backend: str) -> None:
    f = ab.batched(chain, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    assert [float(y) for y in f(W, X[:2])] == pytest.approx([float(y) for y in f.loop(W, X[:2])], rel=1e-5)
    assert f.room.capacity >= 105


def test_the_end_of_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "LARGEST", 64)
    with pytest.raises(ab.ExampleError, match=r"more objects of Cell are made than list_capacity=32"):
        ab.batched(chain, in_axes=(None, 0), backend="interpret")(W, X[:2])
