"""The derivative of one leaf operation, from JAX: `jax.vjp` of the operation, traced once for its types.

The rule of one row is a jaxpr whose equations stand among those of the adjoint, so that what does not depend on a
cotangent is an ordinary value, which may be computed once, ahead or not at all. The rule for an operand that all rows
share is applied to all rows together, and stays one operation (`Contract`).
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx

from autobatch.errors import NOWHERE, Span, UnsupportedError
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import CHEAP, MOVING, Apply, Array, Literal, Operand, Value
from autobatch.ir.leaf import DerivativeRule
from autobatch.ir.ops import Op, of_derivatives, own
from autobatch.ir.regions import derives_loop, holds_loop, is_masked
from autobatch.ir.system import (
    Atom,
    Compute,
    Constant,
    Contract,
    Data,
    Equation,
    Fold,
    Gather,
    Given,
    HostColumn,
    PathSum,
    Selected,
    Shared,
    Spread,
    Variable,
    reads,
    results,
)
from autobatch.passes.costs import gather_layout
from autobatch.passes.fission import Recurrence, Schedule, ScheduleStage


def has_derivative(type: Array) -> bool:
    """Can a number of this type move?"""
    return bool(jnp.issubdtype(jax_compat.device_dtype(type), jnp.inexact))


def rule_of(equation: Compute, cotangents: Sequence[bool], wrt: Sequence[int]) -> DerivativeRule:
    """The rule for some operands of an equation, when these results of it have cotangents."""
    types: list[Array] = []
    numbers: list[Any] = []
    for x in equation.operands:
        assert isinstance(x.type, Array)
        types.append(x.type)
        numbers.append(x.value if isinstance(x, Literal) and x.constant < 0 else None)
    results = tuple(r.type for r in equation.results)
    return DerivativeRule(equation.op, tuple(types), tuple(numbers), results, tuple(cotangents), tuple(wrt))


def as_operation(equation: Contract, result: Variable) -> Compute:
    """What a contraction adds up, as a computation on rows: the cotangent that one row contributes."""
    of = equation.of
    rule = rule_of(of, [ct is not None for ct in equation.cotangents], (equation.wrt,))
    given = [x for x, number in zip(of.operands, rule.numbers, strict=True) if number is None]
    cotangents = [ct for ct in equation.cotangents if ct is not None]
    op = as_pullback(rule, equation.span)
    used = frozenset[int]() if any(equation.of.unused()) else frozenset({0})
    return Compute((result,), op, (*given, *cotangents), equation.space, equation.span, used)


def as_pullback(rule: DerivativeRule, span: Span) -> Op:
    """A rule as an operation on what it is given and the cotangents.

    A loop of masked code is differentiated in reverse once: the derivative of its derivative is refused."""
    if not is_masked(rule.op):
        return of_derivatives("pullback", rule=rule, loops=jax_compat.loops(row_rule(rule, span).jaxpr))
    if derives_loop(rule.op):
        raise UnsupportedError(
            "a loop that computed numbers end has no second derivative in reverse",
            span,
            "differentiate forward over reverse (ab.hvp), or give the loop a fixed number of turns (range)",
        )
    return of_derivatives("pullback", rule=rule, loops=holds_loop(rule.op))


def inner_pullback(op: Op) -> Op:
    """The operation `gradient_of` as the derivative of a masked operation: of its operands, and of the cotangent of the
    number."""
    region = op["region"]
    types = tuple(a.type for a in region.args)
    of = own("masked", region=region, sites=())
    number = tuple(r.type for r in region.results)
    return as_pullback(DerivativeRule(of, types, (None,) * len(types), number, (True,), op["wrt"]), NOWHERE)


def row_rule(rule: DerivativeRule, span: Span) -> Any:
    """The rule on one row, as a closed jaxpr: operands that are no numbers, then cotangents -> cotangents of `wrt`.

    A loop that computed numbers end has none, unless what holds it has a rule of its own (`jax.custom_vjp`)."""
    try:
        return _row_rule(rule, jax_compat.settings())
    except ValueError as error:
        if not jax_compat.holds_loop(rule.op):
            raise
        raise UnsupportedError(
            "a loop that computed numbers end has no derivative in reverse",
            span,
            "give it a fixed number of turns (range), or differentiate by something that it does not read",
        ) from error
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _trace(rule)


@lru_cache(maxsize=4096)
def _row_rule(rule: DerivativeRule, settings: Hashable) -> Any:
    """`settings`: the width of Python's numbers among them, which types do not tell."""
    return _trace(rule)


def _trace(rule: DerivativeRule) -> Any:
    given = [t for t, number in zip(rule.operands, rule.numbers, strict=True) if number is None]
    cotangents = [jax_compat.cotangent_type(t) for t, has in zip(rule.results, rule.cotangents, strict=True) if has]

    def apply(*arrays: Any) -> Any:
        return leaf.pull_back(rule, arrays[: len(given)], arrays[len(given) :])

    closed, _ = jax_compat.trace(apply, *given, *cotangents)
    return closed


def contract(wrt: Sequence[int], equation: Contract, xs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of uniform operands from all rows: the rule of the BATCHED operation, so that the cotangent of a
    matrix is one product. Rows that do not count have zero operands and zero cotangents."""
    of = equation.of
    results = tuple(r.type for r in of.results)
    varying = [isinstance(x, Variable) and x.space is not None for x in of.operands]
    moving = leaf.moved_together(of.op, xs, wrt)

    def batched(*moved: Any) -> list[Any]:
        held = list(xs)
        for k, x in zip(moving, moved, strict=True):
            held[k] = x

        def lane(*rows: Any) -> list[Any]:
            rest = iter(rows)
            outputs = leaf.evaluate(
                of.op, results, *(next(rest) if v else x for v, x in zip(varying, held, strict=True))
            )
            return [y for y, ct in zip(outputs, equation.cotangents, strict=True) if ct is not None]

        outputs: list[Any] = jax.vmap(lane)(*(x for v, x in zip(varying, held, strict=True) if v))
        return outputs

    _, pull = jax.vjp(batched, *(jnp.asarray(xs[k]) for k in moving))
    found = dict(zip(moving, pull([ct for ct in cotangents if ct is not None]), strict=True))
    return [found[k] for k in wrt]


def operands_read(equation: Compute, cotangents: Sequence[bool], wrt: int) -> frozenset[int]:
    """The operands whose values the rule of a uniform operand reads."""
    rule = rule_of(equation, cotangents, (wrt,))
    if is_masked(rule.op):
        return frozenset(range(len(equation.operands)))
    closed = row_rule(rule, equation.span)
    used = jax_compat.inputs_read(closed)
    given = [k for k, number in enumerate(rule.numbers) if number is None]
    return frozenset(k for n, k in enumerate(given) if n in used)


def imported(
    closed: Any,
    operands: Sequence[Atom],
    constants: list[Any],
    emit: Callable[[Sequence[Array], Op, Sequence[Atom]], Sequence[Variable]],
) -> list[Atom]:
    """The results of a jaxpr whose equations `emit` adds to a system; its arrays join `constants`."""
    ids = count()
    env: dict[Operand, Atom] = {}

    def fresh(type: Array) -> Value:
        return Value(next(ids), type)

    def constant(value: Any) -> Literal:
        constants.append(value)
        return Literal(None, jax_compat.type_of(value), len(constants) - 1)

    def add(instruction: Apply) -> None:
        xs = [env[x] if isinstance(x, Value) else x for x in instruction.operands]
        types = [r.type for r in instruction.results]
        env.update(zip(instruction.results, emit(types, instruction.op, xs), strict=True))  # type: ignore[arg-type]

    arguments = [fresh(x.type) for x in operands]  # type: ignore[arg-type]
    env.update(zip(arguments, operands, strict=True))
    found = jax_compat.inline(closed, arguments, fresh, constant, add, NOWHERE)
    return [env[x] if isinstance(x, Value) else x for x in found]


# ---- residuals
#
# Which values of the primal an adjoint is handed, and which it computes anew.
#
# A value that an adjoint reads is *saved* (a residual), or its equation runs again, outside any loop, because all that
# it reads is known by then. What has a row in a buffer anyway costs nothing to save. (Cf. the policies of
# `jax.checkpoint`.)
#
# Under `save_dots` no product runs twice; under `recompute` those outside loops do. Between what does not run again and
# what the adjoint reads, the fewest bytes are saved, and of those the latest: the gates of an LSTM rather than what
# they are computed from, a mask rather than the number that was compared. That is a minimum cut. (Cf. Jain et al.,
# "Checkmate", MLSys 2020, for the general problem.)


Policy = typing.Literal["save_dots", "save_all", "recompute"]
"""The option `residuals`."""


def complete(
    primal: Schedule,
    root: Schedule,
    equations: Iterable[Equation],
    outputs: Iterable[Variable],
    handed: Iterable[Variable],
    policy: Policy,
) -> tuple[list[Equation], tuple[Variable, ...]]:
    """The equations of an adjoint with those that make the values of the primal that it reads or returns; and the
    residuals among these values, in the order of their `Given`s. Nothing makes the cotangents `handed`. The tables are
    those of `root`."""
    own = list(equations)
    made = {*handed, *(r for e in own for r in results(e))}
    primal_values = _Primal(
        {r: e for e in primal.system.equations for r in results(e)},
        frozenset(v for r in primal.recurrences() for group in r.buffers for v in group),
        root,
        {id(e): s for s in root.steps for e in _equations(s)},
        policy,
    )
    wanted = [v for e in own for v in (*reads(e), *primal_values.beside(e))]
    wanted = [v for v in (*wanted, *outputs) if v not in made]
    saved = primal_values.cut(wanted) if policy != "save_all" else frozenset()
    residuals: dict[Variable, None] = {}
    again: dict[int, Equation] = {}
    todo = list(wanted)
    while todo:
        variable = todo.pop()
        equation = primal_values.maker[variable]
        if variable in residuals or id(equation) in again:
            continue
        if variable in saved or primal_values.is_saved(variable):
            residuals[variable] = None
            continue
        again[id(equation)] = equation
        todo += primal_values.read_by(variable)
    order = tuple(sorted(residuals, key=lambda v: v.id))
    given = [Given(v, k) for k, v in enumerate(order)]
    kept_equations = [e for e in primal.system.equations if id(e) in again]
    return [*given, *kept_equations, *own], order


@dataclass(frozen=True)
class _Primal:
    """The values of a primal: their equations, which have a row in a `buffer` anyway, and the policy. The tables are
    those of `root`, whose steps are the values of `steps`."""

    maker: Mapping[Variable, Equation]
    buffered: frozenset[Variable]
    root: Schedule
    steps: Mapping[int, ScheduleStage | Recurrence]
    policy: Policy

    def read_by(self, variable: Variable) -> Sequence[Variable]:
        """What has to be there for the equation of a value to run again."""
        equation = self.maker[variable]
        return (*reads(equation), *self.beside(equation))

    def beside(self, equation: Equation) -> Sequence[Variable]:
        """What lies in the array that an equation reads, as the tables have it."""
        read = equation.fold if isinstance(equation, Selected) else equation
        if not isinstance(read, Gather | Fold | PathSum):
            return ()
        return gather_layout(self.root, read, self.steps[id(read)])[0]

    def is_saved(self, variable: Variable) -> bool:
        """Is a value that is needed saved in any case?"""
        return variable in self.buffered or _saved(variable, self.maker[variable], self.policy)

    def cut(self, wanted: Iterable[Variable]) -> frozenset[Variable]:
        """Of the values that lead from those that are not computed again to those that are `wanted`: the ones to save,
        which take the fewest bytes, and lie as near to what is wanted as they can."""
        graph = nx.DiGraph()
        graph.add_nodes_from(("lost", "wanted"))
        todo = list(dict.fromkeys(wanted))
        graph.add_edges_from((("after", v), "wanted") for v in todo)
        seen = set(todo)
        while todo:
            variable = todo.pop()
            if variable in self.buffered:
                continue  # costs nothing to save
            graph.add_edge(("before", variable), ("after", variable), capacity=_bytes(variable))
            if self.is_saved(variable):
                graph.add_edge("lost", ("before", variable))
                continue
            for x in self.read_by(variable):
                graph.add_edge(("after", x), ("before", variable))
                if x not in seen:
                    seen.add(x)
                    todo.append(x)
        _, (_, there) = nx.minimum_cut(graph, "lost", "wanted")  # NetworkX gives the cut next to the second
        return frozenset(v for v in seen if ("after", v) in there and ("before", v) not in there) - self.buffered


ROWS = 1024
"""So many rows a space is taken to have, where they are weighed against values that all rows share."""


def _bytes(variable: Variable) -> int:
    row: int = math.prod(variable.type.shape) * jax_compat.device_dtype(variable.type).itemsize
    return row if variable.space is None else row * ROWS


def _saved(variable: Variable, equation: Equation, policy: Policy) -> bool:
    """Does an adjoint get this value rather than compute it?"""
    match equation:
        case Shared() | Constant() | HostColumn() | Data():
            return False
        case Given():
            return True
        case Gather() | Spread():
            return policy == "save_all"
        case Compute(op=op):
            if variable.space is None:
                return op.name not in MOVING  # matrices side by side: what multiplies by them packs them anyway
            if policy == "save_all":
                return True
            return policy == "save_dots" and op.name not in CHEAP
        case _:
            return True


def _equations(step: ScheduleStage | Recurrence) -> Iterable[Equation]:
    return step.equations if isinstance(step, ScheduleStage) else (e for t in step.tasks for e in t.equations)
