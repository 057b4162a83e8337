"""What conditions of structure and numbers guard is read where they hold: random programs against the plain loop."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import Phase, given, settings

from autobatch.testing import check_equivalence
from autobatch.testing.programs import load
from tests.properties.conditions import nodes, sources

EXAMPLES = [(node, x) for node in nodes() for x in (0.2, 1.4, -0.8)]


def check(source: str, backend: str, grads: bool) -> None:
    f: Any = load(source)
    check_equivalence(f, EXAMPLES, (jnp.float32(0.8),), grads=grads, backends=(backend,), jit=False, tolerance=1e-4)


@settings(max_examples=3)
@given(sources())
def test_by_the_reference(source: str) -> None:
    check(source, "interpret", grads=False)


@settings(max_examples=3, phases=(Phase.explicit, Phase.generate))
@given(sources())
def test_by_machine_code(source: str) -> None:
    check(source, "llvm", grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_many(backend: str) -> None:
    @settings(max_examples=100)
    @given(sources())
    def run(source: str) -> None:
        check(source, backend, grads=True)

    run()
