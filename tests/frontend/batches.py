"""Run a function over a batch, on every back end, and compare with plain Python, example by example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import pytest

import autobatch as ab
from autobatch.testing import assert_same

TOLERANCE = 1e-5
"""Of single precision, sums in another order."""


@dataclass(frozen=True)
class Program:
    """A function with examples and shared arguments to run it on."""

    function: Callable[..., Any]
    examples: Sequence[Any]
    shared: tuple[Any, ...]

    def __str__(self) -> str:
        return self.function.__name__


class Programs(list[Program]):
    """The programs of a test module: `@programs.over(examples, *shared)` adds one."""

    def over(self, examples: Sequence[Any], *shared: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.append(Program(function, examples, shared))
            return function

        return add


def agree(program: Program, *, jit: bool = True) -> None:
    """A batch on both back ends, its last example alone, and a packed batch under jit equal the plain loop."""
    function, examples, shared = program.function, program.examples, program.shared
    for backend in ("xla", "interpret"):
        batched = ab.batched(function, in_axes=(*(None for _ in shared), 0), backend=backend)
        with ab.options(verify=True):
            expected = batched.loop(*shared, examples)
            packed = ab.pack(examples).plan(batched)
            _same(batched(*shared, packed), expected, f"{program} on {backend}")
            if backend == "xla" and jit:
                _same(jax.jit(batched)(*shared, packed), expected, f"{program} under jit")
                _same(batched(*shared, packed[-1:]), expected[-1:], f"{program} on the last example")


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
    """A refusal of our own, with the place in the file of the function, and a cure."""
    with pytest.raises(ab.UnsupportedError, match=saying) as caught:
        ab.batched(function, in_axes=(*(None for _ in shared), 0))(*shared, examples)
    assert caught.value.span.file == function.__code__.co_filename and caught.value.cure
