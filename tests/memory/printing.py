"""Functions that print under data-dependent control flow."""

from __future__ import annotations

import sys
from typing import Any

import jax.numpy as jnp

PROGRAMS: list[Any] = []


def program(f: Any) -> Any:
    PROGRAMS.append(f)
    return f


def halved(x: Any, n: int) -> Any:
    print("half", n, x)
    return x * 0.5


@program
def called(x: Any) -> Any:
    n = 0
    while x > 0.4:
        x = halved(x, n)
        n += 1
    print(f"done {n:02d}: {x:.3f}", end="; ")
    print()
    return x


@program
def recursive(x: Any) -> Any:
    def down(y: Any, depth: int) -> Any:
        print("level", depth)
        if y < 0.4:
            return y
        below = down(y * 0.5, depth + 1)
        print(f"back {depth}: {below:.3f}")
        return below + y

    return down(x, 0)


@program
def containers(x: Any) -> Any:
    counts, scores = [], []
    while x > 0.4:
        counts.append(len(counts) * 2)
        scores.append((len(scores), len(counts) > 2))
        x = x * 0.5
    print(counts, scores, tuple(counts), {"n": len(counts), "last": counts[-1:]}, (1, "a", None, True), sep="|")
    return len(counts) + len(scores)


@program
def streams(x: Any) -> Any:
    if x > 1:
        print("large", jnp.stack([x, x * 2]), file=sys.stderr)
    return x


@program
def more_than_there_is_room_for(x: Any) -> Any:
    n = 0
    while n < 70:
        if x * 20 > n:
            print(n)
        n += 1
    return n


@program
def choices(x: Any) -> Any:
    best = None
    for k in range(3):
        if x < k:
            print("less than", k)
            break
        best = x * k
    else:
        print("all")
    print("best", best, "x=" + f"{x:.1f}" + "!")
    return x


def named(label: str, *values: Any, end: str = "!\n", **how: Any) -> None:
    print(label, *values, end=end, **how)


@program
def in_order(x: Any) -> Any:
    """What arguments print stands in front, and what fails is not printed."""
    n = 0
    while x > 0.4:
        try:
            print(x, halved(x, n), f"{x:.3f} {halved(x, n + 1):.3f}", [4, 5][n], x * 2.0)
        except IndexError:
            print("none", x * 4.0)
        x, n = x * 0.5, n + 1
    return x


@program
def spread(x: Any) -> Any:
    counts, log = {}, print
    while x > 0.4:
        counts[len(counts) % 2 + 3] = len(counts)
        named("counts", counts, *[len(counts), "of"], *(2,), sep=",")
        list(map(log, sorted(counts, reverse=True)[:1]))
        x = x * 0.5
    return x
