"""Comprehensions with several `for`: lists of lists, flattened."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import autobatch as ab


def scaled(p, rows):
    return [p * x for r in rows for x in r]


def chosen(p, rows):
    flat = [jnp.tanh(p * x) for r in rows for x in r if x > 1]
    return sum(flat), len(flat), [h * 2 for h in flat]


def three(p, rows):
    flat = [x + y for r in rows for x in r for y in r]
    return flat, len(flat)


def decided(p, rows):
    return p if len([x for r in rows for x in r]) > 2 else 2 * p


DATA = [[[1, 2], [3]], [[], [4]], [], [[5], [6, 7], [8]]]


@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize("function", [scaled, chosen, three, decided])
def test_several_for_make_one_list(function, backend):
    batched = ab.batched(function, in_axes=(None, 0), backend=backend)
    for found, expected in zip(ab.unbatch(batched(0.5, DATA)), batched.loop(0.5, DATA), strict=True):
        same(found, expected)


def same(found, expected):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    else:
        assert found == pytest.approx(float(expected), rel=1e-6)
