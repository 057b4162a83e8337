"""The constant arrays of a module, while a pass adds to them: what is there already is not added again."""

from __future__ import annotations

from typing import Any

import numpy as np

from autobatch.ir import jax_compat
from autobatch.ir.core import Literal, Module


class Constants:
    def __init__(self, module: Module) -> None:
        self._given = tuple(module.constants)
        self._added = list[Any]()

    @property
    def all(self) -> tuple[Any, ...]:
        return (*self._given, *self._added)

    def literal(self, array: Any) -> Literal:
        """An array as an operand."""
        for k, known in enumerate(self._added):
            if known.shape == array.shape and known.dtype == array.dtype and np.array_equal(known, array):
                return Literal(None, jax_compat.type_of(array), len(self._given) + k)
        self._added.append(array)
        return Literal(None, jax_compat.type_of(array), len(self._given) + len(self._added) - 1)
