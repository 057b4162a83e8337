"""What Python means by `**` and `round` in machine code: the names are those of primitives that mean something else."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence


def powers(w: Any, x: float, n: int) -> Any:
    return (w * x) ** n + (w * x) ** 2 + x**2 + x**n + n**2


def roundings(w: Any, x: float, n: int) -> Any:
    return round(w * x, 1) + round(w * x) + round(x, 1) * w + n


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("f", [powers, roundings])
def test_powers_and_roundings(f: Any, x64: bool) -> None:
    examples = [(0.3, 1), (1.37, 2), (2.77, 3), (-2.77, 3), (-1.0, 0)]
    with jax.enable_x64(x64):
        tolerance = None if x64 else 2e-5
        of_one = ab.batched(f, in_axes=(None, 0, 0))
        shared = (np.float64(1.1) if x64 else np.float32(1.1),)
        check_equivalence(of_one, examples, shared, backends=("llvm",), jit=False, tolerance=tolerance)
