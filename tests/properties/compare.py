"""Equality of results with the plain Python loop: exact for integers, strings and structure, 1e-9 for floats."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

TOLERANCE = 1e-9


def assert_same(found: Any, expected: Any, where: str = "result", tolerance: float = TOLERANCE) -> None:
    """Raise AssertionError that names the first place where two results differ."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), f"{where}: {found.keys()} != {expected.keys()}"
        for key in expected:
            assert_same(found[key], expected[key], f"{where}[{key!r}]", tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), f"{where}: {len(found)} items, not {len(expected)}"
        for k, (a, b) in enumerate(zip(found, expected)):
            assert_same(a, b, f"{where}[{k}]", tolerance)
    elif dataclasses.is_dataclass(expected):
        assert type(found) is type(expected), f"{where}: {found!r} is no {type(expected).__name__}"
        for f in dataclasses.fields(expected):
            assert_same(getattr(found, f.name), getattr(expected, f.name), f"{where}.{f.name}", tolerance)
    elif expected is None or isinstance(expected, str):
        assert found == expected, f"{where}: {found!r} != {expected!r}"
    else:
        assert_same_numbers(np.asarray(found), expected, where, tolerance)


def assert_same_numbers(found: np.ndarray, expected: Any, where: str, tolerance: float) -> None:
    if type(expected) in (int, bool) and found.dtype.kind != np.asarray(expected).dtype.kind:
        # where paths join, an int beside a float is a float, and a number beside an array is an array
        assert found.dtype.kind == "f" or found.ndim, f"{where}: {found!r} != {expected!r}"
        expected = np.full(found.shape, expected, found.dtype)
    expected = np.asarray(expected)
    assert found.shape == expected.shape, f"{where}: shape {found.shape}, not {expected.shape}"
    assert found.dtype.kind == expected.dtype.kind, f"{where}: {found.dtype}, not {expected.dtype}"
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=where)
    else:
        assert np.array_equal(found, expected), f"{where}: {found} != {expected}"
