"""What an explanation says of control on computed numbers: what gradients keep, and what runs ahead of a test."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

P, X = jnp.float32(1.0), jnp.asarray([1.0, 2.0, 3.0])


def grows(p: Any, x: Any) -> Any:
    s = x
    while s < p * 10:
        s = s * 1.5 + 1
    return s


def counts(p: Any, x: Any) -> Any:
    for _ in range(2000):
        x = jnp.sin(x) * p
    return x


def why(f: Any, line: str, *args: Any) -> str:
    """What is said of the only loop, whose name ends with this."""
    (found,) = [s["why"] for s in f.explain(*args).data["strategies"] if s["name"].endswith(line)]
    return str(found)


def line_of(function: Any, offset: int) -> str:
    return f"line {function.__code__.co_firstlineno + offset}"


@pytest.mark.parametrize(
    ("chosen", "states", "again"),
    [
        ({}, 160, "4 times"),
        ({"checkpoint": "sqrt", "max_iterations": 10_000}, 200, "once"),
        ({"checkpoint": 7}, 63, "8 times"),
    ],
)
def test_the_states_that_a_gradient_of_a_loop_keeps(chosen: dict[str, Any], states: int, again: str) -> None:
    """The number is said, and it is that of the arrays of the gradient's program."""
    f = ab.batched(grows, in_axes=(None, 0), options={"loops": "xla", **chosen})
    said = why(f, line_of(grows, 2), P, X)
    assert f"keeps {states} states of each row" in said and f"runs a turn again {again} at most" in said
    program = str(jax.make_jaxpr(jax.grad(lambda p: f(p, X).sum()))(P))
    rows = {int(n) for n in re.findall(rf"f32\[{states},(\d+)", program)}
    assert rows, f"no array of {states} states"
    assert not re.findall(rf"f32\[{states + 1},", program)


def test_what_a_gradient_of_a_counted_loop_keeps() -> None:
    """The root of the turns; all of them up to the square of `checkpoint`."""
    f = ab.batched(counts, in_axes=(None, 0))
    said = why(f, line_of(counts, 1), P, X)
    assert (
        "44 states and what the last 20 turns compute" in said
        and "runs the 45 turns behind each state again once" in said
    )
    program = str(jax.make_jaxpr(jax.grad(lambda p: f(p, X).sum()))(P))
    lengths = set(map(int, re.findall(r"length=(\d+)", program)))
    assert {44, 45, 20} <= lengths and 2000 not in lengths
    whole = ab.batched(counts, in_axes=(None, 0), options={"checkpoint": "all"})
    assert "a gradient keeps what all turns compute" in why(whole, line_of(counts, 1), P, X)


@dataclass
class Node:
    x: float
    kids: list[Node] = field(default_factory=list)


def sums(p: Any, t: Node) -> Any:
    assert t.x < 9, "large"
    return t.x * p + sum([sums(p, k) for k in t.kids])


@ab.batched(in_axes=(None, 0))
def decides(p: Any, t: Node) -> Any:
    s = t.x * p
    if s > 2:
        for k in t.kids:
            s = s + k.x
        s = s + sums(p, t)
    return s


def test_what_runs_ahead_of_a_test_and_which_test_that_is() -> None:
    """Both lines, with the line of the test; the recursion is not said to be inlined. What fails there fails the rows
    that come there, and no others."""
    tree = Node(1.0, [Node(2.0), Node(3.0, [Node(10.0)])])
    found = decides.explain(P, [tree]).data["strategies"]
    lines = {s["name"]: s["why"] for s in found if s["strategy"] == "ahead"}
    first = decides.__wrapped__.__code__.co_firstlineno
    assert set(lines) == {f"line {first + 4}", f"line {first + 6}"}
    assert all(f"line {first + 3} is data-dependent" in words for words in lines.values())
    assert [s["strategy"] for s in found if s["name"] == "sums"] == ["frames"]
    f = ab.batched(decides.__wrapped__, in_axes=(None, 0), backend="interpret")
    np.testing.assert_allclose(f(P, [tree]), f.loop(P, [tree]))
    with pytest.raises(ab.ExampleError, match="large"):
        f(3 * P, [tree])
