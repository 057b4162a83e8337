"""Equality of a batched result with plain Python: exact for integers, strings and structure, nearly for floats."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SHARP, SINGLE = 1e-9, 1e-5
"""Relative and absolute tolerance of floats of 64 and of 32 bits, whose sums run in another order in a batch."""


@dataclass(frozen=True)
class Difference:
    """A place in two results, what stands there, and why it is not the same."""

    place: str
    found: Any
    expected: Any
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


def default_tolerance() -> float:
    """The tolerance for floats as JAX makes them here and now."""
    return SHARP if jnp.zeros(()).dtype == np.float64 else SINGLE


def assert_same(found: Any, expected: Any, where: str = "result", tolerance: float | None = None) -> None:
    """Raise AssertionError that names the first place where two results differ.

    >>> assert_same({"a": [1, 2.0]}, {"a": [1, 2.0]})
    >>> assert_same({"a": [1, 2.5]}, {"a": [1, 2.0]})
    Traceback (most recent call last):
    AssertionError: result['a'][1]: 2.5, not 2.0
    """
    first = next(differences(found, expected, tolerance, where), None)
    if first is not None:
        raise AssertionError(str(first))


def differences(
    found: Any, expected: Any, tolerance: float | None = None, where: str = "result"
) -> Iterator[Difference]:
    """The places where two results differ, in order.

    `expected` is what plain Python returned. A batch has one type where the paths of a program join, so an int of plain
    Python is equal to a float, and a number to an array that is full of it. Objects are compared field by field, each
    pair of them once.

    >>> [str(d) for d in differences((1, "a"), (2, "b"))]
    ['result[0]: 1, not 2', "result[1]: 'a', not 'b'"]
    """
    allowed = default_tolerance() if tolerance is None else tolerance
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[Any, Any, str]] = [(found, expected, where)]
    while stack:
        a, b, place = stack.pop()
        parts = _parts(b)
        if parts is None:
            yield from _of_leaves(a, b, place, allowed)
            continue
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        own = _parts(a)
        if own is None or not _same_class(a, b):
            yield Difference(place, a, b, f"{a!r} is no {type(b).__name__}")
        elif own.keys() != parts.keys():
            yield Difference(place, a, b, _of_keys(a, b, own, parts))
        else:
            stack += [(own[name], part, place + name) for name, part in reversed(parts.items())]


def _same_class(a: Any, b: Any) -> bool:
    for kind in (dict, list, tuple):
        if isinstance(b, kind) and not hasattr(b, "_fields"):
            return isinstance(a, kind)
    return type(a) is type(b)


def _of_keys(a: Any, b: Any, own: dict[str, Any], parts: dict[str, Any]) -> str:
    if isinstance(b, (list, tuple)):
        return f"{len(a)} items, not {len(b)}"
    return f"{', '.join(own) or 'nothing'} in it, not {', '.join(parts) or 'nothing'}"


def _parts(value: Any) -> dict[str, Any] | None:
    """The parts of a container or object by their places; None for a leaf."""
    if isinstance(value, dict):
        return {f"[{k!r}]": v for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {f".{k}": getattr(value, k) for k in value._fields}
    if isinstance(value, (list, tuple, deque)):
        return {f"[{k}]": v for k, v in enumerate(value)}
    if isinstance(value, (set, frozenset)):
        return {f"{{{k!r}}}": True for k in value}
    if value is None or isinstance(
        value, (str, bool, int, float, complex, enum.Enum, np.ndarray, np.generic, jax.Array)
    ):
        return None
    return {f".{k}": v for k, v in attributes(value).items()}


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, in `__dict__` and in slots, those that are set."""
    names = list(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    held = [n for n in names if n not in ("__dict__", "__weakref__") and hasattr(value, n)]
    return {n: getattr(value, n) for n in held}


def _of_leaves(found: Any, expected: Any, place: str, tolerance: float) -> Iterator[Difference]:
    if expected is None or isinstance(expected, (str, enum.Enum)):
        if type(found) is not type(expected) or found != expected:
            yield Difference(place, found, expected, f"{found!r}, not {expected!r}")
        return
    if found is None or isinstance(found, (str, enum.Enum)) or _parts(found) is not None:
        yield Difference(place, found, expected, f"{found!r}, not {expected!r}")
        return
    if _is_key(expected):
        if not _is_key(found) or not np.array_equal(jax.random.key_data(found), jax.random.key_data(expected)):
            yield Difference(place, found, expected, f"{found!r}, not {expected!r}")
        return
    why = _of_numbers(np.asarray(found), expected, tolerance)
    if why:
        yield Difference(place, found, expected, why)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _of_numbers(found: np.ndarray[Any, Any], given: Any, tolerance: float) -> str:
    """Why two numbers or arrays differ; empty where they do not."""
    expected = np.asarray(given)
    if isinstance(given, (bool, int, float, complex)) and (found.ndim or found.dtype.kind != expected.dtype.kind):
        # where paths join, an int beside a float is a float, and a number beside an array is an array
        if not found.ndim and found.dtype.kind not in "fc":
            return f"{found!r}, not {given!r}"
        expected = np.full(found.shape, given, found.dtype)
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    if _kind(found.dtype) != _kind(expected.dtype):
        return f"{found.dtype}, not {expected.dtype}"
    if _kind(expected.dtype) not in "fc":
        return "" if np.array_equal(found, expected) else _words(found, expected, found != expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = found.astype(wide), expected.astype(wide)
    apart = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return _words(found, expected, apart) if apart.any() else ""


def _kind(dtype: Any) -> str:
    return "f" if jnp.issubdtype(dtype, jnp.floating) else str(dtype.kind)  # bfloat16 is of no kind of NumPy's


def _words(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], apart: Any) -> str:
    if found.ndim == 0:
        return f"{found.item()!r}, not {expected.item()!r}"
    first = tuple(int(k) for k in np.argwhere(apart)[0])
    where = "".join(f"[{k}]" for k in first)
    count = int(np.count_nonzero(apart))
    return f"{found[first].item()!r} at {where}, not {expected[first].item()!r} ({count} of {found.size} differ)"
