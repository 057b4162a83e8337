"""Examples whose arrays differ in shape, and the comparison of a batched call with the loop over them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import autobatch as ab

RNG = np.random.default_rng(7)


@dataclass
class Photo:
    image: Any
    weight: float = 1.0
    next: "Photo | None" = None


@dataclass
class Page:
    image: Any


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def photos(*shapes: tuple[int, ...]) -> list[Photo]:
    return [Photo(array(*s), float(k)) for k, s in enumerate(shapes)]


MIXED = photos((3, 4), (2, 5), (3, 4), (2, 5), (3, 4))
"""Differ beyond the first axis."""

LENGTHS = [array(3), array(5), array(3), array(1)]
"""Differ in the first axis only."""


def bright(scale: Any, photo: Photo) -> Any:
    return (photo.image * scale).sum() + photo.weight


def agrees(f: Any, *args: Any) -> Any:
    """The batched call agrees with the loop, example by example."""
    result = f(*args)
    for got, wanted in zip(ab.unbatch(result), f.loop(*args), strict=True):
        same(got, wanted)
    return result


def same(got: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        same([got[k] for k in wanted], list(wanted.values()))
    elif isinstance(wanted, (tuple, list)):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            same(a, b)
    elif isinstance(wanted, (str, type(None))):
        assert got == wanted
    else:
        assert np.shape(got) == np.shape(wanted)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
