"""Functions that print under control that computed numbers decide."""

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
