"""Where the operations of each line run: from the spans of equations, and of what the host computes.

    stage before the levels    h = tanh(x @ W)       frame before
    task of recurrence r0      h = tanh(kids @ U)    level r0
    structural slice           if t.left is None:    host

A frame operation is *after* a recurrence when it depends on one, whatever the order of the schedule is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autobatch.data.spec import PlanSpec, RegionSpec
from autobatch.ir.core import Call, For, Function, Instruction, Module, regions, walk
from autobatch.ir.core import Region as Block
from autobatch.ir.system import Compute, Equation, Fold, Gather, PathSum, Space, Variable, reads, results, space_of
from autobatch.passes.schedule.fission import Recurrence, Schedule, ScheduleStage
from autobatch.passes.simplify.inline import recursive_functions
from autobatch.source import NOWHERE, Span
from autobatch.tools.explain.facts import PLACES, LinePlace
from autobatch.tools.explain.written import Where

ORDER = {kind: rank for rank, kind in enumerate(PLACES)}


@dataclass(frozen=True)
class Placed:
    """An equation and where it runs. `task`: the name of the task in a level loop."""

    equation: Equation
    place: LinePlace
    task: str | None = None

    @property
    def span(self) -> Span:
        match self.equation:
            case Compute(span=span) | Gather(span=span) | Fold(span=span) | PathSum(span=span):
                return span
            case _:
                return NOWHERE


def placed(schedule: Schedule, spec: PlanSpec, rows: Mapping[int, int]) -> list[Placed]:
    """Every equation of a schedule with its place; `rows` by space."""
    examples = spaces_of_examples(spec)
    has_levels = bool(schedule.recurrences())
    last: dict[Variable, int] = {}
    found: list[Placed] = []

    def whole(equation: Equation, space: Space | None, behind: int) -> LinePlace:
        if space is None:
            return LinePlace("once", operations=1)
        kind = "example" if space.index in examples else "frame"
        when = ("before" if behind < 0 else "after") if has_levels else None
        return LinePlace(kind, when, behind if behind >= 0 else None, 1, rows.get(space.index, 0))

    for step in schedule.steps:
        match step:
            case ScheduleStage(equations=equations):
                for equation in equations:
                    behind = max((last.get(v, -1) for v in reads(equation)), default=-1)
                    last.update(dict.fromkeys(results(equation), behind))
                    found.append(Placed(equation, whole(equation, space_of(equation), behind)))
            case Recurrence(index=index, tasks=tasks):
                for task in tasks:
                    for equation in task.equations:
                        last.update(dict.fromkeys(results(equation), index))
                        place = LinePlace("level", None, index, 1, rows.get(task.order.space.index, 0))
                        found.append(Placed(equation, place, str(task.order)))
    return found


def spaces_of_examples(spec: PlanSpec) -> set[int]:
    """The spaces with at most one row for each example: those of an entry that does not reach itself."""
    found = {s.index for s in spec.spaces if s.kind == "example"}
    entry = spec.module.functions[0].name
    if entry not in recursive_functions(spec.module):
        found.update(r.space.index for r in regions_of(spec.regions[entry]))
    return found


def regions_of(region: RegionSpec) -> Iterator[RegionSpec]:
    """A region and all inside it."""
    yield region
    for pair in region.arms.values():
        for arm in pair:
            yield from regions_of(arm)


def masked_spans(equation: Equation) -> list[Span]:
    """Where the operations inside a masked one are written."""
    if not isinstance(equation, Compute) or equation.op.name not in ("masked", "gradient_of"):
        return []
    return [equation.span, *(i.span for i in walk(equation.op["region"]))]


class Lines:
    """Places by line. What optimisation has dissolved takes the place of what it became."""

    def __init__(self, found: Sequence[Placed], spec: PlanSpec, lowered: Module) -> None:
        self.places: dict[Where, list[LinePlace]] = defaultdict(list)
        for p in found:
            inside = masked_spans(p.equation)
            for span in inside:
                self.add(span, [replace(p.place, kind="masked")])
            if not inside:
                self.add(p.span, [p.place])
            if isinstance(p.equation, Compute) and p.equation.op.name == "blocks":
                for span in p.equation.op["program"].spans():
                    self.add(span, [LinePlace("stack", operations=1, rows=p.place.rows)])
        for function in spec.slice.functions:
            for instruction in walk(function.region):
                self.add(instruction.span, [LinePlace("host", operations=1)])
        self.functions = {f.name: f for f in lowered.functions}
        self.left = {f.name for f in spec.module.functions}
        self.turns = {f.span for f in spec.module.functions}
        self.texts: dict[str, set[Where]] = {}
        for function in lowered.functions:
            self.fused(function.region, None)
        own = {line: tuple(places) for line, places in self.places.items()}
        for function in lowered.functions:
            self.inlined(function.region, own)

    def add(self, span: Span, places: Sequence[LinePlace]) -> None:
        if span.line:
            self.places[span.file, span.line].extend(places)

    def at(self, line: Where) -> tuple[LinePlace, ...]:
        """What runs where of a line, the most expensive place first; operations of one place are counted together."""
        joined: dict[tuple[str, str | None, int | None], LinePlace] = {}
        for p in self.places.get(line, ()):
            key = (p.kind, p.when, p.recurrence)
            old = joined.get(key, replace(p, operations=0))
            rows = None if p.rows is None else max(p.rows, old.rows or 0)
            joined[key] = replace(old, operations=old.operations + p.operations, rows=rows)
        return tuple(sorted(joined.values(), key=_cost))

    def inlined(self, region: Block, own: Mapping[Where, Sequence[LinePlace]]) -> None:
        """Calls of functions that were inlined: what the lines of those became."""
        for instruction in walk(region):
            if isinstance(instruction, Call) and instruction.callee not in self.left:
                lines = sorted(self.text(self.functions[instruction.callee]))
                self.add(instruction.span, [p for line in lines for p in own.get(line, ())])

    def text(self, function: Function) -> set[Where]:
        """The lines of a function's operations, and of those that it calls."""
        if function.name not in self.texts:
            self.texts[function.name] = found = set[Where]()
            for instruction in walk(function.region):
                found.add((instruction.span.file, instruction.span.line))
                if isinstance(instruction, Call) and instruction.callee not in self.left:
                    found |= self.text(self.functions[instruction.callee])
        return self.texts[function.name]

    def fused(self, region: Block, loop: Instruction | None) -> None:
        """Lines inside a loop that became one operation, which stands where the loop does; those of functions that were
        inlined there too."""
        for instruction in region.body:
            lines = {(instruction.span.file, instruction.span.line)}
            if isinstance(instruction, Call) and instruction.callee not in self.left:
                lines |= self.text(self.functions[instruction.callee])
            if loop is not None:
                whole = self.places.get((loop.span.file, loop.span.line), ())
                self.places.update((line, list(whole)) for line in lines if line not in self.places)
            for inner in regions(instruction):
                whole_loop = isinstance(instruction, For) and instruction.span not in self.turns
                self.fused(inner, instruction if whole_loop else loop)


def _cost(place: LinePlace) -> tuple[int, int, int]:
    """Loops first, then by rows."""
    return ORDER[place.kind], -(place.rows or 0), -1 if place.recurrence is None else place.recurrence
