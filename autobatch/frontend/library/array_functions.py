"""Functions of NumPy on arrays whose length is data, in Python: they are lowered like a function of the user.

np.diff(a)          a[1:] - a[:-1]
np.unique(a)        the elements in order, each that differs from the last one kept

The names of the parameters are NumPy's. `RANKS` says of which ranks the arguments may be: of others NumPy does
something else (`np.roll` of a table rolls its numbers, `np.diff` takes the last axis), which is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np


def _diff(a: Any) -> Any:
    return a[1:] - a[:-1]


def _count_nonzero(a: Any) -> Any:
    return sum([1 for x in a if x])


def _flatnonzero(a: Any) -> Any:
    return np.array([k for k in range(len(a)) if a[k]])


def _nonzero(a: Any) -> Any:
    return (np.array([k for k in range(len(a)) if a[k]]),)


def _tile(A: Any, reps: Any) -> Any:
    return np.array([x for _ in range(reps) for x in A])


def _repeat(a: Any, repeats: Any) -> Any:
    return np.array([x for x in a for _ in range(repeats)])


def _roll(a: Any, shift: Any) -> Any:
    return np.array([a[(k - shift) % len(a)] for k in range(len(a))])


def _isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    return (a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b))


def _allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    return np.all((a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b)))


def _array_equal(a1: Any, a2: Any) -> Any:
    return len(a1) == len(a2) and all(x == y for x, y in zip(a1, a2))  # noqa: B905


def _searchsorted(a: Any, v: Any, side: Any = "left") -> Any:
    return sum([1 for x in a if x < v]) if side == "left" else sum([1 for x in a if x <= v])


def _polyval(p: Any, x: Any) -> Any:
    total = 0.0
    for c in p:
        total = total * x + c
    return total


def _interp(x: Any, xp: Any, fp: Any) -> Any:
    if x <= xp[0]:
        return fp[0] * 1.0
    if x >= xp[-1]:
        return fp[-1] * 1.0
    k = 1
    while xp[k] < x:
        k += 1
    return fp[k - 1] + (fp[k] - fp[k - 1]) * (x - xp[k - 1]) / (xp[k] - xp[k - 1])


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0) -> Any:
    if x is None:
        return dx * np.sum((y[1:] + y[:-1]) / 2)
    return np.sum((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2)


def _quantile(a: Any, q: Any) -> Any:
    ordered = sorted(a)
    place = (len(ordered) - 1) * q
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1] * 1.0
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def _percentile(a: Any, q: Any) -> Any:
    return _quantile(a, q / 100)


def _unique(ar: Any) -> Any:
    found: Any = []
    for x in sorted(ar):
        if not found or x != found[-1]:
            found.append(x)
    return np.array(found)


def _isin(element: Any, test_elements: Any) -> Any:
    return any(x == element for x in test_elements)


def _convolve(a: Any, v: Any) -> Any:
    return np.array(
        [sum([a[i] * v[k - i] for i in range(len(a)) if 0 <= k - i < len(v)]) for k in range(len(a) + len(v) - 1)]
    )


def _trace(a: Any) -> Any:
    return sum([row[k] for k, row in enumerate(a) if k < len(row)])


def _diagonal(a: Any) -> Any:
    return np.array([row[k] for k, row in enumerate(a) if k < len(row)])


def _diag(v: Any) -> Any:
    if v.ndim == 2:
        return np.array([row[k] for k, row in enumerate(v) if k < len(row)])
    return np.array([[v[i] if i == j else 0 * v[i] for j in range(len(v))] for i in range(len(v))])


def _transpose(a: Any) -> Any:
    return np.array([[row[k] for row in a] for k in range(len(a[0]) if len(a) > 0 else 0)])


def _shape(a: Any) -> Any:
    return len(a), len(a[0]) if len(a) > 0 else 0


def _size(a: Any) -> Any:
    return len(a) * len(a[0]) if len(a) > 0 else 0


def _reshape(a: Any, *shape: Any) -> Any:
    n, m = shape if len(shape) == 2 else shape[0]
    flat = a.ravel()
    if (len(flat) // m if n == -1 else n) * (len(flat) // n if m == -1 else m) != len(flat):
        raise ValueError(f"cannot reshape array of size {len(flat)} into shape ({n},{m})")
    if m == 1:
        return flat[:, None]
    if n == 1:
        return flat[None]
    if n == -1:
        n = len(flat) // m
    if m == -1:
        m = len(flat) // n
    return np.array([[flat[i * m + j] for j in range(m)] for i in range(n)])


def _meshgrid(x: Any, y: Any) -> Any:
    return np.array([[b for b in x] for _ in y]), np.array([[c for _ in x] for c in y])  # noqa: C416


def _column_stack(tup: Any) -> Any:
    return np.array([[x[k] for x in tup] for k in range(len(tup[0]))])


def alike(rows: Any) -> Any:
    """Have all lists one length?"""
    return all(len(row) == len(rows[0]) for row in rows)


_WRITTEN = (
    *(_diff, _count_nonzero, _flatnonzero, _nonzero, _tile, _repeat, _roll, _isclose, _allclose, _array_equal),
    *(_searchsorted, _polyval, _interp, _trapezoid, _quantile, _percentile, _unique, _isin, _convolve),
    *(_trace, _diagonal, _diag, _transpose, _shape, _size, _reshape, _meshgrid, _column_stack),
)
BY_NAME: dict[str, Callable[..., Any]] = {f.__name__.removeprefix("_"): f for f in _WRITTEN}
RANKS: dict[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("tile", "repeat", "roll", "searchsorted", "polyval", "quantile", "percentile"), ((1,), (0,))),
    **dict.fromkeys(("trace", "diagonal", "transpose", "shape", "size"), ((2,),)),
    "isin": ((0,), (1,)),
    "interp": ((0,), (1,), (1,)),
    "diag": ((1, 2),),
    "reshape": ((1, 2),),
}
"""The ranks of the first arguments; of others at most 1, and of functions that are not here 1 for the first one."""
METHODS = ("nonzero", "repeat", "searchsorted", "trace", "diagonal", "reshape")
"""Those that are methods of arrays, too."""


def fits(function: Callable[..., Any], ranks: Sequence[int]) -> bool:
    """Are arguments of such ranks what a function here is written for?"""
    allowed = [*RANKS.get(function.__name__.removeprefix("_"), ((1,),)), *[(0, 1)] * len(ranks)]
    return all(rank in some for rank, some in zip(ranks, allowed, strict=False))


def written_out(function: Any) -> Callable[..., Any] | None:
    """What a function of `jax.numpy`, or a method of arrays, does with such arrays; None where that is not here."""
    method = getattr(function, "array_method", "")
    if method:
        return BY_NAME[method] if method in METHODS else None
    name = getattr(function, "__name__", "")
    return BY_NAME.get(name) if getattr(jnp, name, None) is function else None
