"""Which values of the primal an adjoint is handed, and which it computes anew.

A value that an adjoint reads is *saved* (a residual), or its equation runs again, outside any loop, because all that it
reads is known by then. What has a row in a buffer anyway costs nothing to save. (Cf. the policies of `jax.checkpoint`.)

Under `save_dots` no product runs twice; under `recompute` those outside loops do. Between what does not run again and
what the adjoint reads, the fewest bytes are saved, and of those the latest: the gates of an LSTM rather than what they
are computed from, a mask rather than the number that was compared. That is a minimum cut. (Cf. Jain et al.,
"Checkmate", MLSys 2020, for the general problem.)
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from autobatch.ir import jax_compat
from autobatch.ir.elementwise import CHEAP, MOVING
from autobatch.ir.system import (
    Compute,
    Constant,
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
from autobatch.passes.schedule.fission import Recurrence, Schedule, ScheduleStage
from autobatch.passes.schedule.requests import gather_layout

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
