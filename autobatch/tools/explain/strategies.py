"""How each function and loop of a program is run, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import networkx as nx

from autobatch.backends.xla.machine_rows import gang, refills, why_refilled
from autobatch.backends.xla.masks import packings
from autobatch.compiler.pipeline import CompiledProgram
from autobatch.ir.core import For, Function, If, Literal, Module, Operand, While, walk
from autobatch.ir.masked import limit_of
from autobatch.ir.system import Compute, Equation, PathSum, Variable, space_of
from autobatch.ir.types import Array
from autobatch.passes.simplify.inline import call_graph, recursive_functions
from autobatch.source import Span
from autobatch.tools.explain.facts import Strategy
from autobatch.tools.explain.places import Placed, regions_of

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
        why = f"it calls a recursion, and computed numbers decide how often{how}"
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
            f"computed numbers decide line {branch.line}: it runs in front of that, for all rows; what it fails with "
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
    """What a derivative keeps of such a loop (`ir/counted_loops.py`)."""
    if turns <= keep:
        return "; a gradient keeps what all turns compute"
    length = math.isqrt(turns - 1) + 1
    blocks, rest = divmod(turns, length)
    last = f" and what the last {rest:,} turns compute" if rest else ""
    return f"; a gradient keeps {blocks:,} states{last}, and runs the {length:,} turns behind each state again once"
