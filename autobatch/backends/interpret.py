"""Equations over rows as the reference runs them, row by row; the back end `interpret`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, ClassVar, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.interface import Cost, Declined, Load, Mode, RowEquations, Work
from autobatch.data.spec import Signature
from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import FINITE_DERIVATIVE, Apply, Array, Literal, Value
from autobatch.ir.leaf import NEUTRAL, combine, data_column
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
from autobatch.passes.adjoint import in_part
from autobatch.passes.liveness import unused_results
from autobatch.planning.plan import DataPlan

# ---- demand
#
# The reference back end: a system evaluated row by row, by demand, with memo. The meaning of fission and schedules.
#
# No order, no level, no window: a row of a variable is computed when something asks for it. Slow, and obviously right.


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


# ---- callback
#
# The reference back end inside a traced computation: the host is called when the computation runs.
#
# Derivatives are computed on the host too, by a call of their own, so reverse mode works to any order.


Arrays = Sequence[Any]
Evaluate = Callable[[Arrays, Arrays], Arrays]
"""`evaluate(known, operands)`: `known` are the values of the operands, for decisions; results depend on `operands`,
which JAX may be tracing for a derivative."""


def on_host(evaluate: Evaluate, shapes: Sequence[jax.ShapeDtypeStruct], operands: Arrays) -> tuple[Any, ...]:
    """The results of `evaluate`, of these shapes. Raises UnsupportedError where a tangent is pushed through."""
    if any(map(jax_compat.is_pushed_forward, operands)):
        raise UnsupportedError(
            "the reference back end pushes no tangent through what the host decides while a program of jax.jit runs",
            cure="take this derivative outside of jax.jit, or take the back end xla",
        )

    def now(*values: Any) -> tuple[Any, ...]:
        made = evaluate(values, values)
        return tuple(np.asarray(x, s.dtype) for x, s in zip(made, shapes, strict=True))

    @jax.custom_vjp
    def call(*values: Any) -> tuple[Any, ...]:
        return tuple(jax.pure_callback(now, tuple(shapes), *values, vmap_method="sequential"))

    def forward(*values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return call(*values), values

    def backward(values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        return _pulled_back(evaluate, shapes, values, cotangents)

    call.defvjp(forward, backward)
    made: tuple[Any, ...] = call(*operands)
    return made


def decided_on_host(
    run: Callable[[Sequence[Any], Mapping[str, Any]], list[Any]],
    shapes: Sequence[jax.ShapeDtypeStruct],
    shared: Sequence[Any],
    data: Mapping[str, Any],
) -> list[Any]:
    """The results of `run`: at once where the numbers that decide something are known; where JAX compiles, on the host
    when they are."""
    if not any(isinstance(x, jax.core.Tracer) for x in (*shared, *data.values())):
        return run(shared, data)
    try:
        return run(shared, data)  # nothing is decided by a number, or JAX differentiates, and knows the numbers
    except jax.errors.ConcretizationTypeError:
        pass
    given = [jnp.asarray(x) for x in (*shared, *data.values())]
    keys = {k: jax.random.key_impl(x) for k, x in enumerate(given) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)}

    def evaluate(_: Arrays, live: Arrays) -> Arrays:
        held = [jax.random.wrap_key_data(x, impl=keys[k]) if k in keys else x for k, x in enumerate(live)]
        return run(held[: len(shared)], dict(zip(data, held[len(shared) :], strict=True)))

    return list(on_host(evaluate, shapes, [jax.random.key_data(x) if k in keys else x for k, x in enumerate(given)]))


def _pulled_back(
    evaluate: Evaluate, shapes: Sequence[jax.ShapeDtypeStruct], values: Arrays, cotangents: Arrays
) -> tuple[Any, ...]:
    """The cotangents of all operands."""
    inputs = [k for k, x in enumerate(values) if has_derivative(x)]
    outputs = [k for k, s in enumerate(shapes) if has_derivative(s)]

    def pull(known: Arrays, operands: Arrays) -> Arrays:
        at, given = operands[: len(values)], operands[len(values) :]

        def part(*floats: Any) -> list[Any]:
            whole = list(at)
            for k, x in zip(inputs, floats, strict=True):
                whole[k] = x
            made = evaluate(known[: len(values)], whole)
            return [jnp.asarray(made[k], shapes[k].dtype) for k in outputs]

        _, back = jax.vjp(part, *(jnp.asarray(at[k]) for k in inputs))
        found: Arrays = back([jnp.asarray(x) for x in given])
        return found

    wanted = [jax.ShapeDtypeStruct(np.shape(values[k]), values[k].dtype) for k in inputs]
    found = iter(on_host(pull, wanted, (*values, *(cotangents[k] for k in outputs))))
    return tuple(next(found) if k in inputs else np.zeros(np.shape(x), jax.dtypes.float0) for k, x in enumerate(values))


def has_derivative(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


ROW = 50.0
"""Microseconds for an operation of JAX on one row."""


class Interpreted:
    """A system of equations, each row of which is computed when something asks for it."""

    def __init__(self, rows: RowEquations) -> None:
        self.rows = rows

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature | None = None,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> list[Any]:
        """The outputs, for as many rows as `plan` has. Columns of data among the `tables` may hold other numbers than
        those that were planned."""
        assert plan is not None, "the reference runs what has been planned"
        spaces = dict(plan.request.data)
        data = {c: tables[c][: plan.rows(space)] for c, space in spaces.items() if c in tables}
        whole = replace(plan, data={**plan.data, **data})

        def evaluate(shared: Sequence[Any], data: Mapping[str, Any]) -> list[Any]:
            live, rows = replace(whole, data={**whole.data, **data}), self.rows
            return run(rows.system, live, shared, rows.constants, rows.status)

        return decided_on_host(evaluate, shapes(self.rows.system, whole), shared, data)

    def gradient(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature | None = None,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The outputs and their pullback, by JAX's derivative of each operation."""
        moving = {k: jnp.asarray(x) for k, x in enumerate(shared) if has_derivative(x)}
        columns = {n: jnp.asarray(x) for n, x in tables.items() if has_derivative(x)}

        def run(moving: Mapping[int, Any], columns: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
            whole = [moving.get(k, x) for k, x in enumerate(shared)]
            found = self.run(whole, {**tables, **columns}, signature, mode, plan)
            return [x for x in found if has_derivative(x)], found

        _, back, found = jax.vjp(run, moving, columns, has_aux=True)

        def pull(cotangents: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
            of_shared, of_columns = back([c for c, x in zip(cotangents, found, strict=True) if has_derivative(x)])
            return [of_shared.get(k) for k in range(len(shared))], of_columns

        return found, pull


class Interpret:
    """The meaning of programs: slow, and obviously right."""

    name: ClassVar[str] = "interpret"

    def accepts(self, source: RowEquations) -> RowEquations | Declined:
        """All of them."""
        return source

    def cost(self, work: Work, load: Load) -> Cost:
        """Each operation of each row is one of JAX, outside of any compiled program."""
        return Cost(ROW * work.operations * load.rows * (3 if load.derives else 1), 0.0)

    def compile(self, taken: RowEquations) -> Interpreted:
        """There is nothing to compile."""
        return Interpreted(taken)
