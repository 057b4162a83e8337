"""Arrays of NumPy whose shape is data, as a class in Python: views of a buffer, which is a list that views share.

    t = np.zeros((n, m))      a buffer of n * m numbers; offset 0, extents (n, m), strides (m, 1)
    t[i, j] = x               buffer[offset + i * m + j] = x
    row = t[i]                a view of the same buffer: offset i * m, extents (m,), strides (1,)

It is lowered as a class of the user is, so that such arrays are shared, changed, kept in containers and differentiated
as objects are; `dynamic_arrays.py` makes them, and gives brackets their meaning. Axes at the end whose length is fixed
belong to the elements of the buffer. This is the strided layout of NumPy's own arrays.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from autobatch.frontend.types import values as v


class DynamicArray:
    """Extents and strides are of the axes whose length is data, of which there are `rank`: none where it is a view of
    one element. `known`: those extents that are constants all the same, as views of the array may be kept."""

    rank: ClassVar[int]
    known: ClassVar[tuple[int | None, ...]]
    dtype: ClassVar[np.dtype[Any]]
    element_shape: ClassVar[tuple[int, ...]]

    def __init__(self, buffer: Any, offset: Any, extents: Any, strides: Any) -> None:
        self.buffer, self.offset, self.extents, self.strides = buffer, offset, extents, strides

    def __len__(self) -> Any:
        return self.extents[0] if self.rank > 0 else self.element_shape[0]

    def fill(self: Any, value: Any) -> None:
        self[...] = value


def dynamic_class(value: v.Abstract) -> type[DynamicArray] | None:
    """The class of such an array; None for another value."""
    cls = value.cls if isinstance(value, v.Record) else value.heap.cls if isinstance(value, v.MemoryRow) else None
    return cls if isinstance(cls, type) and issubclass(cls, DynamicArray) else None


def is_dynamic(value: v.Abstract) -> bool:
    return dynamic_class(value) is not None


def is_own_attribute(name: str) -> bool:
    """Is it an attribute of the class above, and not one that arrays of NumPy have?"""
    own = ("rank", "known", "element_shape", "buffer", "offset", "extents", "strides")
    return name in own or name in vars(DynamicArray)


# ---- operations


def element(buffer: Any, place: Any) -> Any:
    return buffer[place]


def put(array: Any, place: Any, value: Any) -> None:
    array.buffer[place] = value


def put_into_all(part: Any, value: Any, rest: Any) -> None:
    for i in range(part.extents[0]):
        part[(i, *rest)] = value


def put_each(part: Any, values: Any, rest: Any) -> None:
    if len(values) != part.extents[0]:
        raise ValueError("could not broadcast input array into shape")
    for i in range(part.extents[0]):
        part[(i, *rest)] = values[i]


def put_where(array: Any, mask: Any, value: Any) -> None:
    if len(mask) != array.extents[0]:
        raise IndexError("boolean index did not match indexed array along axis 0")
    for i in range(array.extents[0]):
        if array.rank > 1:
            put_where(array[i], mask[i], value)
        elif mask[i]:
            array[i] = value


def put_mask(array: Any, mask: Any, values: Any) -> None:
    """`values` are as many as the array has."""
    if len(mask) != array.extents[0]:
        raise IndexError("boolean index did not match indexed array along axis 0")
    for i in range(array.extents[0]):
        if array.rank > 1:
            put_mask(array[i], mask[i], values[i])
        elif mask[i]:
            array[i] = values[i]


def put_diagonal(array: Any, value: Any) -> None:
    for i in range(array.extents[0]):
        array[i, i] = value


def spaced(start: Any, stop: Any, num: Any) -> Any:
    return [start + i * ((stop - start) / max(num - 1, 1)) for i in range(num)]


def listed(values: Any) -> Any:
    return list(values)


def flat(values: Any) -> Any:
    return [x for row in values for x in row]


def first(values: Any) -> Any:
    return values[0] if len(values) > 0 else []
