"""Objects that hold words, in random programs: machine code, and the default, return what Python does."""

from __future__ import annotations

import importlib.util
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

import autobatch as ab
from tests.memory.drawn_words import TOKENS, program

# 19 of the first 40 were internal errors by machine code, where words in memory were their letters
_QUICK = [pytest.param(seed, "llvm", id=f"{seed}-llvm") for seed in range(24, 32)]
_LONG = [
    pytest.param(seed, backend, marks=pytest.mark.long, id=f"{seed}-{backend}")
    for seed in range(40)
    for backend in ("auto", "llvm")
]


@pytest.mark.parametrize(("seed", "backend"), _QUICK + _LONG)
def test_as_python_does(seed: int, backend: str, tmp_path: Path) -> None:
    path = tmp_path / f"words{seed}.py"
    path.write_text(program(seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    counted, draw = module.counted, random.Random(seed)
    examples = [[draw.choice(TOKENS) for _ in range(draw.randint(1, 9))] for _ in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ab.StructureWarning)
        found = ab.batched(counted, backend=backend)(examples)
    np.testing.assert_allclose(found, [counted(x) for x in examples], rtol=1e-4, atol=1e-5)
