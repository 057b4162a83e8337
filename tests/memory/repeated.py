"""Programs that run over objects and lists of the examples in loops which computed numbers end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp


@dataclass
class State:
    """A state of a process: what it gives, and where it may lead."""

    gives: float
    to: list[int]
    name: str = "a"


@dataclass
class Process:
    states: list[State]
    start: int = 0


@dataclass
class Part:
    """A node of a tree with numbers of its own."""

    weights: list[float]
    parts: list[Part] = field(default_factory=list)


def value_iteration(w: Any, process: Any, x: Any) -> Any:
    values, change = [0.0 for _ in process.states], 1.0
    while change > 0.1:
        change = 0.0
        for k, state in enumerate(process.states):
            best = max(state.gives * w + x[0] ** 2 + 0.5 * values[j] for j in state.to)
            change = max(change, abs(best - values[k]))
            values[k] = best
    return values[process.start]


def least_squares(w: Any, process: Any, x: Any) -> Any:
    at, step, count = 0.0, 1.0, 0
    while abs(step) > 0.05 and count < 30:
        step = sum((at - s.gives) * w for s in process.states) / len(process.states) * 0.5
        at, count = at - step, count + 1
    return at + count * x[1]


def words_until(w: Any, process: Any, x: Any) -> Any:
    total, count = 0.0, {"a": 0, "b": 0, "c": 0}
    while total < 2:
        for state in process.states:
            if state.name != "b":
                total += 0.3 + abs(state.gives) * w
            count[state.name] += 1
    return count["a"] * w + count["b"]


PROCESSES: list[Callable[..., Any]] = [value_iteration, least_squares, words_until]
"""Their examples are a process and two numbers."""


def bisected(w: Any, part: Any, x: Any) -> Any:
    """The recursion runs again in each turn, of the same tree."""

    def above(part: Any, level: Any) -> Any:
        return sum(jnp.tanh(n * w - level) for n in part.weights) + sum(above(p, level * 0.5) for p in part.parts)

    low, high = -3.0, 3.0
    while high - low > 0.3:
        middle = (low + high) / 2
        if above(part, middle) > 0:
            low = middle
        else:
            high = middle
    return low + above(part, x[0])


def added_until(w: Any, part: Any, x: Any) -> Any:
    total = x[1] * 0.1
    while total < 3:
        for number in part.weights:
            total += abs(number) * w
        for below in part.parts:
            for number in below.weights:
                total += abs(number) * w
    return total


PARTS: list[Callable[..., Any]] = [bisected, added_until]
"""Their examples are a tree of parts and two numbers."""
