"""Plain Python whose control depends on structure alone: no program of the survey is refused when it is traced, and
each agrees with the loop."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import assert_same
from tests.call.tracing.functions import FUNCTIONS
from tests.call.tracing.lines import LINES, Program

pytestmark = pytest.mark.usefixtures("quiet")

CHAPTERS: dict[str, tuple[dict[str, Program], list[Any]]] = {
    **LINES,
    **{f"{name}_of_lines": ({f.__name__: f for f in programs}, batch) for name, (programs, batch) in FUNCTIONS.items()},
}


@pytest.mark.parametrize("name", CHAPTERS)
def test_traced(name: str) -> None:
    """All programs of a chapter in one function, which no compiler takes."""
    programs, batch = CHAPTERS[name]

    def chapter(w: Any, x: Any) -> Any:
        held = {len(name): x}
        held.popitem()
        return {k: program(w, x) for k, program in programs.items()}

    f, w = ab.batched(chapter, in_axes=(None, 0)), jnp.float32(1.5)
    with ab.options(backend="interpret"):
        found = ab.unbatch(f(w, copy.deepcopy(batch)))
    assert_same(found, [chapter(w, copy.deepcopy(x)) for x in batch])


@pytest.mark.long
@pytest.mark.parametrize("name", CHAPTERS)
def test_compiled_or_traced(name: str) -> None:
    """Each by itself, as users have it: what is not refused agrees."""
    programs, batch = CHAPTERS[name]
    for program in programs.values():
        f, w = ab.batched(program, in_axes=(None, 0)), jnp.float32(1.5)
        found = ab.unbatch(f(w, copy.deepcopy(batch)))
        assert_same(found, [program(w, copy.deepcopy(x)) for x in batch], program.__name__)
