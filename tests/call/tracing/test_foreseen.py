"""Activations that the examples foretell are those that calls lead to, and what is told wrongly changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import autobatch as ab
from autobatch.planning.activations import CALLS, Inspection
from tests.call.tracing.programs import chart, memo
from tests.call.tracing.test_programs import agree, shared


def rounds(monkeypatch: pytest.MonkeyPatch, f: Any, *args: Any) -> tuple[int, Any]:
    """How often activations of one function were expanded together, and what the call gives."""
    count = 0
    before = Inspection.execute

    def execute(self: Inspection, kind: Any) -> None:
        nonlocal count
        count += 1
        before(self, kind)

    with monkeypatch.context() as patch:
        patch.setattr(Inspection, "execute", execute)
        found = f(*args)
    return count, found


@pytest.mark.parametrize("program", (chart, memo), ids=lambda f: f.__name__)
def test_deep_traces_take_no_more_rounds(monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
    f, p = ab.batched(program, in_axes=(None, 0)), shared()
    counts = []
    for n in (4, 14):
        batch = [[0.5] * n, [0.25] * (n - 1)]
        f(p, batch)
        count, found = rounds(monkeypatch, f, p, [[0.75] * n, [0.5] * (n - 1)])
        agree(ab.unbatch(found), f.loop(p, [[0.75] * n, [0.5] * (n - 1)]))
        counts.append(count)
    assert counts[1] <= counts[0] + 2


@dataclass
class Node:
    value: float
    left: Node | None = None
    right: Node | None = None


def total(node: Node) -> Any:
    if node.left is None:
        return node.value
    return node.value * total(node.left)


def _deep(n: int) -> Node:
    made = Node(0.5)
    for k in range(n):
        made = Node(1.0 + k / 8, made, Node(2.0, Node(3.0)))
    return made


@pytest.mark.parametrize(
    "told", ({"": ("total",)}, {"right": ("total",)}, {"left": ("total",)}, {"left": ("other",)}), ids=str
)
def test_what_is_told_wrongly_changes_nothing(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]) -> None:
    monkeypatch.setattr(Node, CALLS, told, raising=False)
    with ab.options(trace=False):
        f = ab.batched(total)
        batch = [_deep(3), _deep(0), _deep(7)]
        np.testing.assert_allclose(f(batch), f.loop(batch), rtol=1e-6)


def test_examples_that_fail_are_left_out() -> None:
    def last(p: Any, xs: list[float]) -> Any:
        held = {}
        for k, x in enumerate(xs):
            held[k % 3] = x * p["w"] + held.get((k - 1) % 3, 0.0)
        return held[2]

    f, p = ab.batched(last, in_axes=(None, 0), on_error="mask"), shared()
    result, failures = f(p, [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0], [1.0] * 9])
    wanted = [last(p, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 0.0, last(p, [1.0] * 9)]
    np.testing.assert_allclose(result, wanted, rtol=1e-5)
    assert failures.failed.tolist() == [False, True, False]
