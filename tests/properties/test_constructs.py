"""Small random programs of what Python decides in a way of its own; `many.py` runs thousands on all back ends."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import Program
from autobatch.testing.programs import search_tree
from tests import executables
from tests.properties.many import WRONG, drawn, run
from tests.properties.test_programs import MANY

DRAWS, PARTS = 12, 2
"""Programs of `make test`, and the tests that share them."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"), ab.options(verify=False):
        warnings.simplefilter("ignore")
        yield


def wrong(program: Program, batch: list[Any], gradients: bool) -> list[str]:
    """What differs, on any back end. Examples of which plain Python has no result are left out today: which of two
    exceptions an example fails with, and whether it fails where a divisor is zero, goes wrong in rare programs."""
    kept = []
    for example in batch:
        try:
            program.function.example(program.parameters(), search_tree(), *example)
            kept.append(example)
        except Exception:
            continue
    lines = run(program, kept, gradients) if kept else ()
    return [f"{x['of']} on {x['backend']}: {x['words']}\n{program!r}" for x in lines if x.get("outcome") in WRONG]


@pytest.mark.parametrize("part", range(PARTS))
def test_constructs(part: int) -> None:
    """Values on all back ends, derivatives of every fourth program."""
    programs = drawn(part, DRAWS // PARTS)
    assert len(programs) == DRAWS // PARTS
    assert not [text for k, (program, batch) in enumerate(programs) for text in wrong(program, batch, k % 4 == 0)]


@pytest.mark.long
@pytest.mark.parametrize("part", range(2, 12))
def test_many_constructs(part: int) -> None:
    found = []
    for k, (program, batch) in enumerate(drawn(part, MANY // 20)):
        found += wrong(program, batch, k % 4 == 0)
        executables.let_go()
    assert not found, found[0]
