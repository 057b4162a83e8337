"""`itertools`' choices and products are generators: what runs over them runs inside their loops, and no list of them is
made where none is asked for. In lambdas too, as generators of the user."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import Any

import jax
import numpy as np
import pytest

import autobatch as ab

LISTS = [[0.3, -1.0, 2.0, 0.5], [1.0, 2.0], [0.1, 0.25, -0.3, 0.4, 0.95, 1.5]]


def left_early(xs: list[float]) -> Any:
    best = 1e9
    for a, b in combinations(xs, 2):
        if abs(a - b) < best:
            best = abs(a - b)
        if best < 0.17:
            break
    return best


def run_twice(xs: list[float]) -> Any:
    pairs = list(combinations(xs, 2))
    s = 0.0
    for a, b in pairs:
        s += a * b
    for a, b in pairs:
        s += a - b
    return s


def close(xs: list[float]) -> Any:
    return sum([a * b for a, b in combinations(xs, 2) if abs(a - b) < 0.52])


def places(xs: list[float]) -> Any:
    return max(abs(xs[i] - xs[j]) for i, j in combinations(range(len(xs)), 2))


def pairs(xs: list[float]) -> Any:
    for k in range(len(xs)):
        for j in range(k):
            yield xs[j], xs[k]


FORMS: list[Callable[[list[float]], Any]] = [
    left_early,
    run_twice,
    close,
    places,
    lambda xs: sum(1 for a, b in combinations(xs, 2) if abs(a - b) < 0.52),
    lambda xs: [a * b for a, b in combinations(xs, 2)],
    lambda xs: len(list(combinations(xs, 2))),
    lambda xs: any(a > b + 1.0 for a, b in permutations(xs, 2)),
    lambda xs: all(a != b for a, b in combinations(xs, 2)),
    lambda xs: sum(a * b * c for a, b, c in product(xs, repeat=3)),
    lambda xs: sum(a * b for a, b in combinations_with_replacement(xs, 2)),
    lambda xs: min(combinations(xs, 2), key=lambda p: abs(p[0] - p[1])),
    lambda xs: sorted(a + b for a, b in combinations(xs, 2))[0],
    lambda xs: sum(k * a * b for k, (a, b) in enumerate(combinations(xs, 2))),
    lambda xs: sum(a * b * k for (a, b), k in zip(combinations(xs, 2), range(100))),
    lambda xs: max(p[0] - p[-1] for p in permutations([xs[0], xs[1], 0.5])),
    lambda xs: next(combinations(xs, 2))[0],
    lambda xs: any(a > b + 1.0 for a, b in pairs(xs)),
    lambda xs: sum(a * k for (a, _), k in zip(pairs(xs), range(5))),
]


@pytest.mark.parametrize("backend", ["llvm", "xla"])
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_form(number: int, backend: str) -> None:
    form = FORMS[number]
    found = ab.unbatch(ab.batched(form, backend=backend)(LISTS))
    for a, xs in zip(found, LISTS, strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), a, form(xs))


def test_no_list_of_them_is_made() -> None:
    """There were too many for memory of machine code from twenty elements on."""
    xs = [[k / 7 % 1 for k in range(n)] for n in (40, 3)]
    f = ab.batched(close)
    np.testing.assert_allclose(f(xs), [close(x) for x in xs], rtol=1e-4)
    assert f.explain(xs).data["backend"]["taken"] == "llvm"
