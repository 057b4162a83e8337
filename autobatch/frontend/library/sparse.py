"""scipy sparse matrices of the examples, by rows. Compiled, not run, like `graphs.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from autobatch.frontend.library.graphs import field, unsupported

_ROWS = "convert it with .tocsr() before packing"


@dataclass
class Sparse:
    """A sparse matrix of scipy, by rows. `by_rows`: it was by rows when it was packed."""

    raw: Any
    by_rows: bool

    @property
    def shape(self) -> Any:
        return field(self.raw, "shape")

    @property
    def nnz(self) -> Any:
        return len(field(self.raw, "data"))

    @property
    def data(self) -> Any:
        if not self.by_rows:
            unsupported("the data of a sparse matrix that is not by rows", _ROWS)
        return field(self.raw, "data")

    @property
    def indices(self) -> Any:
        if not self.by_rows:
            unsupported("the indices of a sparse matrix that is not by rows", _ROWS)
        return field(self.raw, "indices")

    @property
    def indptr(self) -> Any:
        if not self.by_rows:
            unsupported("the indptr of a sparse matrix that is not by rows", _ROWS)
        return field(self.raw, "indptr")

    def sum(self, axis: Any = None) -> Any:
        if axis is not None:
            unsupported("sum(axis=...) of a sparse matrix", "multiply it with a vector of ones")
        return sum(field(self.raw, "data"))

    def __matmul__(self, x: Any) -> Any:
        data, indices, starts = field(self.raw, "data"), field(self.raw, "indices"), field(self.raw, "indptr")
        return jnp.stack(
            [
                sum(data[k] * x[indices[k]] for k in range(starts[i], starts[i + 1]))
                for i in range(field(self.raw, "shape")[0])
            ]
        )

    def dot(self, x: Any) -> Any:
        return self.__matmul__(x)
