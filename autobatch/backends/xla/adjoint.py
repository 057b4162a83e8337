"""The XLA program of an adjoint: the stages and reversed level loops of its schedule.

It reads the tables of the primal and no others. Which rows have read a row is the inverse of a table of pointers: the
device sorts it, once for all variables that the same rows read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import jax
import jax.numpy as jnp

from autobatch.backends.xla.emit import Emission, LevelLoop, ScheduleEmitter
from autobatch.backends.xla.masks import LiveRows as MaskedRows
from autobatch.backends.xla.masks import on_rows
from autobatch.backends.xla.rows import (
    Inverse,
    ReadEntries,
    Runs,
    Source,
    as_rows,
    choose_outer,
    choose_sum,
    counted,
    entries_of,
    in_tables,
    invert,
    outer,
    rows_read,
    scaled,
    segment_reduce,
    sum_rows,
    take,
)
from autobatch.data.spec import Signature
from autobatch.ir import jax_compat
from autobatch.ir.core import LINEAR, Literal
from autobatch.ir.regions import is_masked
from autobatch.ir.system import (
    PLACED,
    Collect,
    Compute,
    Contract,
    Equation,
    Fold,
    Follow,
    Gather,
    Given,
    PathSum,
    RowReader,
    Scatter,
    Selected,
    Spread,
    Taken,
    Variable,
    reads,
)
from autobatch.passes.costs import gather_layout
from autobatch.passes.derivative_rules import as_pullback, contract, rule_of
from autobatch.passes.equations import row_product
from autobatch.passes.fission import Recurrence, RowOrder, Schedule, ScheduleStage, Task

# ---- reverse loops
#
# The level loops of a derivative, last level first.


class ReverseLoop(LevelLoop):
    """A level loop of a derivative: rows add up what the rows that have read them hand down, or read such sums."""

    e: AdjointEmission

    def __init__(self, emission: AdjointEmission, recurrence: Recurrence, before: Sequence[Task]) -> None:
        super().__init__(emission, recurrence, before)
        self.runs: dict[Variable, Runs] = {}
        for task in recurrence.tasks:
            for equation in task.equations:
                if isinstance(equation, Collect | Follow):
                    first = emission.beginnings(self.buffer_of(equation))
                    self.runs[equation.result] = emission.runs(equation, first)
                for x in reads(equation):
                    if isinstance(equation, Compute) and x in self.made and self.made[x].order != task.order:
                        emission.permutation(task.order, self.made[x].order)

    def runs_of(self, equation: Collect | Follow) -> Runs:
        return self.runs[equation.result]

    def buffer_of(self, equation: Collect | Follow) -> tuple[Variable, ...]:
        """The variables of the buffer that is read."""
        inside = self.made.keys() & set(equation.sources)
        return next(g for g in self.recurrence.buffers if not inside.isdisjoint(g))

    def gathered(self, equation: Equation, order: RowOrder, start: Any, width: int, buffers: list[Any]) -> Any:
        if not isinstance(equation, Collect | Follow):
            return super().gathered(equation, order, start, width, buffers)
        runs = self.runs[equation.result]
        source = self.source(equation, buffers)
        dtype = jax_compat.device_dtype(equation.result.type)

        def entry(where: Any, live: Any) -> Any:
            held = jnp.where(live, where, 0)
            index = take(runs.index, held)
            live = live & (index >= 0)
            values = take(source, jnp.where(live, index, 0)).astype(dtype)
            if runs.factors is not None:
                values = scaled(values, take(runs.factors, held))
            return jnp.where(live.reshape((width,) + (1,) * (values.ndim - 1)), values, jnp.zeros_like(values))

        if runs.first is None:
            return entry(start + jnp.arange(width), jnp.ones(width, bool))
        first, count = (
            jax.lax.dynamic_slice_in_dim(x, start, width, allow_negative_indices=False)
            for x in (runs.first, runs.count)
        )
        longest = jnp.max(count)

        def more(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            at, total = carry
            return at + 1, total + entry(first + at, at < count)

        begin = jnp.int32(1), entry(first, count > 0)
        return jax.lax.while_loop(lambda c: c[0] < longest, more, begin)[1]


@dataclass
class AdjointProgram(ScheduleEmitter):
    """An adjoint, and the schedule that the tables were made for. It is handed residuals, then cotangents."""

    root: Schedule

    def run(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, handed: Sequence[Any] = ()
    ) -> list[Any]:
        emission = AdjointEmission(self, shared, tables, signature, handed)
        emission.run()
        return [emission.read(v) for v in self.schedule.system.outputs]


class AdjointEmission(Emission):
    def __init__(
        self,
        program: AdjointProgram,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        handed: Sequence[Any],
    ) -> None:
        super().__init__(program, shared, tables, signature)
        self.handed = handed
        self.root = program.root
        self.steps: dict[int, ScheduleStage | Recurrence] = {}
        for step in self.root.steps:
            tasks = step.tasks if isinstance(step, Recurrence) else (step,)
            self.steps.update((id(e), step) for t in tasks for e in t.equations)
        copies = self.late.items()
        self.late = {x: e for x, e in copies if not isinstance(self.steps.get(id(e)), Recurrence)}
        self.lookups = {x: e for x, e in self.lookups.items() if not isinstance(self.steps.get(id(e)), Recurrence)}
        self.entered: dict[Any, ReadEntries] = {}
        self.inverses: dict[Any, Inverse] = {}
        self.derived: dict[str, Any] = {}
        self.contracted: dict[tuple[Any, int], Any] = {}
        self.sums: dict[Variable | None, Any] = {}
        contracts = [e for s in self.schedule.steps if isinstance(s, ScheduleStage) for e in s.equations]
        self.added = {(e.cotangents[0], e.space) for e in contracts if isinstance(e, Contract) and _adds(e)}

    # ---- tables

    def table(self, name: str) -> Any:
        return super().table(name) if name in self.places else self.inverse_permutation(name)

    def window(self, name: str, start: Any, width: int) -> Any:
        if name in self.places:
            return super().window(name, start, width)
        return jax.lax.dynamic_slice_in_dim(self.inverse_permutation(name), start, width, allow_negative_indices=False)

    def permutation(self, to: RowOrder, origin: RowOrder) -> None:
        """Put a permutation in place that a loop will read: what is made in the trace of a loop stays there."""
        if (name := f"perm{to.index}<{origin.index}") not in self.places:
            self.inverse_permutation(name)

    def inverse_permutation(self, name: str) -> Any:
        """A permutation whose inverse the primal reads."""
        if name not in self.derived:
            to, origin = name.removeprefix("perm").split("<")
            rows = super().table(f"perm{origin}<{to}")
            order = self.schedule.orders[int(origin)]
            at = jnp.arange(rows.shape[0], dtype=rows.dtype)
            where = jnp.where(at < self.count(order.space.index), rows, rows.shape[0])
            self.derived[name] = jnp.zeros_like(rows).at[where].set(at, mode="drop")
        return self.derived[name]

    def rows_read(self, reader: RowReader | Follow, of: Variable) -> tuple[Any, Any, Any]:
        """For every entry of the table of a reader: the row of `of` that it has read, past the last one where it has
        read another variable; the row of the cotangent; and its weight, or None."""
        equation = reader.equation
        order = self.schedule.home[equation.result]
        weight: Any = None
        if isinstance(equation, Spread):
            assert equation.source.space is not None
            index, first, rows = self.table(f"spread{equation.source.space.index}@{order.index}"), 0, self.rows(of)
        else:
            name = equation.name if isinstance(equation, PathSum) else equation.table
            variables, place = gather_layout(self.root, equation, self.steps[id(equation)])
            sizes = [self.rows(v) for v in variables]
            first, rows = sum(sizes[: place[reader.member]]), sizes[place[reader.member]]
            index = self.table(f"{name}@{order.index}" + ("" if isinstance(equation, Gather) else ".index"))
        if isinstance(equation, Gather | Spread):
            source = jnp.arange(index.shape[0], dtype=index.dtype)
            count = self.count(order.space.index)
        else:
            source = self.table(f"{name}@{order.index}.owner")
            count = self.count(equation.elements.index)
        if isinstance(equation, PathSum):
            weight = self.weights(equation, f"{name}@{order.index}")
        row = index - first
        live = (jnp.arange(index.shape[0]) < count) & (row >= 0) & (row < rows)
        return jnp.where(live, row, self.rows(of)), source, weight

    def rows(self, x: Variable) -> int:
        return 1 if x.space is None else self.capacity(self.schedule.home[x])

    def beginnings(self, variables: Sequence[Variable]) -> dict[Variable, int]:
        """Where the rows of each variable begin when they lie one behind the other."""
        ends = accumulate(self.rows(v) for v in variables)
        return {v: end - self.rows(v) for v, end in zip(variables, ends, strict=True)}

    def entries(self, collect: Collect, first: Mapping[Variable, int]) -> ReadEntries:
        """The entries of the tables of all readers; `first` is where the rows of each cotangent begin."""
        key = self.key(collect, first)
        if key not in self.entered:
            parts = [self.rows_read(r, collect.of) for r in collect.readers]
            row = jnp.concatenate([p[0] for p in parts])
            source = jnp.concatenate([p[1] + first[r.cotangent] for p, r in zip(parts, collect.readers, strict=True)])
            self.entered[key] = entries_of(row, source, self.rows(collect.of))
        return self.entered[key]

    def inverse(self, collect: Collect, first: Mapping[Variable, int]) -> Inverse:
        """The inverse of the tables of all readers."""
        key = self.key(collect, first)
        if key not in self.inverses:
            self.inverses[key] = invert(self.entries(collect, first))
        return self.inverses[key]

    def key(self, collect: Collect, first: Mapping[Variable, int]) -> Any:
        """What the entries of the tables of all readers depend on."""
        return self.rows(collect.of), tuple(self.table_of(r, first) for r in collect.readers)

    def table_of(self, reader: RowReader, first: Mapping[Variable, int]) -> Any:
        """What the inverse depends on, of one reader."""
        equation = reader.equation
        order = self.schedule.home[equation.result].index
        if isinstance(equation, Spread):
            assert equation.source.space is not None
            return "spread", equation.source.space.index, order, first[reader.cotangent]
        name = equation.name if isinstance(equation, PathSum) else equation.table
        variables, place = gather_layout(self.root, equation, self.steps[id(equation)])
        before = tuple(self.rows(v) for v in variables[: place[reader.member]])
        return type(equation).__name__, name, order, sum(before), first[reader.cotangent]

    def factors(self, collect: Collect) -> Any:
        """What the cotangent of each entry is multiplied by, in the order of the tables; None where by nothing."""
        found: list[Any] = []
        for reader in collect.readers:
            row, _, weight = self.rows_read(reader, collect.of)
            if reader.factor is not None:
                weight = self.env[reader.factor]
            found.append((row.shape[0], weight))
        if all(weight is None for _, weight in found):
            return None
        shape = collect.of.type.shape
        dtype = jax_compat.device_dtype(collect.result.type)

        def spread(n: int, weight: Any) -> Any:
            return jnp.ones((n, *shape), dtype) if weight is None else as_rows(weight, shape, dtype)

        return jnp.concatenate([spread(n, weight) for n, weight in found])

    def runs(self, equation: Collect | Follow, first: Mapping[Variable, int]) -> Runs:
        """What the rows of a loop read, in a buffer where the rows of each variable begin at `first`."""
        if isinstance(equation, Collect):
            inverse = self.inverse(equation, first)
            factors = self.factors(equation)
            factors = None if factors is None else take(factors, inverse.entry)
            return Runs(inverse.first, inverse.count, inverse.index, factors)
        row, _, weight = self.rows_read(equation, equation.of)
        index = jnp.where(row < self.rows(equation.of), row + first[equation.source], -1)
        weight = weight if equation.factor is None else self.env[equation.factor]
        dtype = jax_compat.device_dtype(equation.result.type)
        factors = None if weight is None else as_rows(weight, equation.result.type.shape, dtype)
        read = equation.equation
        if isinstance(read, Gather | Spread):
            return Runs(None, None, index, factors)
        name = read.name if isinstance(read, PathSum) else read.table
        start = self.table(f"{name}@{self.schedule.home[read.result].index}.start")
        return Runs(start[:-1], start[1:] - start[:-1], index, factors)

    # ---- equations

    def whole(self, equation: Equation, step: ScheduleStage | Recurrence) -> Sequence[Any]:
        match equation:
            case Given(index=index):
                return [self.handed[index]]
            case Contract():
                return [self.contract(equation)]
            case Scatter():
                return [self.scatter(equation)]
            case Collect():
                return [self.collect(equation)]
            case Selected():
                return [self.selected(equation)]
            case Taken():
                return [self.taken(equation)]
            case Follow():
                return [self.follow(equation)]
            case Gather() if id(equation) in self.steps:
                return super().whole(equation, self.steps[id(equation)])
            case _:
                return super().whole(equation, step)

    def contract(self, equation: Contract) -> Any:
        """One operation on all rows; those past the last one have zero cotangents. Their operands are zero too, or,
        where a derivative need not be finite at zero, those of the first row."""
        order = self.schedule.home[equation.of.results[0]]
        count = self.count(equation.space.index)
        live = jnp.arange(self.capacity(order)) < count
        linear = equation.of.op.name in LINEAR
        if (known := self.contracted.get((_key(equation), equation.wrt))) is not None:
            return known
        if is_masked(equation.of.op):
            return self.contract_masked(equation, order, live)
        if _adds(equation) and (total := self.sums.get(equation.cotangents[0])) is not None:
            return total
        if (found := self.outer(equation, order, count)) is not None:
            return found

        def masked(x: Any, other: Any = 0) -> Any:
            if self.signature.full:
                return x
            return jnp.where(live.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.asarray(other, x.dtype))

        def value(x: Any, like: Any) -> Any:
            varying = isinstance(like, Variable) and like.space is not None
            if x is None:
                if isinstance(like, Literal):
                    return self.literal(like)
                rows = (self.capacity(order),) if varying else ()
                return jax_compat.zeros((*rows, *like.type.shape), jax_compat.device_dtype(like.type))
            if not varying:
                return self.atom(x)
            held = self.in_order(x, order)
            return masked(held) if linear else masked(held, held[:1])

        def cotangent(ct: Variable | None) -> Any:
            if ct is None:
                return None
            held = self.operand(ct, order)
            return masked(held if ct.space is not None else jnp.broadcast_to(held, (self.capacity(order), *held.shape)))

        together = self.together(equation)
        read = [
            next((x for x in xs if x is not None), None) for xs in zip(*(e.operands for e in together), strict=True)
        ]
        operands = [value(x, like) for x, like in zip(read, equation.of.operands, strict=True)]
        found = contract([e.wrt for e in together], equation, operands, [cotangent(ct) for ct in equation.cotangents])
        if not (linear or self.signature.full):
            found = [jnp.where(count > 0, x, jnp.zeros_like(x)) for x in found]
        self.contracted.update(((_key(e), e.wrt), x) for e, x in zip(together, found, strict=True))
        return self.contracted[_key(equation), equation.wrt]

    def together(self, equation: Contract) -> list[Contract]:
        """The cotangents of all operands that the rows of one computation share, for the same cotangents of its
        results: what it computes on the way, as the turns of a loop, is computed once for them."""
        stages = (s for s in self.schedule.steps if isinstance(s, ScheduleStage))
        found = (e for s in stages for e in s.equations if isinstance(e, Contract) and _key(e) == _key(equation))
        return [e for e in found if all(x in self.env for x in e.operands if isinstance(x, Variable))]

    def contract_masked(self, equation: Contract, order: RowOrder, live: Any) -> Any:
        """The cotangent of an operand that all rows share, of an operation that masks its rows itself."""
        of, wanted = equation.of, sorted({e.wrt for e in self.together(equation)})
        rule = rule_of(of, [ct is not None for ct in equation.cotangents], wanted)
        given = [x for x, number in zip(of.operands, rule.numbers, strict=True) if number is None]
        read = [*given, *(ct for ct in equation.cotangents if ct is not None)]
        varying = [isinstance(x, Variable) and x.space is not None for x in read]
        xs = [self.operand(x, order) for x in read]
        found = on_rows(as_pullback(rule, equation.span), xs, varying, MaskedRows(live.shape[0], live, self.loops))
        self.contracted.update(((_key(equation), k), x) for k, x in zip(wanted, found, strict=True))
        return self.contracted[_key(equation), equation.wrt]

    def scatter(self, equation: Scatter) -> Any:
        """One array, to which each read adds its rows. Rows that do not count have no index in it."""
        dtype = jax_compat.device_dtype(equation.result.type)
        varying = equation.result.space is not None
        shape = (*([self.rows(equation.result)] if varying else []), *equation.result.type.shape)
        total = jnp.zeros(shape, dtype) if equation.into is None else self.env[equation.into]
        total = total.reshape(-1, *shape[2:]) if varying else total
        for row in equation.rows:
            order = self.schedule.home.get(row.of.results[0])
            *values, cotangent = (
                self.atom(x) if order is None else self.operand(x, order) for x in (*row.of.operands[1:], row.cotangent)
            )
            indices, rows = rows_read(row.of, values, cotangent, self.live(row.of), clean=False)
            if row.through is not None:
                which, _, _ = self.rows_read(RowReader(row.through, 0, row.cotangent), row.through.sources[0])
                indices = in_tables(indices, which, shape)
            at = total.at[indices]
            total = at.add(rows.astype(dtype), mode="drop", wrap_negative_indices=False)
        return total.reshape(shape)

    def outer(self, equation: Contract, order: RowOrder, count: Any) -> Any | None:
        """The cotangent of the matrix of a product, where the kernel computes it; else None."""
        product, (ct,) = row_product(equation.of), equation.cotangents[:1]
        if product is None or product.weight != equation.of.operands[equation.wrt] or ct is None:
            return None
        row = equation.operands[product.side]
        if not isinstance(row, Variable) or row.space is None or ct.space is None:
            return None
        kernel = choose_outer(self.products, product, self.capacity(order)).kernel
        if kernel is None:
            return None
        if product.axis == 0:
            sources, held = self.row_sources(row, order), self.in_order(ct, order)
            if (ct, equation.space) not in self.added:
                return outer(sources, held, count, kernel)
            ones = jnp.ones((1, 1), held.dtype), jnp.zeros(held.shape[0], jnp.int32)
            found = outer([*sources, ones], held, count, kernel)
            self.sums[ct] = found[-1]
            return found[:-1]
        return outer([(self.in_order(ct, order), None)], self.in_order(row, order), count, kernel)

    def row_sources(self, x: Variable, order: RowOrder) -> list[Source]:
        """The rows of a variable as parts that lie side by side, gathered ones before anything has copied them."""
        maker = self.makers.get(x)
        if self.schedule.home[x].index == order.index:
            if isinstance(maker, Gather):
                step = self.steps.get(id(maker), self.stage_of[x])
                variables, _ = gather_layout(self.schedule, maker, step)
                whole = self.joined(variables, jax_compat.device_dtype(x.type))
                if self.in_place(maker):
                    return [(whole, None)]
                return [(whole, self.table(f"{maker.table}@{order.index}"))]
            if isinstance(maker, Compute) and maker.op.name == "concatenate":
                parts = [p for p in maker.operands if isinstance(p, Variable) and p.space is not None]
                if len(parts) == len(maker.operands) and all(p.type.shape[0] for p in parts):
                    return [s for p in parts for s in self.row_sources(p, order)]
        return [(self.in_order(x, order), None)]

    def collect(self, equation: Collect) -> Any:
        """The sum of what has been read, over all rows."""
        dtype = jax_compat.device_dtype(equation.result.type)
        rows, shape = self.rows(equation.of), equation.result.type.shape
        if not equation.readers:
            return jnp.zeros((rows, *shape) if equation.result.space is not None else shape, dtype)
        if all(r.factor is None and self.in_place(r.equation) for r in equation.readers):
            return sum(self.joined([r.cotangent], dtype) for r in equation.readers)
        found = self.entries(equation, self.beginnings(equation.sources))
        held, factors = self.joined(equation.sources, dtype), self.factors(equation)

        summed = choose_sum(self.products, dtype, found.row.shape[0], math.prod(shape)).kernel
        if summed is not None and factors is None and equation.result.space is not None:
            flat = held.reshape(held.shape[0], -1)
            return sum_rows(flat, found.source, found.row, rows, summed).reshape(rows, *shape)

        def values(index: Any, entry: Any, live: Any) -> Any:
            read = take(held, index)
            read = read if factors is None else scaled(read, take(factors, entry))
            return jnp.where(live.reshape(-1, *(1,) * len(shape)), read, jnp.zeros_like(read))

        at = jnp.arange(found.row.shape[0])
        if equation.result.space is None:
            return jnp.sum(values(found.source, at, found.row == 0), 0)

        def read_once() -> Any:
            entry = found.placed(rows)
            return values(take(found.source, entry), entry, found.count > 0)

        def read_often() -> Any:
            return segment_reduce("sum", values(found.source, at, found.row < rows), found.row, rows, ordered=False)

        return jax.lax.cond(found.once, read_once, read_often)

    def follow(self, equation: Follow) -> Any:
        """What has been read, over all rows."""
        dtype, shape = jax_compat.device_dtype(equation.result.type), equation.result.type.shape
        row, source, weight = self.rows_read(equation, equation.of)
        held = self.joined((equation.source,), dtype)
        values = take(jnp.concatenate([held, jnp.zeros_like(held[:1])]), row)
        weight = weight if equation.factor is None else self.env[equation.factor]
        if weight is not None:
            values = scaled(values, as_rows(weight, shape, dtype))
        if isinstance(equation.equation, Gather | Spread):
            return values
        assert isinstance(equation.equation, Fold | PathSum)
        if isinstance(equation.equation, Fold) and equation.equation.kind == PLACED:
            return self.placed(equation.equation, values)
        order = self.schedule.home[equation.result]
        rows = self.capacity(order)
        live = jnp.arange(values.shape[0]) < self.count(equation.equation.elements.index)
        return segment_reduce("sum", values, jnp.where(live, source, rows), rows)

    def taken(self, equation: Taken) -> Any:
        """Of each row the cotangents of the places where it was put."""
        fold = equation.reader.equation
        assert isinstance(fold, Fold)
        row, owner, _ = self.rows_read(equation.reader, equation.of)
        start = self.table(f"{fold.table}@{self.schedule.home[fold.result].index}.start")
        held = self.env[equation.reader.cotangent]
        found = held[owner, jnp.arange(owner.shape[0], dtype=start.dtype) - take(start, owner)]
        dtype, shape = jax_compat.device_dtype(equation.result.type), equation.result.type.shape
        total = jnp.zeros((self.rows(equation.of), *shape), dtype).at[row].add(found.astype(dtype), mode="drop")
        return total if equation.result.space is not None else total[0]

    def selected(self, equation: Selected) -> Any:
        """1 at the first element of each run that is its maximum (minimum), or equal parts at all that are."""
        fold = equation.fold
        order = self.schedule.home[fold.result]
        name, rows = f"{fold.table}@{order.index}", self.capacity(order)
        variables, _ = gather_layout(self.root, fold, self.steps[id(fold)])
        dtype = jax_compat.device_dtype(fold.result.type)
        values = take(self.joined(variables, dtype), self.table(f"{name}.index"))
        owner = self.table(f"{name}.owner")
        values, count = counted(fold, values, owner), values.shape[0]
        live = jnp.arange(count) < self.count(fold.elements.index)
        shape = (-1, *(1,) * (values.ndim - 1))
        # Not the result of the fold: a window that is shifted back over finished rows computes them again in another
        # width, which may have moved their last bits since.
        best = segment_reduce(fold.kind, values, jnp.where(live, owner, rows), rows)
        equal = (values == take(best, owner)) & live.reshape(shape)
        if fold.even:
            ties = segment_reduce("sum", equal.astype(dtype), jnp.where(live, owner, rows), rows)
            return jnp.where(equal, 1 / jnp.maximum(take(ties, owner), 1), 0).astype(dtype)
        equal |= (values != values) & live.reshape(shape)  # a first element that is NaN is the result
        at = jnp.where(equal, jnp.arange(count).reshape(shape), count)
        first = segment_reduce("min", at, jnp.where(live, owner, rows), rows)
        return (equal & (at == take(first, owner))).astype(dtype)

    def level_loop(self, recurrence: Recurrence, before: Sequence[Task] = ()) -> LevelLoop:
        return ReverseLoop(self, recurrence, before)

    def forgetful(self) -> Self:
        made = super().forgetful()
        made.entered, made.inverses, made.derived, made.contracted, made.sums = {}, {}, {}, {}, {}
        return made


def _adds(equation: Contract) -> bool:
    """Is it the sum of the rows of its cotangent, as that of a bias is? (A product of these rows gives it beside.)"""
    cotangent = equation.cotangents[0]
    shape = equation.result.type.shape
    return equation.of.op.name in ("add", "add_any") and cotangent is not None and cotangent.type.shape == shape


def _key(equation: Contract) -> Any:
    """The same for the operands of one computation, for the same cotangents of its results."""
    return equation.of.results, equation.of.operands, equation.cotangents
