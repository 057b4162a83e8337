"""Reads of rows of an array: `table[word]`, in whatever operation JAX made of it.

    dynamic_slice[slice_sizes=(1, 300)](table, k, 0)     indices [k]             rows: the cotangent [1, 300]
    gather[offset_dims=(1,), ...](table, [[k], [l]])     indices [k, l]          rows: the cotangent [2, 300]
    slice[start_indices=(0, 0), ...](table)              indices [0]             rows: the cotangent [1, 300]

Only whole rows count. What they add to the cotangent of the table is then known by few numbers, and is zero elsewhere.
Where the table is not the same for all, but copied from other rows, no copy need be made: the row is looked up there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.ops import Op
from autobatch.ir.system import Compute, Equation, Gather, Shared, System, Variable, reads, results, space_of
from autobatch.passes.schedule.fission import Schedule, ScheduleStage


def reads_rows(equation: Equation, table: Variable) -> bool:
    """Does an equation read whole rows of an array, by numbers, and nothing else of it?"""
    if not isinstance(equation, Compute) or not table.type.shape:
        return False
    if equation.operands[0] != table or table in equation.operands[1:]:
        return False
    rest = table.type.shape[1:]
    op = equation.op
    match op.name:
        case "dynamic_slice":
            return tuple(op["slice_sizes"][1:]) == rest
        case "slice":
            strides = op["strides"] or (1,)
            whole = not any(op["start_indices"][1:]) and tuple(op["limit_indices"][1:]) == rest
            return whole and strides[0] == 1
        case "gather":
            return _gathers_rows(op, rest)
        case _:
            return False


def _gathers_rows(op: Op, rest: tuple[int, ...]) -> bool:
    """Indices of other axes, which `jax.vmap` leaves, can only clamp to the whole axis."""
    numbers, mode = op["dimension_numbers"], op["mode"]
    whole = tuple(op["slice_sizes"][1:]) == rest and tuple(numbers.collapsed_slice_dims) in ((), (0,))
    axes = tuple(numbers.start_index_map)
    by_row = axes == (0,) or (0 in axes and mode == jax.lax.GatherScatterMode.CLIP)
    return whole and by_row and not numbers.operand_batching_dims and mode != jax.lax.GatherScatterMode.ONE_HOT


def rows_alone(system: System, active: frozenset[Variable]) -> dict[int, Variable]:
    """The shared inputs of which nothing but rows is read where it matters, by their indices; at least once by numbers
    that differ from row to row."""
    tables = {e.result: e.index for e in system.equations if isinstance(e, Shared) and e.result in active}
    readers: dict[Variable, list[Equation]] = {x: [] for x in tables if x not in system.outputs}
    for equation in system.equations:
        if not active.isdisjoint(results(equation)):
            for x in {*reads(equation)} & readers.keys():
                readers[x].append(equation)
    return {
        tables[x]: x
        for x, mine in readers.items()
        if any(space_of(e) is not None for e in mine) and all(reads_rows(e, x) for e in mine)
    }


def lookups(schedule: Schedule) -> dict[Variable, Gather]:
    """Copies of arrays, outside of loops, of which nothing but rows is read, in the order of the copies."""
    found: dict[Variable, Gather] = {}
    for step in schedule.steps:
        for equation in step.equations if isinstance(step, ScheduleStage) else ():
            if isinstance(equation, Gather) and len(equation.sources) == 1 and equation.sources[0].space is not None:
                found[equation.result] = equation
    for x in schedule.system.outputs:
        found.pop(x, None)
    for step in schedule.steps:
        parts = [step.equations] if isinstance(step, ScheduleStage) else [t.equations for t in step.tasks]
        for equation in (e for part in parts for e in part):
            for x in {*reads(equation)} & found.keys():
                in_order = schedule.home.get(results(equation)[0]) == schedule.home[x]
                if not (isinstance(step, ScheduleStage) and in_order and reads_rows(equation, x) and _fills(equation)):
                    del found[x]
    return found


def _fills(equation: Equation) -> bool:
    """Is it known what is read past the ends of the table?"""
    if not isinstance(equation, Compute) or equation.op.name != "gather":
        return True
    floats = jnp.issubdtype(jax_compat.device_dtype(equation.results[0].type), jnp.inexact)
    return equation.op["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP or floats


def filling(of: Compute) -> Any:
    """What a read past the ends of a table gives; None where it clamps."""
    if of.op.name != "gather" or of.op["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP:
        return None
    value = of.op["fill_value"]
    return float("nan") if value is None else value


def row_indices(of: Compute, indices: Sequence[Any], rows: int) -> Any:
    """The numbers int[n] of what one activation has read of a table of `rows` rows; what is none of them reads no row.
    `indices` are the operands behind the table."""
    op = of.op
    match op.name:
        case "dynamic_slice":
            count = op["slice_sizes"][0]
            return jnp.clip(_wide(indices[0], rows), 0, rows - count) + jnp.arange(count, dtype=jnp.int32)
        case "slice":
            return jnp.arange(op["start_indices"][0], op["limit_indices"][0], dtype=jnp.int32)
        case "gather":
            return _gathered(op, indices[0], rows).reshape(-1)
        case name:
            raise AssertionError(name)


def _gathered(op: Op, indices: Any, rows: int) -> Any:
    """The numbers of the rows of each slice that is gathered, behind those of the slices."""
    count = op["slice_sizes"][0]
    first = _wide(indices[..., tuple(op["dimension_numbers"].start_index_map).index(0)], rows)
    if op["mode"] == jax.lax.GatherScatterMode.CLIP:
        first = jnp.clip(first, 0, rows - count)
    elif op["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
        first = jnp.where((first < 0) | (first > rows - count), rows, first)  # the whole slice
    return first[..., None] + jnp.arange(count, dtype=jnp.int32)


def _wide(index: Any, rows: int) -> Any:
    """An index as int32; past either end of the table where it was."""
    index = jnp.asarray(index)
    if index.dtype.itemsize < 4:
        return index.astype(jnp.int32)
    least = 0 if jnp.issubdtype(index.dtype, jnp.unsignedinteger) else -1
    return jnp.clip(index, least, rows).astype(jnp.int32)


def row_values(of: Compute, cotangent: Any) -> Any:
    """The cotangents [n, ...] of these rows, of that of what was read."""
    if of.op.name == "gather":
        offsets = of.op["dimension_numbers"].offset_dims
        cotangent = jnp.moveaxis(cotangent, offsets, range(-len(offsets), 0))
        return cotangent.reshape(-1, *of.op["slice_sizes"][1:])
    return cotangent


def values_of_rows(of: Compute, rows: Any) -> Any:
    """What was read, of its rows [n, ...]: the inverse of `row_values`."""
    if of.op.name != "gather":
        return rows
    offsets = of.op["dimension_numbers"].offset_dims
    (result,) = of.results
    inside = [result.type.shape[k] for k in offsets]
    batch = [n for k, n in enumerate(result.type.shape) if k not in offsets]
    return jnp.moveaxis(rows.reshape(*batch, *inside), range(-len(offsets), 0), offsets)
