"""An ensemble of regression trees, as gradient boosting makes it: each tree is walked from its root to a leaf."""

from __future__ import annotations

from typing import Any

import numpy as np

import autobatch as ab

FEATURES = 16


@ab.batched(in_axes=(None, 0))
def score(trees: Any, x: Any) -> float:
    """The sum of the leaves that features x[FEATURES] lead to. `left`: the left child, or -1 at a leaf; the right one
    is the next."""
    total = 0.0
    for root in trees["root"]:
        node = root
        while trees["left"][node] >= 0:
            if x[trees["feature"][node]] < trees["split"][node]:
                node = trees["left"][node]
            else:
                node = trees["left"][node] + 1
        total += trees["value"][node]
    return total


def ensemble(trees: int = 100, deepest: int = 6, seed: int = 0) -> dict[str, np.ndarray]:
    """Random trees by columns; a node above the last level is a leaf once in eight times."""
    rng = np.random.default_rng(seed)
    root: list[int] = []
    feature, split, left, value = [0], [0.0], [-1], [0.0]

    def add(count: int) -> int:
        first = len(left)
        feature.extend([0] * count)
        split.extend([0.0] * count)
        left.extend([-1] * count)
        value.extend(rng.normal(0.0, 0.1, count).tolist())
        return first

    for _ in range(trees):
        root.append(add(1))
        level = [root[-1]]
        for depth in range(deepest):
            below = []
            for node in level:
                if depth > 1 and rng.random() < 0.125:
                    continue
                feature[node] = int(rng.integers(FEATURES))
                split[node] = float(rng.normal())
                left[node] = add(2)
                below += [left[node], left[node] + 1]
            level = below
    of = {"root": root, "feature": feature, "split": split, "left": left, "value": value}
    return {k: np.array(v, np.float32 if k in ("split", "value") else np.int32) for k, v in of.items()}
