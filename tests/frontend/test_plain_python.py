"""Ordinary Python gives what Python gives, where floats of the examples decide what runs and where integers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.plain_python import PROGRAMS

FLOATS = [[1.0, 2.5, 0.75, 4.0], [3.0, 3.0, 0.5], [0.5]]
INTEGERS = [[1, 5, 2, 4], [3, 3, 1], [1]]
LONG = ("sets_in_a_list", "sets_by_keys", "counters_together")
"""They compile for seconds; `sets_of_neighbours` and others have the same."""


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@pytest.mark.parametrize("f", [pytest.param(f, marks=pytest.mark.long if f.__name__ in LONG else ()) for f in PROGRAMS])
def test_programs(f: Callable[..., Any]) -> None:
    batched = ab.batched(f, in_axes=(None, 0))
    check_equivalence(batched, FLOATS, (0.5,), grads=False, jit=False, backends=("interpret", "llvm"))
    check_equivalence(batched, INTEGERS, (2,), grads=False, jit=False, backends=("interpret",))


def test_what_is_returned_is_changed_in_finally() -> None:
    def f(w, xs):
        out = [w]
        for x in xs:
            try:
                if w * x > 1:
                    return out
                out.append(x)
            finally:
                out.append(w)
        return out

    batched = ab.batched(f, in_axes=(None, 0))
    check_equivalence(batched, FLOATS, (0.5,), grads=False, jit=False, backends=("interpret", "llvm", "xla"))
