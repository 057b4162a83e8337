"""Random programs that make lists, dicts, objects and strings of their own, and change them: batched equals the loop.

What is not compiled is refused with a place and a cure, and counted: of what is drawn, so much is accepted at least.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import NotEquivalent, Program, check_equivalence, programs
from autobatch.testing.memory import FEATURES
from autobatch.testing.programs import batches
from tests import executables
from tests.properties.test_programs import MANY, NO_SHRINKING

COMPILED = ("lists", "strings")
"""Features that compile where structure decides; the others are traced there."""
DECIDED = ("lists", "queues", "dicts", "tallies", "objects")
"""Features that compile under data-dependent control flow."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ab.StructureWarning)
        yield


class Share:
    """Checks drawn programs, and counts those that are refused."""

    def __init__(self, backend: str, grads: bool = False) -> None:
        self.backend, self.grads = backend, grads
        self.accepted, self.refused = 0, list[str]()

    def check(self, program: Program, batch: list[Any]) -> None:
        executables.let_go()
        shared = (program.parameters(),)
        try:
            check_equivalence(program.function, batch, shared, backends=[self.backend], grads=self.grads, jit=False)
        except NotEquivalent as error:
            if error.at_a_jump:
                reject()
            raise
        except ab.UnsupportedError as error:
            assert error.span.line and error.cure
            self.refused.append(str(error).splitlines()[0])
        else:
            self.accepted += 1

    def holds(self, least: float) -> None:
        """So much is accepted."""
        assert self.accepted >= least * (self.accepted + len(self.refused)), self.refused


def run(share: Share, count: int, drawn: st.SearchStrategy[Program]) -> Share:
    @settings(max_examples=count, phases=NO_SHRINKING if share.backend == "xla" else settings().phases)
    @given(program=drawn, batch=batches())
    def check(program: Program, batch: list[Any]) -> None:
        share.check(program, batch)

    check()
    return share


def test_row_by_row() -> None:
    """Values and gradients; of sixty, 52 were accepted."""
    run(Share("interpret", grads=True), 5, programs(small=True, memory=COMPILED)).holds(0.6)


def test_computed_numbers_decide_row_by_row() -> None:
    """Of thirty, 28 were accepted."""
    drawn = programs(numeric=True, small=True, memory=DECIDED, computed=DECIDED)
    run(Share("interpret", grads=True), 5, drawn).holds(0.6)


def test_machine_code() -> None:
    drawn = programs(numeric=True, small=True, memory=DECIDED, computed=DECIDED, numbers=True)
    run(Share("llvm"), 6, drawn).holds(0.5)


def test_traced() -> None:
    """Of thirty, 17 were accepted: the others ask numbers that are computed for their values."""
    share = Share("xla")
    with ab.options(trace=True, verify=False):
        run(share, 6, programs(small=True, memory=tuple(FEATURES))).holds(0.25)


# ---- many


@pytest.mark.long
@pytest.mark.parametrize("numeric", [False, True], ids=["structure", "numbers"])
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_many(backend: str, numeric: bool) -> None:
    features, numbers = DECIDED if numeric else COMPILED, backend == "llvm"
    drawn = programs(numeric=numeric, memory=features, computed=DECIDED, numbers=numbers)
    run(Share(backend, grads=not numbers), MANY // 4, drawn).holds(0.5)


@pytest.mark.long
@pytest.mark.parametrize("numeric", [False, True], ids=["structure", "numbers"])
def test_many_of_every_kind(numeric: bool) -> None:
    """What is refused of all features has a place and a cure."""
    run(Share("interpret"), MANY, programs(numeric=numeric, memory=tuple(FEATURES), computed=tuple(FEATURES)))
