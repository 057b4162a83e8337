"""Contractions of the same rows in one: a machine multiplies one large matrix faster than several small ones.

    z1 = dot_general(hl, Ul)             U  = concatenate(Ul, Ur)              once
    z2 = dot_general(hr, Ur)     ->      x  = concatenate(hl, hr)
    z  = add(z1, z2)                     z  = dot_general(x, U)

    i  = dot_general(x, Wi)              W  = concatenate(Wi, Wf)              once
    f  = dot_general(x, Wf)      ->      z  = dot_general(x, W)
                                         i, f = slices of z

Only contractions that run together are merged: `x @ W + h @ U` with `x` known before a recurrence and `h` made in it
stays two, one of them outside the loop. Sums are associated anew, which moves the last bits of floats.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from autobatch.ir import jax_compat
from autobatch.ir.core import Array, Literal
from autobatch.ir.ops import Op
from autobatch.ir.system import (
    Compute,
    Constant,
    Equation,
    Fold,
    Gather,
    Link,
    PathSum,
    Space,
    System,
    Variable,
    reads,
    results,
    space_of,
)
from autobatch.passes.schedule.fission import Recurrence, Schedule, eliminate_dead

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
