"""Ambient occlusion of three spheres on a plane, after aobench (Fujita), and mirrors: a ray that meets a sphere goes on
recursively, `DEEPEST` times at most."""

from __future__ import annotations

from math import cos, sin, sqrt

import numpy as np

import autobatch as ab

SAMPLES, DEEPEST, FAR, MIRROR = 16, 3, 1e9, 0.4
SPHERES = ((-2.0, 0.0, -3.5, 0.5), (-0.5, 0.0, -3.0, 0.5), (1.0, 0.0, -2.2, 0.5))
FLOOR = -0.5
TURN = 6.283185307


def meets(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, k: int) -> float:
    """How far along a ray a sphere begins."""
    cx, cy, cz, radius = SPHERES[k]
    x, y, z = ox - cx, oy - cy, oz - cz
    b = x * dx + y * dy + z * dz
    left = b * b - (x * x + y * y + z * z - radius * radius)
    if left <= 0.0:
        return FAR
    far = -b - sqrt(left)
    return far if far > 0.0 else FAR


def floor(oy: float, dy: float) -> float:
    """How far along a ray the plane is."""
    if abs(dy) < 1e-6:
        return FAR
    far = (FLOOR - oy) / dy
    return far if far > 0.0 else FAR


def blocked(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float) -> bool:
    return (
        meets(ox, oy, oz, dx, dy, dz, 0) < FAR
        or meets(ox, oy, oz, dx, dy, dz, 1) < FAR
        or meets(ox, oy, oz, dx, dy, dz, 2) < FAR
        or floor(oy, dy) < FAR
    )


def open_share(px: float, py: float, pz: float, nx: float, ny: float, nz: float, seed: int) -> float:
    """The share of random rays from a point that meet nothing."""
    if abs(nx) < 0.6:
        ux, uy, uz = 0.0, nz, -ny
    else:
        ux, uy, uz = -nz, 0.0, nx
    scale = 1.0 / sqrt(ux * ux + uy * uy + uz * uz)
    ux, uy, uz = ux * scale, uy * scale, uz * scale
    vx, vy, vz = ny * uz - nz * uy, nz * ux - nx * uz, nx * uy - ny * ux
    free = 0
    for _ in range(SAMPLES):
        seed = (seed * 1103 + 12345) % 65536
        height = seed / 65536.0
        seed = (seed * 1103 + 12345) % 65536
        angle = TURN * (seed / 65536.0)
        c, s, n = cos(angle) * sqrt(height), sin(angle) * sqrt(height), sqrt(1.0 - height)
        dx, dy, dz = c * ux + s * vx + n * nx, c * uy + s * vy + n * ny, c * uz + s * vz + n * nz
        if not blocked(px, py, pz, dx, dy, dz):
            free += 1
    return free / SAMPLES


def trace(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, depth: int, seed: int) -> float:
    """How bright what a ray meets is."""
    a = meets(ox, oy, oz, dx, dy, dz, 0)
    b = meets(ox, oy, oz, dx, dy, dz, 1)
    c = meets(ox, oy, oz, dx, dy, dz, 2)
    ball = min(a, b, c)
    ground = floor(oy, dy)
    if min(ball, ground) >= FAR:
        return 0.0
    if ground < ball:
        px, py, pz = ox + ground * dx, oy + ground * dy, oz + ground * dz
        return open_share(px, py + 1e-4, pz, 0.0, 1.0, 0.0, seed)
    px, py, pz = ox + ball * dx, oy + ball * dy, oz + ball * dz
    if a <= ball:
        cx, cy, cz, radius = SPHERES[0]
    elif b <= ball:
        cx, cy, cz, radius = SPHERES[1]
    else:
        cx, cy, cz, radius = SPHERES[2]
    nx, ny, nz = (px - cx) / radius, (py - cy) / radius, (pz - cz) / radius
    px, py, pz = px + 1e-4 * nx, py + 1e-4 * ny, pz + 1e-4 * nz
    light = open_share(px, py, pz, nx, ny, nz, seed)
    if depth < DEEPEST:
        along = 2.0 * (dx * nx + dy * ny + dz * nz)
        mirrored = trace(px, py, pz, dx - along * nx, dy - along * ny, dz - along * nz, depth + 1, seed)
        light = (1.0 - MIRROR) * light + MIRROR * mirrored
    return light


@ab.batched
def pixel(x: float, y: float, seed: int) -> float:
    """The brightness of a pixel that is seen from the origin through (x, y, -1)."""
    scale = 1.0 / sqrt(x * x + y * y + 1.0)
    return trace(0.0, 0.0, 0.0, x * scale, y * scale, -scale, 0, seed)


def picture(width: int, height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places on the screen, row by row, and a number for each to begin its random ones with."""
    x, y = np.meshgrid(np.linspace(-1.0, 1.0, width), np.linspace(0.6, -0.6, height))
    return x.ravel().astype(np.float32), y.ravel().astype(np.float32), np.arange(x.size, dtype=np.int32) % 65536
