"""Units in the last place, over samples of a dtype's numbers and over all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from autobatch.backends.llvm import machine_code
from benchmarks.ulp.functions import Exact, Measured
from benchmarks.ulp.kernels import kernel

SPECIAL = (
    *(0.0, 1.0, 0.5, 2.0, 3.0, 2.5, 1e-3, 10.0, 22.0, 88.7, 104.0, 709.78, 745.13, 1024.0, 1e4, 1e10, 1e22, 1e30, 3e38),
    *(2.0**-126, 2.0**-149, 2.0**-130, 1e-45, 1e-300, 2.0**-1022, 5e-324, 1e-310, 1e300, 1.7e308, np.inf),
)
CHUNK = 1 << 14
"""Numbers whose results of more digits stay in the cache, and need no fresh pages."""


@dataclass
class Worst:
    """The largest error, and the operands of it."""

    ulps: float = 0.0
    at: tuple[float, ...] = ()

    def add(self, found: np.ndarray, wanted: np.ndarray, xs: tuple[np.ndarray, ...]) -> None:
        """What is the nearest float is at most half a unit off: it is only looked at when nothing is further off."""
        integers = f"i{found.itemsize}"
        which = np.flatnonzero(found.view(integers) != wanted.astype(found.dtype).view(integers))
        which = which[~(np.isnan(found[which]) & np.isnan(wanted[which]))]
        if self.ulps > 0.49 and not len(which):
            return
        if not len(which):
            which = np.arange(len(found))
        off = ulps_off(found[which], wanted[which])
        k = int(off.argmax())
        if off[k] > self.ulps or not self.at:
            self.ulps, self.at = float(off[k]), tuple(float(x[which[k]]) for x in xs)


def ulps_off(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How far numbers are from ones of more digits, in units in the last place of the nearest float; infinite where one
    is NaN, infinite or negative zero and the other is not."""
    with np.errstate(all="ignore"):
        near = wanted.astype(found.dtype)
        step = np.spacing(np.minimum(np.abs(near), np.finfo(found.dtype).max)).astype(wanted.dtype)
        off = np.abs(found.astype(wanted.dtype) - wanted) / step
        finite = np.isfinite(near) & np.isfinite(found)
        same = (found == near) | (np.isnan(found) & np.isnan(near))
        # a result that rounds to infinity may be the largest float, and the other way round
        edge = (np.isinf(near) | np.isinf(found)) & (np.abs(wanted) > 0.999999 * np.finfo(found.dtype).max)
        edge &= (np.abs(found) > 0.999999 * np.finfo(found.dtype).max) & (np.sign(found) == np.sign(near))
        edge &= np.isfinite(wanted)
        off = np.where(finite, off, np.where(same, 0, np.where(edge, 1, np.inf)))
        zeros = (found == 0) & (near == 0) & (np.signbit(found) != np.signbit(near))
    return np.where(zeros, np.inf, off).astype(np.float64)


def specials(dtype: str, count: int) -> tuple[np.ndarray, ...]:
    """All combinations of numbers that functions treat apart."""
    with np.errstate(all="ignore"):
        one = np.array(SPECIAL).astype(dtype)
    one = np.unique(np.concatenate([one, -one]).view(f"u{one.itemsize}")).view(dtype)
    one = np.concatenate([one, np.array([np.nan], dtype)])
    return tuple(x.ravel() for x in np.meshgrid(*[one] * count))


def drawn(measured: Measured, dtype: str, count: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, ...]]:
    """Operands: special ones, any bits, and ones where much happens."""
    yield specials(dtype, measured.count)
    integers = np.dtype(f"u{np.dtype(dtype).itemsize}")
    yield tuple(
        rng.integers(0, np.iinfo(integers).max, count, integers, endpoint=True).view(dtype)
        for _ in range(measured.count)
    )
    for ranges in measured.near:
        yield tuple(rng.uniform(low, high, count).astype(dtype) for low, high in ranges)
        yield tuple(
            (rng.uniform(low, high, count) * 2.0 ** rng.uniform(-30, 0, count)).astype(dtype) for low, high in ranges
        )


def every_float32() -> Iterator[tuple[np.ndarray, ...]]:
    for first in range(0, 1 << 32, CHUNK):
        yield (np.arange(first, first + CHUNK, dtype=np.uint32).view(np.float32),)


def exact_of(measured: Measured, dtype: str) -> tuple[Exact, type] | None:
    """What the results of a dtype are compared with, and the dtype of its operands."""
    if dtype == "float32":
        return measured.wide, np.float64
    return None if measured.long is None else (measured.long, np.longdouble)


def worst_of(measured: Measured, dtype: str, operands: Iterator[tuple[np.ndarray, ...]], lanes: int = 0) -> Worst:
    exact = exact_of(measured, dtype)
    assert exact is not None
    run = kernel(measured.function, dtype, measured.count, lanes or width(dtype))
    worst = Worst()
    with np.errstate(all="ignore"):
        for xs in operands:
            worst.add(run(*xs), exact[0](*(x.astype(exact[1]) for x in xs)), xs)
    return worst


def width(dtype: str) -> int:
    """Lanes of one register."""
    return machine_code.host().bits // (8 * np.dtype(dtype).itemsize)


def nanoseconds(measured: Measured, dtype: str, rng: np.random.Generator) -> tuple[float, float | None]:
    """Per number, of machine code and of NumPy: medians over rounds in which they take turns, of process time."""
    xs = [rng.uniform(low, high, 1 << 14).astype(dtype) for low, high in measured.near[0]]
    run = kernel(measured.function, dtype, measured.count, width(dtype))
    ways: list[Callable[..., object]] = [run] if measured.numpy is None else [run, measured.numpy]
    times: list[list[float]] = [[] for _ in ways]
    with np.errstate(all="ignore"):
        for _ in range(21):
            for way, held in zip(ways, times, strict=True):
                start = time.process_time()
                for _ in range(8):
                    way(*xs)
                held.append((time.process_time() - start) / (8 * len(xs[0])) * 1e9)
    found = [float(np.median(held)) for held in times]
    return found[0], found[1] if len(found) > 1 else None
