"""Is an index in range? What NumPy says where it is not.

>>> words(np.array([1, -4, 7]), axis=0, size=3)
'index -4 is out of bounds for axis 0 with size 3'
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def outside(index: Any, size: int) -> NDArray[np.bool_]:
    """Where an index leaves an axis of `size` entries. Negative ones count from the end."""
    index = np.asarray(index)
    return np.asarray((index < -size) | (index >= size))


def words(index: Any, axis: int, size: int) -> str:
    """The message for an index, or an array of them, that is out of range; empty where none is."""
    wrong = np.asarray(index)[outside(index, size)].ravel().tolist()
    return f"index {wrong[0]} is out of bounds for axis {axis} with size {size}" if wrong else ""
