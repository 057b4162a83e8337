"""Random programs: batched equals the plain loop, and together they reach every instruction and every placement."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import autobatch as ab
from tests import executables
from tests.properties import programs
from tests.properties.compare import assert_same
from tests.properties.coverage import EVERYTHING, reached
from tests.properties.test_gradients import check as check_gradients

BATCH = st.lists(programs.data(), min_size=2, max_size=2)
"""Beside these, a batch holds an example of everything, and its first drawn example twice."""


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {"w": np.float64(0.75), "b": rng.normal(size=3), "W": rng.normal(size=(3, 3))}


def check(source: str, batch: list[Any]) -> set[str]:
    """The batched call of a drawn program equals the loop; returns what the program reached."""
    note(source)
    executables.let_go()
    batch = [programs.covering(), *batch, batch[0]]
    with programs.loaded(source) as module:
        expected = module.main.loop(parameters(), batch)
        found = ab.unbatch(module.main(parameters(), batch))
        for k, (a, b) in enumerate(zip(found, expected)):
            assert_same(a, b, f"example {k}")
        return reached(module.main.lower(parameters(), batch)._program.compiled)


def test_row_by_row():
    """Many programs on the reference back end: everything before fission. Together they reach everything."""
    counts: Counter[str] = Counter()

    @settings(max_examples=32, derandomize=True, database=None)
    @given(source=programs.programs(), batch=BATCH)
    def run(source, batch):
        with ab.options(backend="interpret"):
            counts.update(check(source, batch))

    run()
    missing = EVERYTHING - counts.keys()
    assert not missing, f"no program reached {sorted(missing)}; reached: {dict(counts)}"


@settings(max_examples=8, derandomize=True, database=None, phases=(Phase.generate,))
@given(source=programs.programs(), batch=BATCH)
def test_compiled(source, batch):
    """No shrinking: every attempt compiles. The row-by-row test, or `test_many` on that back end, finds small ones."""
    check(source, batch)


@pytest.mark.long
@settings(max_examples=int(os.environ.get("RANDOM_PROGRAMS", "150")))
@given(source=programs.programs(), batch=BATCH, backend=st.sampled_from(["xla", "interpret"]))
def test_many(source, batch, backend):
    with ab.options(backend=backend):
        check(source, batch)


def check_derivatives(source: str, batch: list[Any]) -> None:
    """The gradient of a drawn program by its shared arguments equals that of the loop."""
    note(source)
    executables.let_go()
    with programs.loaded(source) as module:
        check_gradients(module.main, parameters(), [programs.covering(), *batch, batch[0]])


@settings(max_examples=2, derandomize=True, database=None, phases=(Phase.generate,))
@given(source=programs.programs(), batch=BATCH)
def test_derivatives(source, batch):
    check_derivatives(source, batch)


@pytest.mark.long
@settings(max_examples=int(os.environ.get("RANDOM_PROGRAMS", "150")), phases=(Phase.explicit, Phase.generate))
@given(source=programs.programs(), batch=BATCH)
def test_many_derivatives(source, batch):
    """No shrinking: every attempt compiles a program and its adjoint."""
    check_derivatives(source, batch)


def test_a_program_reads_as_python(capsys):
    """The generator's output is ordinary code, the same for the same draw."""
    found = []

    @settings(max_examples=1, derandomize=True, database=None)
    @given(programs.programs())
    def run(source):
        found.append(source)

    run()
    compile(found[0], "drawn", "exec")
    assert "@ab.batched" in found[0] and "def f0(p, t, a, x, k):" in found[0]
