"""Rewrites of equations: fewer rows, and fewer and larger products.

Equal rows once, for what integers decide: a chain of operations on columns runs once for each distinct row. Two
activations with the same word have the same `x @ W`. Values that depend on nothing but uniform values and integer
columns of their own row are computed over the distinct rows of those columns, and spread to the rows that read them;
for chains with a contraction, since a row of a matrix product costs more than a gather. A gather that would read spread
rows reads the distinct ones: rows are spread as late as possible.

    encode: x = emb[word]                encode by word: x = emb[word]
    encode: z = dot_general(x, W)  ->    encode by word: z' = dot_general(x, W)
                                         encode: z = spread(z')

Contractions of the same rows in one: a machine multiplies one large matrix faster than several small ones. Only
contractions that run together are merged: `x @ W + h @ U` with `x` known before a recurrence and `h` made in it stays
two, one of them outside the loop. Sums are associated anew, which moves the last bits of floats.

    z1 = dot_general(hl, Ul)             U  = concatenate(Ul, Ur)              once
    z2 = dot_general(hr, Ur)       ->    x  = concatenate(hl, hr)
    z  = add(z1, z2)                     z  = dot_general(x, U)

    i  = dot_general(x, Wi)              W  = concatenate(Wi, Wf)              once
    f  = dot_general(x, Wf)        ->    z  = dot_general(x, W)
                                         i, f = slices of z
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.core import Array, Literal
from autobatch.ir.ops import Op
from autobatch.ir.system import (
    Atom,
    Compute,
    Constant,
    Equation,
    Fold,
    Gather,
    HostColumn,
    Link,
    PathSum,
    Shared,
    Space,
    Spread,
    System,
    Variable,
    reads,
    results,
    space_of,
)
from autobatch.passes.fission import Recurrence, Schedule, ScheduleStage, eliminate_dead

# ---- equal rows


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


# ---- contractions


Unit = tuple[int, Space]
"""Equations that run together: a step of the schedule, and rows of one space in it."""
Place = tuple[int, int]
"""Where an equation stands: (n, 0) is that of the old system, (n, 1) and (n, 2) are new ones behind it."""


@dataclass(frozen=True)
class RowProduct:
    """`row`, a vector of each row, times the matrix `weight`, the same for all. `side` is the position of `row` among
    the operands, `axis` the axis of the matrix that is contracted."""

    equation: Compute
    row: Variable
    weight: Variable
    side: int
    axis: int

    @property
    def columns(self) -> int:
        return self.weight.type.shape[1 - self.axis]

    @property
    def contracted(self) -> int:
        return self.weight.type.shape[self.axis]

    @property
    def form(self) -> tuple[object, ...]:
        """Products of one form can be merged."""
        return self.side, self.axis, self.equation.op.params, self.row.type.dtype, self.weight.type.dtype


def row_product(equation: Equation) -> RowProduct | None:
    """A vector of each row times a matrix that all rows share, where the equation is one."""
    if not isinstance(equation, Compute) or equation.op.name != "dot_general" or equation.space is None:
        return None
    xs = [x for x in equation.operands if isinstance(x, Variable)]
    sides = [k for k, x in enumerate(xs) if x.space is not None]
    if len(xs) != 2 or len(sides) != 1:
        return None
    side = sides[0]
    contracted, batch = equation.op["dimension_numbers"]
    row, weight = xs[side], xs[1 - side]
    if any(batch) or len(row.type.shape) != 1 or len(weight.type.shape) != 2 or len(contracted[0]) != 1:
        return None
    return RowProduct(equation, row, weight, side, contracted[1 - side][0])


def merge_contractions(schedule: Schedule) -> System | None:
    """The system with contractions that run together merged; None when there are none."""
    merging = _Merging(schedule)
    merging.merge_sums()
    merging.prune()
    merging.merge_columns()
    return merging.system() if merging.merged else None


class _Merging:
    def __init__(self, schedule: Schedule) -> None:
        self.before = schedule.system
        self.equations: dict[Place, Equation] = {(n, 0): e for n, e in enumerate(schedule.system.equations)}
        self.ids = count(1 + max((r.id for e in schedule.system.equations for r in results(e)), default=-1))
        self.serial = count(1)
        self.unit = _units(schedule)
        self.looping = {n for n, s in enumerate(schedule.steps) if isinstance(s, Recurrence)}
        self.concatenated: dict[tuple[tuple[Variable, ...], int], Variable] = {}
        self.merged = 0

    def system(self) -> System:
        """All that is live, each new equation where the one stood that it was made for."""
        return eliminate_dead(
            replace(
                self.before, equations=tuple(e for _, e in sorted(self.equations.items(), key=lambda item: item[0]))
            )
        )

    def prune(self) -> None:
        """Forget what nothing reads any more."""
        live = {id(e) for e in self.system().equations}
        self.equations = {at: e for at, e in self.equations.items() if id(e) in live}

    # ---- what there is

    def makers(self) -> dict[Variable, Place]:
        return {r: n for n, e in self.equations.items() for r in results(e)}

    def uses(self) -> Counter[Variable]:
        found = Counter(v for e in self.equations.values() for v in reads(e))
        found.update(self.before.outputs)
        return found

    def add(self, equation: Equation, unit: Unit | None, at: Place) -> Variable:
        """Put an equation in front of the one at `at`."""
        self.equations[at[0] - 1, next(self.serial)] = equation
        (made,) = results(equation)
        if unit is not None:
            self.unit[made] = unit
        return made

    def fresh(self, like: Array, space: Space | None) -> Variable:
        return Variable(next(self.ids), like, space)

    def product(self, variable: Variable, maker: dict[Variable, Place]) -> RowProduct | None:
        """How `variable` is made, where that is a vector times a matrix."""
        return row_product(self.equations[maker[variable]])

    # ---- what is made of it

    def concatenate(self, parts: Sequence[Variable], axis: int, unit: Unit | None, at: Place) -> Variable:
        """The parts one behind the other, made once for all who want the same."""
        key = (tuple(parts), axis)
        if key not in self.concatenated:
            shape = list(parts[0].type.shape)
            shape[axis] = sum(p.type.shape[axis] for p in parts)
            made = self.fresh(replace(parts[0].type, shape=tuple(shape)), parts[0].space)
            op = Op("concatenate", (("dimension", axis),), jax_compat.primitive("concatenate"))
            self.concatenated[key] = self.add(Compute((made,), op, tuple(parts), made.space), unit, at)
        return self.concatenated[key]

    def multiply(self, like: RowProduct, row: Variable, weight: Variable, columns: int) -> Compute:
        made = self.fresh(replace(like.equation.results[0].type, shape=(columns,)), row.space)
        operands = (row, weight) if like.side == 0 else (weight, row)
        return replace(like.equation, results=(made,), operands=operands)

    def merge_sums(self) -> None:
        """Sums of products: one product of concatenated rows."""
        maker, uses = self.makers(), self.uses()
        inner: set[Variable] = set()
        sums: list[tuple[Variable, list[Variable]]] = []
        for variable in reversed(list(maker)):
            if variable not in inner and self.is_sum(variable, maker):
                terms = self.terms(variable, maker, uses, inner)
                sums.append((variable, terms))
        for total, terms in sums:
            self.merge_sum(total, terms, maker, uses)

    def is_sum(self, variable: Variable, maker: dict[Variable, Place]) -> bool:
        equation = self.equations[maker[variable]]
        return (
            isinstance(equation, Compute)
            and equation.op.name == "add"
            and equation.space is not None
            and all(isinstance(x, Variable) and x.type.shape == variable.type.shape for x in equation.operands)
        )

    def terms(
        self, total: Variable, maker: dict[Variable, Place], uses: Counter[Variable], inner: set[Variable]
    ) -> list[Variable]:
        """What a sum adds up, from left to right, through sums that nothing else reads."""
        found: list[Variable] = []
        for x in reads(self.equations[maker[total]]):
            if uses[x] == 1 and x in maker and self.is_sum(x, maker) and self.unit.get(x) == self.unit.get(total):
                inner.add(x)
                found.extend(self.terms(x, maker, uses, inner))
            else:
                found.append(x)
        return found

    def merge_sum(
        self, total: Variable, terms: list[Variable], maker: dict[Variable, Place], uses: Counter[Variable]
    ) -> None:
        unit = self.unit[total]
        groups: dict[tuple[object, ...], list[RowProduct]] = defaultdict(list)
        for term in terms:
            product = self.product(term, maker) if term in maker else None
            if product is not None and uses[term] == 1 and self.unit.get(term) == unit:
                groups[product.form].append(product)
        chosen = {form: found for form, found in groups.items() if len(found) > 1 and self.pays(found, unit)}
        if not chosen:
            return
        replaced = {p.equation.results[0] for found in chosen.values() for p in found}
        at, made = maker[total], list[Compute]()
        for found in chosen.values():
            row = self.concatenate([p.row for p in found], 0, unit, at)
            weight = self.concatenate([p.weight for p in found], found[0].axis, None, at)
            made.append(self.multiply(found[0], row, weight, found[0].columns))
            self.merged += 1
        rest = [t for t in terms if t not in replaced]
        if len(made) == 1 and not rest:
            self.equations[at] = replace(made[0], results=(total,))
        else:
            self.sum_up(total, [*(self.add(e, unit, at) for e in made), *rest], at)

    def pays(self, products: Sequence[RowProduct], unit: Unit) -> bool:
        """Outside a loop, copying the rows together must cost less than adding the products."""
        rows = sum(p.row.type.shape[0] for p in products)
        return unit[0] in self.looping or rows <= 2 * products[0].columns

    def sum_up(self, total: Variable, terms: Sequence[Variable], at: Place) -> None:
        """Make `total` the sum of `terms`; what made it before is dead."""
        add, left = self.equations[at], terms[0]
        assert isinstance(add, Compute)
        for term in terms[1:-1]:
            made = self.fresh(total.type, total.space)
            left = self.add(replace(add, results=(made,), operands=(left, term)), self.unit[total], at)
        self.equations[at] = replace(add, operands=(left, terms[-1]))

    def merge_columns(self) -> None:
        """Products of the same rows: one product with concatenated columns."""
        groups: dict[tuple[object, ...], list[RowProduct]] = defaultdict(list)
        maker = self.makers()
        for variable in maker:
            product = self.product(variable, maker)
            if product is not None:
                groups[self.unit[variable], product.row, product.form].append(product)
        for found in groups.values():
            if len(found) > 1:
                self.merge_column(found, maker)
                self.merged += 1

    def merge_column(self, products: Sequence[RowProduct], maker: dict[Variable, Place]) -> None:
        """The first of the products makes the columns of all."""
        first, axis = products[0], 1 - products[0].axis
        (result,) = first.equation.results
        weight = self.concatenate([p.weight for p in products], axis, None, maker[result])
        columns = sum(p.columns for p in products)
        product = self.multiply(first, first.row, weight, columns)
        used = frozenset.intersection(*(p.equation.used for p in products))
        whole = self.add(replace(product, used=used), self.unit[result], maker[result])
        at = 0
        for p in products:
            params = (("limit_indices", (at + p.columns,)), ("start_indices", (at,)), ("strides", None))
            op = Op("slice", params, jax_compat.primitive("slice"))
            (made,) = p.equation.results
            self.equations[maker[made]] = Compute((made,), op, (whole,), made.space, p.equation.span)
            at += p.columns


def _units(schedule: Schedule) -> dict[Variable, Unit]:
    found: dict[Variable, Unit] = {}
    for n, step in enumerate(schedule.steps):
        equations = [e for t in step.tasks for e in t.equations] if isinstance(step, Recurrence) else step.equations
        for equation in equations:
            space = space_of(equation)
            if space is not None:
                found.update((r, (n, space)) for r in results(equation))
    return found


# ---- narrow
#
# Products of what branches join are made before the join, where that makes its rows narrower.
#
#     encode: %h = gather(then.%a, else.%b)            then: %x = dot_general(%a, %W)         150 -> 5
#     encode: %y = dot_general(%h, %W)           ->    else: %z = dot_general(%b, %W)
#                                                      encode: %y = gather(then.%x, else.%z)
#
# Each activation takes one branch, so the branches have no more rows than the join, and fewer where equal rows are
# shared. Rows of five numbers are gathered in place of rows of 150; so are cotangents, the other way round. Outside of
# loops alone: inside them, one product of a window is faster than one for each branch.


def narrow_joins(schedule: Schedule) -> System | None:
    """The system with such products moved; None when there are none."""
    readers: dict[Variable, list[Equation]] = defaultdict(list)
    for equation in schedule.system.equations:
        for x in reads(equation):
            readers[x].append(equation)
    looping = {id(e) for s in schedule.steps if isinstance(s, Recurrence) for t in s.tasks for e in t.equations}
    moved: dict[int, tuple[Gather, RowProduct]] = {}
    for equation in schedule.system.equations:
        if not isinstance(equation, Gather) or not is_join(equation) or equation.result in schedule.system.outputs:
            continue
        found = [row_product(e) for e in readers[equation.result]]
        products = [p for p in found if p is not None]
        if len(products) < len(found) or any(id(e) in looping for e in (equation, *readers[equation.result])):
            continue
        if 0 < sum(p.columns for p in products) < equation.result.type.shape[0]:
            moved.update((id(p.equation), (equation, p)) for p in products)
    if not moved:
        return None
    ids = count(1 + max(r.id for e in schedule.system.equations for r in results(e)))
    equations: list[Equation] = []
    for equation in schedule.system.equations:
        equations += [equation] if id(equation) not in moved else before_join(*moved[id(equation)], ids)
    return eliminate_dead(replace(schedule.system, equations=tuple(equations)))


def is_join(gather: Gather) -> bool:
    """Does each row read what a branch of the same activation has made?"""
    joins = not gather.calls and len(gather.inside) == len(gather.sources) > 0
    return joins and len(gather.result.type.shape) == 1 and all(s.space is not None for s in gather.sources)


def before_join(gather: Gather, product: RowProduct, ids: Iterator[int]) -> list[Equation]:
    """The product of each source, and the gather of their results."""
    equation = product.equation
    (result,) = equation.results
    made: list[Compute] = []
    for source in gather.sources:
        operands = list(equation.operands)
        operands[product.side] = source
        made.append(
            replace(
                equation,
                results=(Variable(next(ids), result.type, source.space),),
                operands=tuple(operands),
                space=source.space,
            )
        )
    sources = tuple(e.results[0] for e in made)
    return [*made, replace(gather, result=result, sources=sources, inside=sources)]


# ---- path sums
#
# Linear recurrences that only sum up become one sum for each example, with no levels.
#
#     recurrence: below = 0 on leaf | loss[left] + loss[right]      stage: total = sum over paths(xent)
#                 loss = below + xent                           ->
#     stage:      total = loss[root]
#
# `loss[root]` is the sum of what paths from the root lead to, each term as often as there are paths. The host knows the
# paths, so the device adds up one run of rows. Only for sums of few numbers a row, that nothing else reads row by row:
# adding long rows one by one costs more than the levels.


SIGNS = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}
"""Operations of a linear recurrence, with the signs of their operands."""
LONGEST_ROW = 8
"""Numbers in a row beyond which a recurrence is left as it is."""


def sum_over_paths(schedule: Schedule) -> System | None:
    """The system with linear recurrences replaced; None when there is none."""
    system = schedule.system
    spaces = list(system.spaces)
    replaced: dict[int, PathSum] = {}
    for recurrence in schedule.recurrences():
        for read in _read_by_examples(recurrence, system) or ():
            found = _Linear(recurrence, system).paths(read, Space(len(spaces), f"{read.table}.paths", "elements"))
            if found is not None:
                spaces.append(found.elements)
                replaced[id(read)] = found
    if not replaced:
        return None
    equations = tuple(replaced.get(id(e), e) for e in system.equations)
    return eliminate_dead(replace(system, spaces=tuple(spaces), equations=equations))


def _read_by_examples(recurrence: Recurrence, system: System) -> list[Gather] | None:
    """The reads of a recurrence from outside, where these are rows of examples only."""
    inside = {id(e) for t in recurrence.tasks for e in t.equations}
    made = {r for t in recurrence.tasks for e in t.equations for r in results(e)}
    found: list[Gather] = []
    for equation in system.equations:
        if id(equation) not in inside and not made.isdisjoint(reads(equation)):
            if not isinstance(equation, Gather) or equation.result.space is None:
                return None
            if equation.result.space.kind != "example":
                return None
            found.append(equation)
    return None if made.intersection(system.outputs) else found


class _NotLinear(Exception):
    """Something else than a sum is in the recurrence."""


class _Linear:
    """Follows the sums of one recurrence."""

    def __init__(self, recurrence: Recurrence, system: System) -> None:
        self.maker: dict[Variable, Equation] = {r: e for t in recurrence.tasks for e in t.equations for r in results(e)}
        self.zero = {e.result for e in system.equations if isinstance(e, Constant) and _is_zero(e.literal)}
        self.variables: dict[Variable, int] = {}
        self.terms: dict[Variable, int] = {}

    def paths(self, read: Gather, elements: Space) -> PathSum | None:
        """The sum that a read of the recurrence is."""
        try:
            links = list(self.entries(-1, read, False, 1))
            done = 0
            while done < len(self.variables):
                variable = list(self.variables)[done]
                links.extend(self.links(done, variable, 1))
                done += 1
        except _NotLinear:
            return None
        variables, terms = tuple(self.variables), tuple(self.terms)
        if any(v.type.dtype != read.result.type.dtype for v in (*variables, *terms)):
            return None
        if math.prod(read.result.type.shape) > LONGEST_ROW or read.result.type.is_bool:
            return None
        adds = self.maker[variables[0]]
        span = adds.span if isinstance(adds, Compute) else read.span
        return PathSum(read.result, f"{read.table}.paths", elements, terms, variables, tuple(links), span)

    def links(self, reader: int, variable: Variable, sign: int) -> Iterator[Link]:
        """What `variable` adds up in a row of variable number `reader`, which it is or which reads it there."""
        match self.maker[variable]:
            case Compute(op=op, operands=operands) if op.name in SIGNS:
                for x, own in zip(operands, SIGNS[op.name], strict=True):
                    yield from self.operand(reader, x, variable, own * sign)
            case Gather() as gather:
                yield from self.entries(reader, gather, False, sign)
            case Fold(kind="sum") as fold:
                yield from self.entries(reader, fold, True, sign)
            case _:
                raise _NotLinear

    def operand(self, reader: int, x: Variable | Literal, total: Variable, sign: int) -> Iterator[Link]:
        if isinstance(x, Literal):
            if not _is_zero(x):
                raise _NotLinear
        elif x.type.shape != total.type.shape:
            raise _NotLinear
        elif x in self.maker:
            yield from self.links(reader, x, sign)
        elif x not in self.zero:
            yield Link(reader, self.term(x), None, sign=sign)

    def entries(self, reader: int, equation: Gather | Fold, fold: bool, sign: int) -> Iterator[Link]:
        for k, source in enumerate(equation.sources):
            if source in self.maker:
                target = self.variables.setdefault(source, len(self.variables))
            elif source in self.zero:
                continue
            else:
                target = self.term(source)
            yield Link(reader, target, equation.table, k, fold, sign)

    def term(self, variable: Variable) -> int:
        return ~self.terms.setdefault(variable, len(self.terms))


def _is_zero(literal: Literal) -> bool:
    return literal.constant < 0 and not isinstance(literal.value, bool) and literal.value == 0
