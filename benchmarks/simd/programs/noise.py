"""Perlin's noise (SIGGRAPH 2002) in three dimensions, several octaves of it: as in ispc's example `noise`."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

import autobatch as ab

OCTAVES = 4


def fade(t: float) -> float:
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def lerp(t: float, a: float, b: float) -> float:
    return a + t * (b - a)


def slope(hashed: int, x: float, y: float, z: float) -> float:
    """The inner product with one of twelve directions."""
    h = hashed & 15
    if h < 8:
        u = x
    else:
        u = y
    if h < 4:
        v = y
    elif h == 12 or h == 14:
        v = x
    else:
        v = z
    if h & 1:
        u = -u
    if h & 2:
        v = -v
    return u + v


def noise(table: Any, x: float, y: float, z: float) -> float:
    fx, fy, fz = floor(x), floor(y), floor(z)
    i, j, k = fx & 255, fy & 255, fz & 255
    x, y, z = x - fx, y - fy, z - fz
    u, v, w = fade(x), fade(y), fade(z)
    a = table[i] + j
    aa, ab_ = table[a] + k, table[a + 1] + k
    b = table[i + 1] + j
    ba, bb = table[b] + k, table[b + 1] + k
    near = lerp(
        v,
        lerp(u, slope(table[aa], x, y, z), slope(table[ba], x - 1.0, y, z)),
        lerp(u, slope(table[ab_], x, y - 1.0, z), slope(table[bb], x - 1.0, y - 1.0, z)),
    )
    far = lerp(
        v,
        lerp(u, slope(table[aa + 1], x, y, z - 1.0), slope(table[ba + 1], x - 1.0, y, z - 1.0)),
        lerp(u, slope(table[ab_ + 1], x, y - 1.0, z - 1.0), slope(table[bb + 1], x - 1.0, y - 1.0, z - 1.0)),
    )
    return lerp(w, near, far)


@ab.batched(in_axes=(None, 0, 0, 0))
def turbulence(table: Any, x: float, y: float, z: float) -> float:
    """The sum of octaves, each of half the size."""
    total, size = 0.0, 1.0
    for _ in range(OCTAVES):
        total += abs(noise(table, x * size, y * size, z * size)) / size
        size *= 2.0
    return total


def permutation(seed: int = 0) -> np.ndarray:
    """256 numbers in a random order, twice."""
    numbers = np.random.default_rng(seed).permutation(256)
    return np.concatenate([numbers, numbers]).astype(np.int32)
