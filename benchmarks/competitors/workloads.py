"""How workloads are drawn and handed on: words as frequent as in language, matrices, files. NumPy alone.

Everything is drawn by `RandomState`, whose numbers are the same under every version of NumPy. Python 3.8 and later.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 20000


def word_frequencies() -> Any:
    """The probability of each word of the vocabulary, by Mandelbrot's form of Zipf's law."""
    frequency = 1.0 / (np.arange(VOCABULARY) + 2.7)
    return frequency / frequency.sum()


def embeddings(rng: Any, width: int) -> Any:
    return (rng.randn(VOCABULARY, width) * 0.3).astype(np.float32)


def matrix(rng: Any, outputs: int, inputs: int) -> Any:
    """float32[outputs, inputs], of a scale that neither grows nor shrinks what goes through it."""
    return (rng.uniform(-1, 1, size=(outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)


def save(file: Path, examples: list[Any], rate: float = 0.0, **sizes: int) -> None:
    """The examples, the sizes of the model and the learning rate; every competitor draws the weights itself."""
    file.write_text(json.dumps({"examples": examples, "sizes": sizes, "rate": rate}))


def load(file: str) -> tuple[list[Any], dict[str, int]]:
    held = json.loads(Path(file).read_text())
    return held["examples"], held["sizes"]


def learning_rate(file: str) -> float:
    return float(json.loads(Path(file).read_text())["rate"])
