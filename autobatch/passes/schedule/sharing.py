"""Equal rows once, for what integers decide: a chain of operations on columns runs once for each distinct row.

    encode: x = emb[word]              encode by word: x = emb[word]
    encode: z = dot_general(x, W)  ->  encode by word: z' = dot_general(x, W)
                                       encode: z = spread(z')

Two activations with the same word have the same `x @ W`. Values that depend on nothing but uniform values and integer
columns of their own row are computed over the distinct rows of those columns, and spread to the rows that read them;
for chains with a contraction, since a row of a matrix product costs more than a gather. A gather that would read spread
rows reads the distinct ones: rows are spread as late as possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.ops import Op
from autobatch.ir.system import (
    Atom,
    Compute,
    Equation,
    Fold,
    Gather,
    HostColumn,
    Shared,
    Space,
    Spread,
    System,
    Variable,
    reads,
    results,
    space_of,
)
from autobatch.passes.schedule.fission import Schedule, ScheduleStage

CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot_general"})
"""Operations whose rows are worth sharing."""

Keys = frozenset[str]


def deciding_columns(system: System) -> dict[Variable, Keys]:
    """For each value that integer columns of its own row decide alone: those columns."""
    keys: dict[Variable, Keys] = {}
    for equation in system.equations:
        if isinstance(equation, Spread) and equation.source.space is not None:
            keys[equation.result] = frozenset(equation.source.space.keys)
        for result in results(equation):
            if result.space is not None and result.space.kind == "distinct":
                keys[result] = frozenset(result.space.keys)
    index = _Index(system.equations, system.outputs)
    for space in system.spaces:
        if space.kind == "region":
            keys.update(_SharedRows(index, space, [], 0, keys).keys)
    return keys


def share_rows(system: System) -> System:
    """Move chains of operations on columns to spaces of distinct rows, where that pays."""
    spaces = list(system.spaces)
    equations = list(system.equations)
    fresh = 1 + max((r.id for e in equations for r in results(e)), default=-1)
    index = _Index(system.equations, system.outputs)
    for space in system.spaces:
        if space.kind == "region":
            sharing = _SharedRows(index, space, spaces, fresh)
            equations = sharing.rewrite(equations)
            fresh = sharing.fresh
    return replace(system, spaces=tuple(spaces), equations=tuple(_spread_late(equations)))


def _spread_late(equations: list[Equation]) -> list[Equation]:
    """Gathers of spread rows read the distinct rows themselves."""
    distinct = {e.result: e.source for e in equations if isinstance(e, Spread)}
    return [
        replace(e, sources=tuple(distinct.get(v, v) for v in e.sources)) if isinstance(e, Gather | Fold) else e
        for e in equations
    ]


class _Index:
    """The equations of a system by what they make, and the values that others read."""

    def __init__(self, equations: Iterable[Equation], outputs: Iterable[Variable]) -> None:
        self.makers: dict[Space | None, dict[Variable, Equation]] = defaultdict(dict)
        self.readers: dict[Variable, list[Equation]] = defaultdict(list)
        self.order: dict[Variable, int] = {}
        for v in outputs:
            self.order.setdefault(v, len(self.order))
        for equation in equations:
            self.makers[space_of(equation)].update((r, equation) for r in results(equation))
            for v in reads(equation):
                self.order.setdefault(v, len(self.order))
                self.readers[v].append(equation)
        self.outputs = frozenset(outputs)


class _SharedRows:
    """One space: its values that columns decide, and the ones among them that other equations read."""

    def __init__(
        self,
        index: _Index,
        space: Space,
        spaces: list[Space],
        fresh: int,
        known: Mapping[Variable, Keys] | None = None,
    ) -> None:
        self.space, self.spaces, self.fresh = space, spaces, fresh
        self.maker = index.makers[space]
        self.keys: dict[Variable, Keys] = {v: k for v, k in (known or {}).items() if v.space == space}
        self.decide()
        self.frontier = self.read_outside(index)

    def decide(self) -> None:
        """Find the columns that decide each value, where nothing else does. Chains may be longer than Python's stack is
        deep, and equations stand in no order."""
        done: set[Variable] = set(self.keys)
        waiting = list(self.maker)
        while waiting:
            variable = waiting[-1]
            if variable in done:
                waiting.pop()
                continue
            equation = self.maker[variable]
            if isinstance(equation, HostColumn):
                self.keys[variable] = frozenset([equation.table])
            elif isinstance(equation, Compute):
                operands = [v for v in reads(equation) if v.space is not None]
                if before := [v for v in operands if v in self.maker and v not in done]:
                    waiting += before
                    continue
                if operands and all(v in self.maker and v in self.keys for v in operands):
                    found = frozenset().union(*(self.keys[v] for v in operands))
                    self.keys.update((r, found) for r in equation.results)
            done.add(variable)

    def read_outside(self, index: _Index) -> dict[Keys, list[Variable]]:
        """Decided values that an output or an equation with other operands reads, by what decides them."""

        def is_wanted(variable: Variable) -> bool:
            return variable in index.outputs or any(
                not any(r in self.keys for r in results(e)) for e in index.readers.get(variable, ())
            )

        decided = [v for v in self.maker if v in self.keys and isinstance(self.maker[v], Compute)]
        groups: dict[Keys, list[Variable]] = defaultdict(list)
        for variable in sorted(filter(is_wanted, decided), key=index.order.__getitem__):
            groups[self.keys[variable]].append(variable)
        return groups

    def rewrite(self, equations: list[Equation]) -> list[Equation]:
        for keys, variables in sorted(self.frontier.items(), key=lambda item: sorted(item[0])):
            if any(self.contracts(v) for v in variables):
                equations = self.move(keys, [v for v in variables if self.contracts(v)], equations)
        return equations

    def contracts(self, variable: Variable) -> bool:
        """Is there a contraction in the chain that computes this value?"""
        equation = self.maker[variable]
        if not isinstance(equation, Compute):
            return False
        inside = [x for x in reads(equation) if x in self.maker]
        return equation.op.name in CONTRACTIONS or any(self.contracts(x) for x in inside)

    def move(self, keys: Keys, variables: list[Variable], equations: list[Equation]) -> list[Equation]:
        """Compute `variables` over the distinct rows of `keys`, and spread them."""
        name = f"{self.space.name} by {', '.join(sorted(k.rsplit(':', 1)[-1] for k in keys))}"
        distinct = Space(len(self.spaces), name, "distinct", self.space.index, tuple(sorted(keys)))
        self.spaces.append(distinct)
        copies: dict[Variable, Variable] = {}
        made: list[Equation] = []
        for variable in variables:
            self.copy(variable, distinct, copies, made)
        spread = {v: Spread(v, copies[v]) for v in variables}
        kept: list[Equation] = []
        for equation in equations:
            mine = [r for r in results(equation) if r in spread]
            if mine and isinstance(equation, Compute):
                renamed = tuple(self.like(r, r.space) if r in spread else r for r in equation.results)
                kept.append(replace(equation, results=renamed))
                kept.extend(spread[r] for r in mine)
            else:
                kept.append(equation)
        return [*made, *kept]

    def like(self, variable: Variable, space: Space | None) -> Variable:
        self.fresh += 1
        return Variable(self.fresh - 1, variable.type, space, variable.hint)

    def copy(
        self, variable: Variable, space: Space, copies: dict[Variable, Variable], made: list[Equation]
    ) -> Variable:
        """The same value over the distinct rows."""
        if variable in copies:
            return copies[variable]
        equation = self.maker[variable]
        if isinstance(equation, HostColumn):
            copies[variable] = self.like(variable, space)
            made.append(HostColumn(copies[variable], equation.table))
            return copies[variable]
        assert isinstance(equation, Compute)
        operands: list[Atom] = []
        for x in equation.operands:
            varying = isinstance(x, Variable) and x.space is not None
            operands.append(self.copy(x, space, copies, made) if varying and isinstance(x, Variable) else x)
        copies.update((r, self.like(r, space)) for r in equation.results)
        new = tuple(copies[r] for r in equation.results)
        made.append(Compute(new, equation.op, tuple(operands), space, equation.span, equation.used))
        return copies[variable]


# ---- row reads
#
# Reads of rows of an array: `table[word]`, in whatever operation JAX made of it.
#
#     dynamic_slice[slice_sizes=(1, 300)](table, k, 0)     indices [k]             rows: the cotangent [1, 300]
#     gather[offset_dims=(1,), ...](table, [[k], [l]])     indices [k, l]          rows: the cotangent [2, 300]
#     slice[start_indices=(0, 0), ...](table)              indices [0]             rows: the cotangent [1, 300]
#
# Only whole rows count. What they add to the cotangent of the table is then known by few numbers, and is zero
# elsewhere. Where the table is not the same for all, but copied from other rows, no copy need be made: the row is
# looked up there.


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
