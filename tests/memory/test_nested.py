"""Lists in lists, dicts and objects that are changed where numbers decide agree with plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.call import prepared
from autobatch.testing.programs import load
from tests.memory.nested import PROGRAMS
from tests.memory.pairs import W, X, check_numbers

BACKENDS = ("interpret", "xla", "llvm")
COMMON = ("groups", "shift_reduce", "aliases", "sparse", "tracks")


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ in COMMON], ids=lambda p: p.__name__)
def test_values(program: Callable[..., Any]) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), "interpret", False)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), backend, True)


# ---- random programs

HEAD = """
import autobatch as ab

@ab.batched(in_axes=(None, 0))
def main(w, x):
    a = [w, 0.5]
    b = [x]
    out = [a, b, [1.0]]
    d = {0: a}
    s, k = w, 0
    while x < 3.0:
        x = x * 1.3 + 0.3
        k = k + 1
"""
TAIL = """
    for row in out:
        for v in row:
            s = s * 0.9 + v
    for key, row in d.items():
        s = s + (key + 1) * sum(row) + len(row)
    return s + sum(a) * 0.3 + len(b)
"""
STATEMENTS = (
    "{u}.append(x * w)",
    "{u} = out[k % len(out)]",
    "{u} = [x, w]",
    "out[k % len(out)] = {u}",
    "out.append({u})",
    "out.append([x] * (k % 3))",
    "if len({u}) > 2:\n    s = s + {u}.pop()",
    "if len({u}) > 0:\n    {u}[0] = {u}[-1] * 0.5 + x",
    "{u}.extend({v})",
    "{u} += [x * 0.1]",
    "{u}.insert(k % 2, x)",
    "{u}.reverse()",
    "{u}.sort()",
    "{u} = {v}[1:]",
    "{u} = {v} + [x]",
    "d.setdefault(k % 3, []).append(x)",
    "d[k % 2] = {u}",
    "if {u} is {v}:\n    s = s + 0.5 * x",
    "if {u} == {v}:\n    s = s * 0.7",
    "if len({u}) > 4:\n    {u}.clear()",
    "if len(out) > 5:\n    out.pop(0)",
    "if len({u}) > 1:\n    del {u}[0]",
    "s = s + max({u}, default=0.0) * 0.1",
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A program whose turns change lists under several names."""
    names = st.sampled_from("ab")
    drawn = draw(st.lists(st.tuples(st.sampled_from(STATEMENTS), names, names), min_size=2, max_size=5))
    lines = [line for text, u, v in drawn for line in text.format(u=u, v=v).splitlines()]
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


@pytest.mark.long
@settings(max_examples=15)
@given(source=sources(), backend=st.sampled_from(BACKENDS))
def test_random_lists(source: str, backend: str) -> None:
    check_numbers(load(source), backend, False)


# ---- room


def piled(w: Any, x: Any) -> Any:
    """The `k`-th list has `k % 5` elements."""
    rows: list[list[Any]] = []
    while x < 3.0:
        x = x + 0.02
        rows.append([])
        for _ in range(len(rows) % 5):
            rows[-1].append(x * w)
    return sum(len(row) for row in rows) + sum(rows[-1])


def test_room_grows() -> None:
    f = ab.batched(piled, in_axes=(None, 0), backend="llvm")  # type: ignore[call-overload]
    assert [float(y) for y in f(W, X[:2])] == pytest.approx([float(y) for y in f.loop(W, X[:2])], rel=1e-5)
    assert f.room.capacity >= 105


def test_the_end_of_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "LARGEST", 64)
    with pytest.raises(ab.ExampleError, match=r"more objects of list are made than list_capacity=32"):
        ab.batched(piled, in_axes=(None, 0), backend="interpret")(W, X[:2])


# ---- found by programs


def halves(w: Any, x: Any) -> Any:
    n = 1
    while x < 3.0:
        x = x * 1.3 + 0.2
        n = n + 1
    return sum(w / (k + 1) for k in range(n))


def test_sums_over_computed_lengths_of_machine_code_under_jit() -> None:
    """The comprehension is a loop for machine code, and had no memory where XLA runs it."""
    f = ab.batched(halves, in_axes=(None, 0), backend="llvm")  # type: ignore[call-overload]
    assert list(jax.jit(f)(W, X)) == pytest.approx([float(y) for y in f.loop(W, X)], rel=1e-5)
