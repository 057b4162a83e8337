"""A call that is like an earlier one compiles nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

import autobatch as ab


@dataclass
class Split:
    feature: int
    threshold: float
    low: Split | Leaf
    high: Split | Leaf


@dataclass
class Leaf:
    value: float
    label: str


TREE = Split(0, 0.3, Split(1, -0.5, Leaf(1.0, "a"), Leaf(2.0, "b")), Leaf(3.0, "a"))


def label(tree, xs):
    while isinstance(tree, Split):
        tree = tree.high if xs[tree.feature] > tree.threshold else tree.low
    return tree.label


@pytest.mark.parametrize("backend", ["auto", "llvm"])
def test_strings_of_shared_objects(backend, caplog):
    """What floats choose of objects that all examples share is found in those of each example, from the first call."""
    numbers = random.Random(1)
    f = ab.batched(label, in_axes=(None, 0), backend=backend)
    for k in range(4):
        examples = [[numbers.uniform(-1, 1) for _ in range(2)] for _ in range(8)]
        caplog.clear()
        with caplog.at_level("INFO", logger="autobatch"):
            assert ab.unbatch(f(TREE, examples)) == [label(TREE, x) for x in examples]
        assert k == 0 or not [r for r in caplog.records if "compiling" in r.message]
