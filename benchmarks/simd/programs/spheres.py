"""The nearest sphere that a ray meets, by a tree of bounding spheres: as columns, and as objects.

As columns the nodes stand in the order in which a walk meets them, and each says where to go on when it is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

import autobatch as ab

FAR = 1e9


def hit(x: float, y: float, z: float, radius: float, dx: float, dy: float, dz: float) -> float:
    """How far along a ray from the origin a sphere begins; `FAR` where the ray misses it."""
    along = x * dx + y * dy + z * dz
    left = along * along - (x * x + y * y + z * z) + radius * radius
    if left < 0.0 or along < 0.0:
        return FAR
    return along - sqrt(left)


@ab.batched(in_axes=(None, 0, 0, 0))
def nearest(tree: Any, dx: float, dy: float, dz: float) -> float:
    """By columns: no stack, a jump over what is missed."""
    best, node = FAR, 0
    while node < len(tree["radius"]):
        far = hit(tree["x"][node], tree["y"][node], tree["z"][node], tree["radius"][node], dx, dy, dz)
        if far < best:
            if tree["leaf"][node] == 1:
                best = far
            node += 1
        else:
            node = tree["skip"][node]
    return best


@dataclass
class Sphere:
    """Around `left` and `right`, or one of the scene."""

    x: float
    y: float
    z: float
    radius: float
    left: Any = None
    right: Any = None


@ab.batched(in_axes=(None, 0, 0, 0, 0))
def nearest_below(node: Sphere, best: float, dx: float, dy: float, dz: float) -> Any:
    """By objects: the nearer of `best` and what is met below a node."""
    far = hit(node.x, node.y, node.z, node.radius, dx, dy, dz)
    if far >= best:
        return best
    if node.left is None:
        return far
    best = nearest_below(node.left, best, dx, dy, dz)
    return nearest_below(node.right, best, dx, dy, dz)


def objects(leaves: int = 512, seed: int = 0) -> Sphere:
    """Random spheres in front of the origin, halved along the longest side."""
    rng = np.random.default_rng(seed)
    places = rng.uniform([-8, -8, 6], [8, 8, 20], (leaves, 3)).astype(np.float32)
    radii = rng.uniform(0.1, 0.5, leaves).astype(np.float32)

    def build(chosen: np.ndarray) -> Sphere:
        if len(chosen) == 1:
            (k,) = chosen
            x, y, z = places[k].tolist()
            return Sphere(x, y, z, radii[k].item())
        inside = places[chosen]
        axis = int(np.argmax(np.ptp(inside, axis=0)))
        order = chosen[np.argsort(inside[:, axis], kind="stable")]
        middle = inside.mean(axis=0)
        radius = (np.linalg.norm(inside - middle, axis=1) + radii[chosen]).max()
        half, (x, y, z) = len(chosen) // 2, middle.tolist()
        return Sphere(x, y, z, radius.item() * 1.0001, build(order[:half]), build(order[half:]))

    return build(np.arange(leaves))


def columns(root: Sphere) -> dict[str, np.ndarray]:
    """The nodes in the order of a walk; `skip`: where it goes on behind what is below a node."""
    rows: list[list[float]] = []
    skip: list[int] = []

    def walk(node: Sphere) -> None:
        here = len(rows)
        rows.append([node.x, node.y, node.z, node.radius])
        skip.append(0)
        if node.left is not None and node.right is not None:
            walk(node.left)
            walk(node.right)
        skip[here] = len(rows)

    walk(root)
    x, y, z, radius = np.array(rows, np.float32).T.copy()
    after = np.array(skip, np.int32)
    leaf = (after == np.arange(1, len(after) + 1)).astype(np.int32)
    return {"x": x, "y": y, "z": z, "radius": radius, "leaf": leaf, "skip": after}


def rays(width: int, height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Directions of a picture, row by row."""
    x, y = np.meshgrid(np.linspace(-0.8, 0.8, width), np.linspace(-0.8, 0.8, height))
    d = np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    dx, dy, dz = (d / np.linalg.norm(d, axis=0)).astype(np.float32)
    return dx, dy, dz
