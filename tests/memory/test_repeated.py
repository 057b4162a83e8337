"""Structure that stands in loops which computed numbers end: values and derivatives as plain Python has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.repeated import PARTS, PROCESSES, Part, Process, State, bisected, value_iteration, words_until

NUMBERS = [[0.2, 0.9], [-0.4, 1.3], [0.7, 0.35]]
ONE = Process([State(0.4, [0, 2], "c"), State(-0.2, [1]), State(0.7, [0, 1], "b")])
TWO = Process([State(0.3, [0])])
TREE = Part([0.5, -0.2], [Part([0.3]), Part([1.1, 0.4], [Part([-0.6])])])
IN_PROCESSES = list(zip([ONE, TWO, Process([*ONE.states, *TWO.states], 3)], NUMBERS, strict=True))
IN_PARTS = list(zip([TREE, Part([0.8]), TREE.parts[1]], NUMBERS, strict=True))
PROGRAMS = [(p, IN_PROCESSES) for p in PROCESSES] + [(p, IN_PARTS) for p in PARTS]
FEW = {
    (value_iteration, "xla"): True,
    (bisected, "interpret"): True,
    (words_until, "interpret"): False,
    (bisected, "xla"): False,
}
"""Those that are checked always, and whether derivatives are too."""


def check(program: Callable[..., Any], backend: str, grads: bool, jit: bool) -> None:
    examples = dict(PROGRAMS)[program]
    f = ab.batched(program, in_axes=(None, 0, 0))
    check_equivalence(f, examples, (jnp.float32(0.8),), grads=grads, backends=(backend,), jit=jit, tolerance=2e-5)


@pytest.mark.parametrize(("program", "backend"), FEW, ids=lambda p: getattr(p, "__name__", p))
def test_agrees_with_plain_python(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, FEW[program, backend], jit=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", [p for p, _ in PROGRAMS], ids=lambda p: p.__name__)
def test_each_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=True, jit=backend == "xla")
