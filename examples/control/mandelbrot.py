"""Mandelbrot: each point of the plane is one example, and iterates until it escapes.

Run it: `python -m examples.control.mandelbrot [WIDTH]`.
"""

from __future__ import annotations

import sys

import numpy as np

import autobatch as ab
from examples.control.check import check

TURNS = 200


@ab.batched
def escape(re: float, im: float) -> int:
    """The turns until the point leaves the circle of radius 2; `TURNS` where it does not."""
    x = y = 0.0
    turns = 0
    while turns < TURNS and x * x + y * y <= 4.0:
        x, y = x * x - y * y + re, 2.0 * x * y + im
        turns += 1
    return turns


def plane(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """The points of a picture, row by row."""
    re, im = np.meshgrid(np.linspace(-2.0, 0.6, width), np.linspace(-1.2, 1.2, height))
    return re.ravel().astype(np.float32), im.ravel().astype(np.float32)


def picture(turns: np.ndarray, width: int) -> str:
    """The points as text: the longer a point stays, the darker."""
    shades = " .:-=+*#%@"
    steps = np.minimum(np.log2(np.asarray(turns) + 1) / np.log2(TURNS + 1) * len(shades), len(shades) - 1).astype(int)
    return "\n".join("".join(shades[k] for k in row) for row in steps.reshape(-1, width))


def main(width: int = 78) -> int:
    points = plane(width, width // 3)
    print(picture(np.asarray(escape(*points)), width))
    return check("mandelbrot", escape, points, tolerance=0.0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
