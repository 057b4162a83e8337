"""Deep copies of what memory holds give what Python's memo gives, or are refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.deep_copies import PROGRAMS, Cell

XS = [[1.0, 2.5, 0.75, 4.0], [3.0, 3.0, 0.5], [0.5]]


@pytest.mark.parametrize("f", PROGRAMS)
def test_copies_hold_what_python_makes_them_hold(f: Callable[..., Any]) -> None:
    batched = ab.batched(f, in_axes=(None, 0))
    check_equivalence(batched, XS, (0.5,), grads=False, jit=False, backends=("interpret", "llvm"))


@pytest.mark.parametrize("f", [p for p in PROGRAMS if p.__name__ == "a_ring"])
def test_by_xla_and_derivatives(f: Callable[..., Any]) -> None:
    check_equivalence(ab.batched(f, in_axes=(None, 0)), XS, (0.5,), jit=False, backends=("xla",))


class Own:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: Any) -> Own:
        return Own(self.value + 1.0)


def test_a_class_that_says_itself_what_a_copy_is() -> None:
    @ab.batched(in_axes=(None, 0), backend="llvm")
    def f(w: Any, xs: Any) -> Any:
        q = [Own(w)]
        for x in xs:
            if w * x > 1:
                q.append(q[0])
                q[-1].value += x
        return copy.deepcopy(q)[-1].value

    with pytest.raises(ab.UnsupportedError, match="a class that has a __deepcopy__"):
        f(0.5, XS)


def test_objects_of_the_examples_in_memory() -> None:
    @ab.batched(in_axes=(None, 0), backend="llvm")
    def f(w: Any, nodes: list[Cell]) -> Any:
        q = [[nodes[0]]]
        for n in nodes:
            if w * n.value > 1:
                q.append(q[-1])
                q[0].append(n)
        p = copy.deepcopy(q)
        return p[0][0] is nodes[0]

    with pytest.raises(ab.UnsupportedError, match="deepcopy.. of .*objects of the examples"):
        f(0.5, [[Cell(1.0), Cell(3.0)]])
