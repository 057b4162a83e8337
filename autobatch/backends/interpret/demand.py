"""The reference back end: a system evaluated row by row, by demand, with memo. The meaning of fission and schedules.

No order, no level, no window: a row of a variable is computed when something asks for it. Slow, and obviously right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.folds import NEUTRAL, combine, data_column
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Apply, Literal, Value
from autobatch.ir.elementwise import FINITE_DERIVATIVE
from autobatch.ir.ops import Op
from autobatch.ir.system import (
    PLACED,
    Atom,
    Collect,
    Compute,
    Constant,
    Contract,
    Data,
    Equation,
    Fold,
    Follow,
    Gather,
    Given,
    HostColumn,
    PathSum,
    Scatter,
    Selected,
    Shared,
    Spread,
    System,
    Taken,
    Variable,
    results,
)
from autobatch.ir.types import Array
from autobatch.passes.analysis.unused import unused_results
from autobatch.passes.autodiff.cut import in_part
from autobatch.planning.plan import DataPlan

Cell = tuple[Variable, int]


class Evaluation:
    """The rows of a system over one data set that have been asked for so far."""

    def __init__(self, system: System, plan: DataPlan, shared: Sequence[Any], constants: Sequence[Any]) -> None:
        self.system, self.plan, self.shared, self.constants = system, plan, shared, constants
        self.maker: dict[Variable, Equation] = {r: e for e in system.equations for r in results(e)}
        self.memo: dict[Cell, Any] = {}
        self.examples: dict[int, Any] = {}
        self.unused: dict[int, frozenset[Value]] = {}

    def failed(self, status: Variable) -> frozenset[int]:
        """The examples that have failed on the device."""
        found = np.asarray([int(self.value(status, row)) for row in self.reached(status)], np.int64)
        return frozenset(np.asarray(self.reached(status))[found != 0].tolist())

    def reached(self, variable: Variable) -> list[int]:
        """The rows of an output that point somewhere."""
        equation = self.maker[variable]
        assert isinstance(equation, Gather)
        return [row for row, member in enumerate(self.plan.pointers[equation.table][0]) if member >= 0]

    def output(self, variable: Variable, without: Collection[int] = ()) -> Any:
        """All rows of an output, stacked in the order of the examples (or of the elements); zero for those that point
        nowhere: examples that failed while planning, objects of a class without this field; and in those of the
        examples `without`, which nothing is computed of, so no derivative comes of them either."""
        space = variable.space
        assert space is not None
        equation = self.maker[variable]
        assert isinstance(equation, Gather)
        member, _ = self.plan.pointers[equation.table]
        blank = jnp.zeros(variable.type.shape, jax_compat.device_dtype(variable.type))
        there = [m >= 0 and not (without and self.example(space.index, row) in without) for row, m in enumerate(member)]
        rows = [self.value(variable, row) if there[row] else blank for row in range(len(member))]
        return jnp.stack(rows) if rows else jnp.stack([blank])[:0]

    def value(self, variable: Variable, row: int) -> Any:
        """One row. An explicit stack, because chains of rows may be long."""
        stack: list[Cell] = [(variable, row)]
        while stack:
            cell = stack[-1]
            if cell in self.memo:
                stack.pop()
                continue
            equation = self.maker[cell[0]]
            missing = [c for c in self.needs(equation, cell[1]) if c not in self.memo]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            found = self.compute(equation, cell[1])
            for result, value in zip(results(equation), found, strict=True):
                self.memo[result, cell[1]] = value
        return self.memo[variable, row]

    def needs(self, equation: Equation, row: int) -> list[Cell]:
        match equation:
            case Compute(operands=xs):
                return [self.cell(x, row) for x in xs if isinstance(x, Variable)]
            case Gather(table=table, sources=sources):
                return [self.pointed(table, row, sources)]
            case Fold():
                return self.elements(equation, row)
            case Spread() | PathSum():
                raise AssertionError("shared rows are a matter of schedules: give the system before sharing")
            case Shared() | Constant() | HostColumn() | Data():
                return []
            case Given() | Contract() | Scatter() | Selected() | Taken() | Collect() | Follow():
                raise AssertionError("derivatives of this back end are JAX's own")
            case _:
                assert_never(equation)

    def cell(self, x: Variable, row: int) -> Cell:
        return (x, row if x.space is not None else 0)

    def pointed(self, table: str, at: int, sources: Sequence[Variable]) -> Cell:
        """The cell that entry `at` of a table of pointers names."""
        member, row = self.plan.pointers[table]
        source = sources[int(member[at])]
        if source.space is None:
            return (source, 0)
        example = self.example(self.plan.space_of_table[table], at)
        return (source, int(row[at]) + int(self.plan.starts[source.space.index][example]))

    def example(self, space: int, row: int) -> int:
        return int(np.searchsorted(self.plan.starts[space], row, side="right")) - 1

    def elements(self, fold: Fold, row: int) -> list[Cell]:
        assert fold.result.space is not None
        example = self.example(fold.result.space.index, row)
        local = row - int(self.plan.starts[fold.result.space.index][example])
        first, last = self.plan.starts[fold.elements.index][example : example + 2]
        mine = first + np.flatnonzero(self.plan.owners[fold.table][first:last] == local)
        return [self.pointed(fold.table, int(at), fold.sources) for at in mine]

    def compute(self, equation: Equation, row: int) -> Sequence[Any]:
        match equation:
            case Shared(index=index):
                return [jnp.asarray(self.shared[index])]
            case Constant(result=result, literal=literal):
                return [jax_compat.conform(self.atom(literal, row), result.type)]
            case HostColumn(result=result, table=table):
                return [jnp.asarray(self.plan.columns[table][row], jax_compat.device_dtype(result.type))]
            case Data(result=result, column=column):
                return [data_column(self.plan.data[column][row : row + 1], result.type)[0]]
            case Compute(op=op, operands=xs):
                types, values = [r.type for r in equation.results], [self.atom(x, row) for x in xs]

                def run(xs: Sequence[Any]) -> Sequence[Any]:
                    return self.masked(op, xs) if op.name == "masked" else leaf.evaluate(op, types, *xs)

                cut = op.name not in FINITE_DERIVATIVE and any(equation.unused())
                return _in_part(run, values) if cut else run(values)
            case Gather(result=result):
                value = self.memo[self.needs(equation, row)[0]]
                return [_cast(value, result.type)]
            case Fold(result=result, kind=kind) if kind == PLACED:
                values = [_cast(self.memo[c], result.type) for c in self.elements(equation, row)]
                blank = jnp.zeros(result.type.shape, jax_compat.device_dtype(result.type))
                return [blank.at[: len(values)].set(jnp.stack(values)) if values else blank]
            case Fold(result=result, kind=kind):
                dtype = jax_compat.device_dtype(result.type)
                values = [_cast(self.memo[c], result.type) for c in self.elements(equation, row)]
                if kind not in ("max", "min") or not values:
                    values = [jnp.full(result.type.shape, NEUTRAL[kind](dtype), dtype), *values]
                if equation.even:  # at once: a fold by `maximum` would share the derivative of equal elements by halves
                    return [(jnp.max if kind == "max" else jnp.min)(jnp.stack(values), 0)]
                return [reduce(combine(equation), values)]
            case Spread() | PathSum():
                raise AssertionError("shared rows are a matter of schedules: give the system before sharing")
            case Given() | Contract() | Scatter() | Selected() | Taken() | Collect() | Follow():
                raise AssertionError("derivatives of this back end are JAX's own")
            case _:
                assert_never(equation)

    def masked(self, op: Op, xs: Sequence[Any]) -> Sequence[Any]:
        """A region, in which what is not used contributes nothing either."""
        region = op["region"]
        if id(region) not in self.unused:
            self.unused[id(region)] = unused_results(region, region.args)
        unused = self.unused[id(region)]

        def apply(i: Apply, xs: Sequence[Any]) -> Sequence[Any]:
            run = partial(leaf.applied, i)
            return run(xs) if unused.isdisjoint(i.results) else _in_part(run, xs)

        return leaf.masked(region, xs, apply)

    def atom(self, x: Atom, row: int) -> Any:
        if isinstance(x, Variable):
            return self.memo[self.cell(x, row)]
        assert isinstance(x, Literal) and isinstance(x.type, Array)
        return jnp.asarray(self.constants[x.constant]) if x.constant >= 0 else jax_compat.literal(x.value, x.type)


def _in_part(run: Callable[[Sequence[Any]], Sequence[Any]], xs: Sequence[Any]) -> Sequence[Any]:
    return in_part(run, xs, [False] * len(xs))


def _cast(value: Any, type: Array) -> Any:
    dtype = jax_compat.device_dtype(type)
    return value if value.dtype == dtype else value.astype(dtype)


def shapes(system: System, plan: DataPlan) -> list[jax.ShapeDtypeStruct]:
    """Those of the outputs of a system."""
    maker = {r: e for e in system.equations for r in results(e)}
    found = []
    for variable in system.outputs:
        equation = maker[variable]
        assert isinstance(equation, Gather)
        rows = len(plan.pointers[equation.table][0])
        found.append(jax.ShapeDtypeStruct((rows, *variable.type.shape), jax_compat.device_dtype(variable.type)))
    return found


def run(
    system: System, plan: DataPlan, shared: Sequence[Any], constants: Sequence[Any], status: Variable | None = None
) -> list[Any]:
    """The outputs of the system for the examples of a plan. `status`: the output that says which examples have failed
    on the device; then all other outputs of these are zero, and have no derivative."""
    evaluation = Evaluation(system, plan, shared, constants)
    failed = frozenset[int]() if status is None else evaluation.failed(status)
    return [evaluation.output(v, () if v is status else failed) for v in system.outputs]
