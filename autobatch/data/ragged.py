"""Results of different lengths: the rows of all examples one after another, and where each example's begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.errors import BatchError


@runtime_checkable
class ListedRows(Protocol):
    """Rows that are no array: a `Ragged`, or packed objects (a `Batch`)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...

    def to_list(self) -> list[Any]: ...


@partial(jax.tree_util.register_dataclass, data_fields=("values", "offsets"), meta_fields=("is_tuples",))
@dataclass(frozen=True, eq=False)
class Ragged:
    """A batch of lists: list i holds the rows `offsets[i]:offsets[i + 1]` of `values`.

    Args:
      values: an array with the rows of all lists on axis 0, a `Batch` (lists of strings or objects), a `Ragged` (lists
        of lists), or a pytree of these. Rows past `offsets[-1]` are capacity: zero, and never read.
      offsets: int32[B + 1], from 0, not decreasing.
      is_tuples: does `ab.unbatch` give a tuple for each list?

    A pytree of `values` and `offsets`, so it passes through `jax.jit` and `jax.grad`.

    >>> import numpy as np
    >>> r = Ragged(np.array([6, 2, 4]), np.array([0, 2, 3]))
    >>> len(r), r.to_list(), r[0]
    (2, [[6, 2], [4]], array([6, 2]))
    >>> words = Ragged(r, np.array([0, 2, 2]))      # one example of two lists, one of none
    >>> words.to_list()
    [[[6, 2], [4]], []]
    """

    values: Any
    offsets: Any
    is_tuples: bool = field(default=False, repr=False)

    def __len__(self) -> int:
        """The number of lists."""
        return int(self.offsets.shape[0]) - 1

    def __getitem__(self, index: int) -> Any:
        """List `index` (negative ones count from the end): its rows of `values`, in the same structure.

        >>> import numpy as np
        >>> Ragged({"x": np.arange(3.0)}, np.array([0, 2, 3]))[-1]
        {'x': array([2.])}
        """
        i = int(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"list {i} of a Ragged that has {len(self)}")
        i %= max(len(self), 1)
        return _rows(self.values, *self._bounds("indexing")[i : i + 2].tolist())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> Any:
        """int32[B]: the number of rows of each list.

        >>> import numpy as np
        >>> Ragged(np.array([6, 2, 4]), np.array([0, 2, 3])).lengths
        array([2, 1])
        """
        return self.offsets[1:] - self.offsets[:-1]

    def to_list(self) -> list[Any]:
        """Python lists. Entries of shape () become Python numbers, other entries NumPy arrays.

        >>> import numpy as np
        >>> Ragged((np.array([1, 2]), np.eye(2)), np.array([0, 1, 2])).to_list()
        [[(1, array([1., 0.]))], [(2, array([0., 1.]))]]
        """
        bounds = self._bounds("to_list")
        entries = _entries(self.values, int(bounds[-1]))
        return [entries[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]

    def to_padded(self, fill: Any = 0, length: int | None = None) -> tuple[Any, Any]:
        """The lists as one rectangle: `(array, mask)`, both with the axes list, position; `mask` is true at rows.

        Args:
          fill: what stands behind the end of a list; converted to the dtype of `values`.
          length: the number of positions. The longest list by default, which needs known offsets: under `jax.jit` it
            must be given. Longer lists are cut.

        Nested lists are padded at every level. A pytree of values gives a pytree of arrays, with one mask.

        >>> import numpy as np
        >>> array, mask = Ragged(np.array([6, 2, 4]), np.array([0, 2, 3])).to_padded(-1)
        >>> array.tolist(), mask.tolist()
        ([[6, 2], [4, -1]], [[True, True], [True, False]])
        """
        if length is None:
            bounds = self._bounds("to_padded without `length`")
            length = int(np.diff(bounds).max(initial=0))
        offsets = jnp.asarray(self.offsets)
        position = jnp.arange(length)
        mask = position < (offsets[1:] - offsets[:-1])[:, None]
        rows = jnp.where(mask, offsets[:-1, None] + position, 0)
        if any(map(_is_packed, jax.tree.leaves(self.values, is_leaf=_is_listed))):
            raise BatchError("only numbers are padded; this list holds objects or strings: use to_list()")
        if isinstance(self.values, Ragged):
            inner, inner_mask = self.values.to_padded(fill)
            padded = jax.tree.map(lambda x: _pick(x, rows, mask, fill), inner)
            return padded, _pick(inner_mask, rows, mask, False)
        return jax.tree.map(lambda x: _pick(x, rows, mask, fill), self.values), mask

    def __repr__(self) -> str:
        return f"Ragged(values={_words(self.values)}, offsets={_words(self.offsets)})"

    def _bounds(self, use: str) -> np.ndarray[Any, Any]:
        if isinstance(self.offsets, jax.core.Tracer):
            raise BatchError(f"{use} needs the lengths of the lists, which are not known under a JAX transform")
        return np.asarray(self.offsets)


def _rows(values: Any, begin: int, end: int) -> Any:
    """The rows `begin:end` of everything in `values`."""
    if isinstance(values, Ragged):
        bounds = values.offsets[begin : end + 1]
        return Ragged(_rows(values.values, int(bounds[0]), int(bounds[-1])), bounds - bounds[0])
    return jax.tree.map(
        lambda x: _rows(x, begin, end) if isinstance(x, Ragged) else x[begin:end], values, is_leaf=_is_listed
    )


def _entries(values: Any, count: int) -> list[Any]:
    """The first `count` rows, each as a Python object."""
    leaves, structure = jax.tree.flatten(values, is_leaf=_is_listed)
    columns = [x.to_list()[:count] if isinstance(x, ListedRows) else _scalars(np.asarray(x)[:count]) for x in leaves]
    return [jax.tree.unflatten(structure, row) for row in zip(*columns, strict=True)] if leaves else [values] * count


def _scalars(array: np.ndarray[Any, Any]) -> list[Any]:
    return list(array) if array.ndim > 1 else list(array.tolist())


def _pick(array: Any, rows: jax.Array, mask: jax.Array, fill: Any) -> jax.Array:
    """`array[rows]` where `mask`, else `fill`."""
    array = jnp.asarray(array)
    filled = jnp.full((*mask.shape, *array.shape[1:]), fill, array.dtype)
    if array.shape[0] == 0:
        return filled
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (array.ndim - 1)), array[rows], filled)


def _is_listed(x: Any) -> bool:
    return isinstance(x, ListedRows)


def _is_packed(x: Any) -> bool:
    return _is_listed(x) and not isinstance(x, Ragged)


def _words(x: Any) -> str:
    if isinstance(x, (np.ndarray, jax.Array)) and not isinstance(x, jax.core.Tracer) and x.size <= 32:
        return repr(np.asarray(x).tolist())
    if isinstance(x, (np.ndarray, jax.Array)):
        return f"{x.dtype}[{', '.join(map(str, x.shape))}]"
    return repr(x)
