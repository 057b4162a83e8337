"""The facts of one call, put together from its program, its plan and its tables."""

from __future__ import annotations

import linecache
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import networkx as nx
import numpy as np

from autobatch.backends.xla.level_tasks import all_by_kernel
from autobatch.backends.xla.masks import packings
from autobatch.backends.xla.row_operations import gang, refills, why_refilled
from autobatch.backends.xla.rows import choose
from autobatch.call.specialise import SpecialisedProgram
from autobatch.compiler.pipeline import CompiledProgram
from autobatch.data.columns import Ints
from autobatch.data.spec import PlanSpec, RegionSpec, Signature, TableRequest, layout, window_widths
from autobatch.errors import NOWHERE, Failure, SourceError, Span
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Module,
    Operand,
    While,
    regions,
    walk,
)
from autobatch.ir.core import Region as Block
from autobatch.ir.regions import limit_of
from autobatch.ir.system import (
    Atom,
    Compute,
    Equation,
    Fold,
    Gather,
    PathSum,
    Space,
    Variable,
    reads,
    results,
    space_of,
)
from autobatch.passes import costs, fission
from autobatch.passes.equations import CONTRACTIONS, row_product
from autobatch.passes.fission import Recurrence, Schedule, ScheduleStage
from autobatch.passes.simplify import call_graph, recursive_functions
from autobatch.planning.plan import DataPlan, of_word
from autobatch.tools.facts import (
    PLACES,
    BackendFacts,
    Bytes,
    CallFactsShown,
    FailedExample,
    LevelFacts,
    LinePlace,
    Multiplier,
    ProductFacts,
    RecurrenceFacts,
    Refusal,
    RowFacts,
    SourceLine,
    SourceText,
    Strategy,
    TaskFacts,
    Where,
    WindowFacts,
    WrittenLines,
    around,
    outermost,
    written,
)

# ---- places
#
# Where the operations of each line run: from the spans of equations, and of what the host computes.
#
#     stage before the levels    h = tanh(x @ W)       frame before
#     task of recurrence r0      h = tanh(kids @ U)    level r0
#     structural slice           if t.left is None:    host
#
# A frame operation is *after* a recurrence when it depends on one, whatever the order of the schedule is.


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


# ---- levels
#
# The level loops of one call, read from the very tables that its executable gets: rows, levels, windows.


class BoundTables:
    """The integers of a call, by name."""

    def __init__(self, request: TableRequest, signature: Signature, integers: Any) -> None:
        self.request, self.signature = request, signature
        self.places, _ = layout(request, signature)
        self.integers: Ints = np.asarray(integers).astype(np.int64)

    def table(self, name: str) -> Ints:
        start, length = self.places[name]
        return self.integers[start : start + length]

    def counts(self) -> dict[int, int]:
        """The rows of each space that are computed."""
        return dict(enumerate(self.table("counts").tolist()))


def recurrences(schedule: Schedule, bound: BoundTables, native: bool) -> tuple[RecurrenceFacts, ...]:
    """What each level loop does. `native`: machine code runs them all."""
    return tuple(_recurrence(schedule, r, bound, native) for r in schedule.recurrences())


def _recurrence(
    schedule: Schedule, recurrence: fission.Recurrence, bound: BoundTables, native: bool
) -> RecurrenceFacts:
    n = recurrence.index
    deepest = int(bound.table("levels")[n])
    rows, computed = np.zeros(deepest, np.int64), np.zeros(deepest, np.int64)
    tasks: list[TaskFacts] = []
    for task in recurrence.tasks:
        name = f"loop{n}.{task.order.index}"
        widths = window_widths(bound.request, bound.signature, task.order.index)
        mine = np.diff(bound.table(f"{name}.end")[:deepest], prepend=0)
        windows = {} if native else _windows(bound, name, widths, deepest)
        done = mine if native else sum((w * count for w, count in windows.items()), np.zeros(deepest, np.int64))
        rows, computed = rows + mine, computed + done
        used = tuple(WindowFacts(w, int(count.sum())) for w, count in windows.items() if count.any())
        tasks.append(TaskFacts(str(task.order), int(mine.sum()), int(done.sum()), len(task.equations), used))
    total, all_ = int(rows.sum()), int(computed.sum())
    levels = tuple(LevelFacts(r, c) for r, c in zip(rows.tolist(), computed.tolist(), strict=True))
    size = sum(costs.size(v, bound.signature.capacity) for v in costs.carried(schedule, recurrence))
    return RecurrenceFacts(n, total, all_, total / all_ if all_ else None, tuple(tasks), levels, size, native)


def _windows(bound: BoundTables, loop: str, widths: tuple[int, ...], levels: int) -> dict[int, Ints]:
    """By width, how many windows each level has."""
    firsts = bound.table(f"{loop}.firsts")[: levels + 1]
    _, kind = of_word(bound.table(f"{loop}.windows")[: firsts[-1]], len(widths))
    level = np.arange(levels).repeat(np.diff(firsts))
    return {w: np.bincount(level[kind == k], minlength=levels) for k, w in enumerate(widths)}


# ---- products
#
# Matrix products and other contractions: where they run, and on what shapes.


def products(found: Iterable[Placed], option: str, widths: Sequence[int]) -> tuple[ProductFacts, ...]:
    """Every contraction of a schedule, in the order in which they run. `option`: what may compute them."""
    return tuple(
        _product(p, p.equation, name, _multipliers(p, option, widths))
        for p in found
        if isinstance(p.equation, Compute)
        for name in _contractions(p.equation)
    )


def _contractions(equation: Compute) -> list[str]:
    """The contraction that an operation is, or those that it holds: `scan(dot_general)`."""
    op = equation.op
    if op.name in CONTRACTIONS:
        return [op.name]
    return [f"{op.name}({inner})" for inner in jax_compat.held_primitives(op) if inner in CONTRACTIONS]


def _multipliers(p: Placed, option: str, widths: Sequence[int]) -> tuple[Multiplier, ...]:
    """What computes a product at each width; products of stages have no windows, and are not told apart."""
    product = row_product(p.equation)
    if product is None or p.place.kind != "level" or option == "xla":
        return ()
    chosen = [(width, choose(option, product, width)) for width in widths]
    return tuple(Multiplier(w, "xla" if c.kernel is None else "native", c.why) for w, c in chosen)


def _product(p: Placed, equation: Compute, name: str, multipliers: tuple[Multiplier, ...]) -> ProductFacts:
    xs = equation.operands if equation.op.name in CONTRACTIONS else ()
    left, right = (_operand(xs, k) for k in (0, 1))
    result = equation.results[0].type.shape
    span = equation.span
    shapes = (*left, *right, result)
    return ProductFacts(name, p.place, *shapes, p.place.rows, p.task, span.file, span.line, multipliers)


def _operand(xs: tuple[Atom, ...], k: int) -> tuple[tuple[int, ...], bool]:
    """The shape of an operand in one row, and whether it has its own value in each."""
    if k >= len(xs):
        return (), False
    x = xs[k]
    assert isinstance(x.type, Array)
    return x.type.shape, isinstance(x, Variable) and x.space is not None


# ---- strategies
#
# How each function and loop of a program is run, and why.


TURNS = re.compile(r"(.*)\.(for|while|map)\d+")
"""Names of loops that became functions, and of the functions that they stand in."""


def strategies(program: CompiledProgram, equations: Sequence[Equation], loops: str) -> tuple[Strategy, ...]:
    """Functions in the order of the program, each with its loops; then sums that became one operation. `loops`: the
    option of that name."""
    lowered, spec = program.lowered.module, program.spec
    on_device = {space.index for e in equations if (space := space_of(e)) is not None}
    left = {f.name: f for f in spec.module.functions}
    graph = call_graph(spec.module)
    recursive = recursive_functions(lowered)
    entry = spec.module.functions[0].name
    found: list[Strategy] = []

    def computes(name: str) -> bool:
        return any(r.space.index in on_device for r in regions_of(spec.regions[name]))

    stacked = {
        name: (e.op["program"].forced, _alone(e, loops))
        for e in equations
        if isinstance(e, Compute) and e.op.name == "blocks"
        for name in e.op["program"].functions
    }
    users = {f.name for f in lowered.functions}
    outside = {span: how for name, (span, how) in stacked.items() if name not in users}
    for place, how in sorted(outside.items(), key=lambda each: each[0].line):
        why = f"it calls a recursion, a data-dependent number of times{how}"
        found.append(_strategy(f"loop or branch, line {place.line}", "stack", why, place))
    for function in lowered.functions:
        name = function.name
        if name in stacked:
            forced, how = stacked[name]
            why = f"line {forced.line} decides by computed numbers which calls there are{how}"
            found.append(_strategy(name, "stack", why, function.span))
        elif name not in left and (copies := [n for n in left if n.rstrip("'") == f"{name}.total"]):
            strategy = "frames" if any(map(computes, copies)) else "host"
            found.append(_strategy(name, strategy, "it runs ahead of a branch that it is called in", function.span))
        elif name not in left:
            why = "it does not reach itself: its operations stand in its callers"
            found.append(_strategy(name, "inlined", why, function.span))
        elif name in recursive:
            strategy = "frames" if computes(name) else "host"
            found.append(_strategy(name, strategy, _circle(graph, name), function.span))
        elif name == entry:
            found.append(_strategy(name, "example", "it is called once for each example", function.span))
        found.extend(_one_operation(function, spec.module, program.options.counted_turns))
        for loop in left.values():
            if _owner(loop.name, left, lowered) == name and loop.name != name:
                found.append(_turns(loop, computes(loop.name)))
    for equation in equations:
        if isinstance(equation, PathSum):
            why = "results of calls are only added up: the host knows which, so there are no levels"
            found.append(_strategy(f"sum, line {equation.span.line}", "one operation", why, equation.span))
    return tuple(found)


def _alone(equation: Compute, loops: str) -> str:
    """How a program of blocks runs, where that is machine code."""
    width = gang(equation.op, _varying(equation), loops)
    if width is None:
        return ""
    return "; machine code, row after row" if width == 1 else f"; machine code, gangs of {width} rows"


def _varying(equation: Compute) -> list[bool]:
    return [isinstance(x, Variable) and x.space is not None for x in equation.operands]


def masked(found: Iterable[Placed], rows_of: Callable[[Placed], int], loops: str) -> Iterator[Strategy]:
    """Loops that computed numbers end, and arms that few rows may take: whether machine code runs them, or rows are
    packed. `rows_of`: how many rows the operation is compiled for; `loops`: the option of that name."""
    for p in found:
        equation = p.equation
        if not isinstance(equation, Compute) or space_of(equation) is None:
            continue
        if equation.op.name == "gradient_of":
            yield _inner_gradient(equation, loops)
        if equation.op.name != "masked":
            continue
        varying = _varying(equation)
        if (width := gang(equation.op, varying, loops)) is not None:
            together = "row after row"
            if width > 1:
                until = (
                    "a row that is done makes room for the next"
                    if refills(equation.op, varying)
                    else "each until its last one is done"
                )
                until = f"{until} ({why_refilled(equation.op, varying)})"
                together = f"gangs of {width} rows, {until}"
            for control in equation.op["region"].body:
                if isinstance(control, While):
                    why = f"machine code: {together}{_kept(control)}"
                    yield _strategy(f"loop, line {control.span.line}", "masked", why, control.span)
            continue
        for control, widths in packings(equation.op, varying, rows_of(p)):
            place = f"line {control.span.line}"
            if isinstance(control, If):
                why = f"an arm that at most {widths[1]:,} of {widths[0]:,} rows take is computed for so many"
                yield _strategy(f"branch, {place}", "masked", why, control.span)
                continue
            why = "all rows take the turns of the longest: they are too few, or do too little, to pack those that go on"
            if len(widths) > 1:
                steps = ", ".join(f"{w:,}" for w in widths)
                why = f"rows that go on are packed together when few are left: {steps} at a time"
            yield _strategy(f"loop, {place}", "masked", why + _kept(control), control.span)


def ahead(in_front: Mapping[Span, Span]) -> Iterator[Strategy]:
    """Loops and calls that structure decides, behind tests of computed numbers."""
    for span, branch in sorted(in_front.items(), key=lambda each: each[0].line):
        why = (
            f"line {branch.line} is data-dependent: it runs in front of that, for all rows; what it fails with "
            "fails those that come here"
        )
        yield _strategy(f"line {span.line}", "ahead", why, span)


def _kept(loop: While) -> str:
    """What a derivative keeps of a loop that computed numbers end."""
    limit = limit_of(loop)
    if limit is None or not any(map(_is_float, loop.init)):
        return ""
    turns, states, levels = limit.turns.most, limit.turns.states, limit.turns.levels
    if levels == 1:
        return f"; a gradient keeps a state of each row for each of {turns:,} turns, and runs none again"
    again = "once" if levels == 2 else f"{levels - 1} times"
    return (
        f"; a gradient keeps {states * levels:,} states of each row ({levels} times {states:,}, for up to {turns:,} "
        f"turns), and runs a turn again {again} at most"
    )


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and x.type.dtype.startswith("float")


def _inner_gradient(equation: Compute, loops: str) -> Strategy:
    """The derivative of control on numbers, taken inside of the function."""
    width = gang(equation.op, _varying(equation), loops)
    why = "all rows at once, under a mask"
    if width is not None:
        why = f"machine code: gangs of {width} rows" if width > 1 else "machine code: row after row"
    return _strategy(f"derivative, line {equation.span.line}", "masked", why, equation.span)


def _strategy(name: str, strategy: str, why: str, span: Span) -> Strategy:
    return Strategy(name, strategy, why, span.file, span.line)


def _owner(name: str, left: Collection[str], lowered: Module) -> str:
    """The function of the user that a loop, or a loop inside a loop, stands in."""
    users = {f.name for f in lowered.functions}
    while name not in users and (match := TURNS.fullmatch(name)):
        name = match[1]
    return name


def _circle(graph: nx.DiGraph[str], name: str) -> str:
    if graph.has_edge(name, name):
        return "it calls itself"
    circle = graph.subgraph(next(c for c in nx.strongly_connected_components(graph) if name in c))
    others = [n for n in nx.shortest_path(circle, next(iter(circle.successors(name))), name) if n != name]
    users = [n for n in others if not TURNS.fullmatch(n)]
    return f"it calls itself through {', '.join(users)}" if users else "it calls itself in a loop"


def _turns(loop: Function, computes: bool) -> Strategy:
    kind = TURNS.fullmatch(loop.name)
    assert kind is not None
    what = "comprehension" if kind[2] == "map" else f"{kind[2]} loop"
    place = f"{what}, line {loop.span.line}"
    if not computes:
        return _strategy(place, "host", "its turns hand numbers on, and compute none", loop.span)
    each = "element" if kind[2] == "map" else "turn"
    return _strategy(place, "frames", f"a row for each {each}: examples differ in how many there are", loop.span)


def _one_operation(function: Function, module: Module, keep: int) -> Iterator[Strategy]:
    """Loops that every activation runs equally often: one scan each. `keep`: the turns up to which a derivative keeps
    what all of them compute."""
    turns = {f.span for f in module.functions}
    for instruction in walk(function.region):
        if isinstance(instruction, For) and isinstance(instruction.count, Literal) and instruction.span not in turns:
            count = int(str(instruction.count.value))
            why = f"all run it {count} times, over numbers alone: one scan"
            if any(map(_is_float, instruction.init)):
                why += _counted(count, keep)
            yield _strategy(f"for loop, line {instruction.span.line}", "one operation", why, instruction.span)


def _counted(turns: int, keep: int) -> str:
    """What a derivative keeps of such a loop (`ir/interpret.py`)."""
    if turns <= keep:
        return "; a gradient keeps what all turns compute"
    length = math.isqrt(turns - 1) + 1
    blocks, rest = divmod(turns, length)
    last = f" and what the last {rest:,} turns compute" if rest else ""
    return f"; a gradient keeps {blocks:,} states{last}, and runs the {length:,} turns behind each state again once"


INTEGERS = "integers"
"""The table that holds all integers of a call."""


def of_call(
    name: str,
    backend: BackendFacts,
    program: SpecialisedProgram,
    plan: DataPlan,
    tables: Mapping[str, Any],
    signature: Signature,
) -> CallFactsShown:
    """The facts of a call that is ready to run."""
    compiled = program.compiled
    schedule, spec, lowered = compiled.schedule, compiled.spec, compiled.lowered
    bound = BoundTables(plan.request, signature, tables[INTEGERS])
    counts = bound.counts()
    found = placed(schedule, spec, counts)
    lines = Lines(found, spec, lowered.module)
    options = compiled.options
    native = options.backend != "interpret" and all_by_kernel(schedule, options.loops, options.products, options.widths)
    loops = recurrences(schedule, bound, native)
    used = {space.index for p in found if (space := space_of(p.equation)) is not None}
    texts = outermost([*map(written, lowered.sources), *(around(span) for span, _ in lowered.traced)])

    def rows_of(p: Placed) -> int:
        space = space_of(p.equation)
        assert space is not None
        return plan.request.widths[0] if p.place.recurrence is not None and p.task else signature.capacity[space.index]

    by = options.loops if backend.taken == "xla" else "xla"
    packs = masked(found, rows_of, by) if backend.taken == "xla" else ()
    return CallFactsShown(
        function=name,
        examples=plan.count,
        backend=backend,
        refusal=None,
        texts=tuple(_text(w, lines, lowered.reached, lowered.traced) for w in texts),
        failed=tuple(_failed(f) for f in plan.failures),
        strategies=(*strategies(compiled, [p.equation for p in found], by), *packs, *ahead(compiled.in_front)),
        rows=_rows(program, plan, counts, signature, used),
        recurrences=loops,
        products=products(found, "xla" if native else options.products, plan.request.widths),
        widths=plan.request.widths,
        bytes=_bytes(program, plan.request, tables, loops),
    )


def of_machine_code(name: str, examples: int, backend: BackendFacts, program: SpecialisedProgram) -> CallFactsShown:
    """The facts of machine code for which there is no program of XLA: the text alone, since nothing has rows."""
    lowered = program.compiled.lowered
    texts = outermost([*map(written, lowered.sources), *(around(span) for span, _ in lowered.traced)])
    return CallFactsShown(name, examples, backend, None, tuple(SourceText(t.name, t.file, _unmarked(t)) for t in texts))


def _unmarked(text: WrittenLines) -> tuple[SourceLine, ...]:
    return tuple(SourceLine(number, line) for number, line in text.lines())


def of_refusal(
    name: str, function: Callable[..., Any], examples: int, backend: BackendFacts, error: SourceError
) -> CallFactsShown:
    """The facts of a function that is not compiled: its text, with the line that is refused."""
    places = [(error.message, error.span), *error.also]
    known = [(note, span) for note, span in places if span != NOWHERE]
    notes: dict[Where, tuple[list[str], Span]] = {}
    for note, span in known:
        notes.setdefault((span.file, span.line), ([], span))[0].append(note)
    if error.cure and known:
        notes[error.span.file, error.span.line][0].append(error.cure)
    texts = outermost([written(function), *(around(span) for _, span in known)])
    span = error.span
    refusal = Refusal(type(error).__name__, error.message, error.cure, span.file, span.line, span.column)
    return CallFactsShown(name, examples, backend, refusal, tuple(_refused(w, notes) for w in texts))


def _refused(text: WrittenLines, notes: Mapping[Where, tuple[list[str], Span]]) -> SourceText:
    made = []
    for number, line in text.lines():
        words, span = notes.get((text.file, number), ((), None))
        if span is None:
            made.append(SourceLine(number, line))
            continue
        place = LinePlace("refused")
        last = span.end_column if span.end_line == number else text.indent + len(line) + 1
        first = max(1, span.column - text.indent)
        columns = (first, max(first + 1, last - text.indent))
        made.append(SourceLine(number, line, place, (place,), tuple(words), columns))
    return SourceText(text.name, text.file, tuple(made))


def _text(
    text: WrittenLines, lines: Lines, reached: frozenset[Where], traced: Sequence[tuple[Span, Span]]
) -> SourceText:
    """The margin: the places of each line; of a statement, on its first line, those of its other lines too."""
    found = {number: lines.at((text.file, number)) for number, _ in text.lines()}
    for first, last in text.statements:
        here = (text.file, first)
        if not found.get(first):
            found[first] = next((found[n] for n in range(first + 1, last + 1) if found.get(n)), ())
        if not found[first] and here not in reached:
            handed = [at for span, at in traced if span.file == text.file and span.line <= first <= span.end_line]
            found[first] = next((at for s in handed if (at := lines.at((s.file, s.line)))), ())
        if not found[first]:
            found[first] = (LinePlace("nothing" if here in reached else "not reached"),)
    made = [SourceLine(n, line, found[n][0] if found[n] else None, found[n]) for n, line in text.lines()]
    return SourceText(text.name, text.file, tuple(made))


def _failed(failure: Failure) -> FailedExample:
    return FailedExample(failure.index, failure.kind, failure.message, failure.span.file, failure.span.line)


def _rows(
    program: SpecialisedProgram, plan: DataPlan, counts: Mapping[int, int], signature: Signature, used: set[int]
) -> tuple[RowFacts, ...]:
    """The kinds of rows that some equation runs over."""
    made = []
    for space in program.compiled.schedule.system.spaces:
        if space.index in used:
            base = space.base if space.kind == "distinct" else space.index
            found = plan.rows(base) if base in plan.starts else counts[space.index]
            room = signature.capacity[space.index]
            name = space.name if space.kind != "distinct" else _distinct(space, program)
            made.append(RowFacts(name, space.kind, found, counts[space.index], room))
    return tuple(made)


def _distinct(space: Space, program: SpecialisedProgram) -> str:
    """The name of rows that are distinct in some columns: by what is written there."""
    compiled = program.compiled
    base = next(s for s in compiled.schedule.system.spaces if s.index == space.base)
    places = {
        str(r.id): instruction.span
        for function in compiled.spec.module.functions
        for instruction in walk(function.region)
        for r in instruction.results
    }
    keys = [key.rpartition(":")[2] for key in space.keys]
    return f"{base.name} by {', '.join(_excerpt(places[k]) if k in places else k for k in keys)}"


def _excerpt(span: Span) -> str:
    """What is written at a place of one line."""
    text = linecache.getline(span.file, span.line).rstrip()
    last = span.end_column if span.end_line == span.line else len(text) + 1
    return text[span.column - 1 : last - 1] or f"line {span.line}"


def _bytes(
    program: SpecialisedProgram, request: TableRequest, tables: Mapping[str, Any], loops: Sequence[RecurrenceFacts]
) -> Bytes:
    columns = {name for name, _ in request.data}
    held = {name: _item_size(t.dtype) * int(np.prod(t.shape)) for name, t in tables.items()}
    shared = sum(_size(v.type) for v in program.compiled.lowered.module.shared if isinstance(v.type, Array))
    return Bytes(
        tables=held[INTEGERS],
        columns=sum(n for name, n in held.items() if name in columns),
        shared=shared,
        results=sum(n for name, n in held.items() if name not in columns and name != INTEGERS),
        buffers=sum(r.buffer_bytes for r in loops),
    )


def _item_size(dtype: Any) -> int:
    """The bytes of a number on the device: the host holds floats of Python in 64 bits."""
    return int(jax.dtypes.canonicalize_dtype(dtype).itemsize)


def _size(type: Array) -> int:
    return int(jax_compat.device_dtype(type).itemsize) * int(np.prod(type.shape))
