"""What every claim about values is held against: the plain function, example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

import autobatch as ab


def agrees(f: Any, *args: Any, **kwargs: Any) -> None:
    """The batched call gives what `f.loop` gives, on both back ends."""
    expected = f.loop(*args, **kwargs)
    for backend in ("xla", "interpret"):
        with ab.options(backend=backend):
            found = ab.unbatch(f(*args, **kwargs))
        assert len(found) == len(expected), backend
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            alike(a, b, f"{backend}, example {k}")


def alike(found: Any, expected: Any, where: str = "result") -> None:
    """Equal in structure, exactly in integers and strings, nearly in floats."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys(), where
        for key in expected:
            alike(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(found) == len(expected), f"{where}: {found!r} has not the length of {expected!r}"
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            alike(a, b, f"{where}[{k}]")
    elif isinstance(expected, (int, float, np.ndarray, np.generic, jax.Array)):
        assert np.shape(found) == np.shape(expected), where
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=where)
        kinds = np.asarray(found).dtype.kind, np.asarray(expected).dtype.kind
        assert "f" in kinds or kinds[0] == kinds[1], f"{where}: {kinds}"
    else:
        assert found == expected, f"{where}: {found!r} is not {expected!r}"
