"""Where arrays of NumPy lie, for machine code that is called for a few microseconds: `x.ctypes.data` takes one."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

_DATA = object.__basicsize__
"""Where an array has the address of its data: behind what all objects begin with (PyArrayObject, ndarraytypes.h)."""


def _by_numpy(x: npt.NDArray[Any]) -> int:
    return int(x.ctypes.data)


def _by_layout(x: npt.NDArray[Any]) -> int:
    return ctypes.c_void_p.from_address(id(x) + _DATA).value or 0


def _is_known() -> bool:
    """Do arrays lie as the layout says?"""
    probes = np.zeros((3, 5))[1:], np.arange(4)[::2], np.empty(0)
    return all(_by_layout(x) == x.ctypes.data for x in probes)


address = _by_layout if _is_known() else _by_numpy
"""The address of the first element of an array."""
