"""What an executable reads beside its integers: columns of 64 bits, data of examples, results that are structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of
from autobatch.data.returned import relative
from autobatch.data.tables import Signature
from autobatch.planning.plan import DataPlan

Values = NDArray[Any]
Column = Callable[[Values, int], Values]
"""A column in the order of some rows."""


def own_arrays(plan: DataPlan, signature: Signature, column: Column) -> dict[str, Values]:
    """By name, as long as the capacity of their space."""
    return {**_wide(plan, signature, column), **_data(plan, signature), **_outputs(plan, signature)}


def _wide(plan: DataPlan, signature: Signature, column: Column) -> dict[str, Values]:
    """Columns of 64 bits."""
    tables = {}
    for name, order in plan.request.columns:
        if name in plan.request.wide:
            values = column(plan.columns[name], order)
            held = np.zeros(signature.capacity[plan.request.orders[order].space], np.int64)
            held[: len(values)] = values
            tables[f"{name}@{order}"] = held
    return tables


def _data(plan: DataPlan, signature: Signature) -> dict[str, Values]:
    """What the device reads of the examples themselves."""
    tables = {}
    for column, space in plan.request.data:
        values = plan.data[column]
        padded = np.zeros((signature.capacity[space], *values.shape[1:]), values.dtype)
        padded[: len(values)] = values
        tables[column] = padded
    return tables


def _outputs(plan: DataPlan, signature: Signature) -> dict[str, Values]:
    """Results that are structure: rows, and where lists begin."""
    tables = dict[str, Values]()
    for k, found in plan.structure.items():
        space = plan.structure_space[k]
        if k in plan.targets:
            example = np.repeat(np.arange(plan.count), np.diff(plan.starts[space]))
            found = relative(found, example, -plan.stores[plan.targets[k]])
        rows = _room(plan, signature, space)
        tables[f"result{k}"] = np.full((rows, *found.shape[1:]), -1, np.int32)
        tables[f"result{k}"][: len(found)] = found
    for k, lengths in plan.lengths.items():
        tables[f"offsets{k}"] = _offsets(lengths[0], _room(plan, signature, plan.lengths_space[k]))
        for depth, (inner, space) in enumerate(zip(lengths[1:], plan.lists.get(k, ()), strict=True), 1):
            tables[f"offsets{k}.{depth}"] = _offsets(inner, _room(plan, signature, space))
    if plan.made is not None:
        tables["made"] = plan.starts[plan.made].astype(np.int32)
    return tables


def _room(plan: DataPlan, signature: Signature, space: int) -> int:
    return plan.count if space == plan.request.example else signature.capacity[space]


def _offsets(lengths: Ints, rows: int) -> Values:
    """Where the lists of the rows of a space begin; those past the last row are empty."""
    offsets = np.full(rows + 1, lengths.sum(), np.int32)
    offsets[: len(lengths) + 1] = offsets_of(lengths)
    return offsets
