"""Run a function over a batch, on every back end, and compare with plain Python, example by example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import pytest

import autobatch as ab
from tests.properties.compare import assert_same

TOLERANCE = 1e-5
"""Of single precision, sums in another order."""


def agree(function: Callable[..., Any], examples: Sequence[Any], *shared: Any, backends: str = "xla interpret") -> None:
    """The batch, each example alone, and a packed batch under jit give what the plain loop gives."""
    for backend in backends.split():
        batched = ab.batched(function, in_axes=(*(None for _ in shared), 0), backend=backend)
        with ab.options(verify=True):
            expected = batched.loop(*shared, examples)
            _same(batched(*shared, examples), expected, f"{function.__name__} on {backend}")
            if backend == "interpret":
                continue
            packed = ab.pack(examples).plan(batched)
            whole = jax.jit(batched)(*shared, packed)
            _same(whole, expected, f"{function.__name__} under jit")
            _same(batched(*shared, packed[-1:]), expected[-1:], f"{function.__name__} on the last example")


def _same(found: Any, expected: list[Any], where: str) -> None:
    assert_same(ab.unbatch(found), expected, where, TOLERANCE)


def fails(function: Callable[..., Any], examples: Sequence[Any], *shared: Any) -> None:
    """The examples that fail in plain Python fail in the batch, with the same exception."""
    batched = ab.batched(function, in_axes=(*(None for _ in shared), 0))
    kinds = {}
    for k, example in enumerate(examples):
        try:
            function(*shared, example)
        except Exception as error:
            kinds[k] = type(error).__name__
    assert kinds, "no example fails"
    with pytest.raises(ab.ExampleError) as caught:
        batched(*shared, examples)
    assert {f.index: f.kind for f in caught.value.failures} == kinds


def refused(function: Callable[..., Any], examples: Sequence[Any], *shared: Any, saying: str) -> None:
    """A refusal of our own, with a place and a cure."""
    with pytest.raises(ab.UnsupportedError, match=saying) as caught:
        ab.batched(function, in_axes=(*(None for _ in shared), 0))(*shared, examples)
    assert __file__.rsplit("/", 1)[0] in str(caught.value) and "\n" in str(caught.value), str(caught.value)
