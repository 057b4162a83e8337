"""Recursion whose calls depend on computed numbers: each call of it from outside becomes one operation.

    func @f(%x):                                   func @f(%x):
      %c = gt(%x, %threshold)                        %r, %status = blocks[program=...](%x, %threshold)
      if %c then: call @f(mul(%x, 0.5)) ...   ->     return %r

Such control is found when loops are functions and the facts are known (`structure.py`); it is taken out of the
module as it was before. What the program does is in `ir/blocks.py`; it holds the strongly connected component of the
function, and whatever that calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Map,
    Module,
    Region,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.ops import of_control
from autobatch.ir.rewrite import Fresh, calls, copy_region, free_values, with_regions
from autobatch.ir.types import Array
from autobatch.passes.analysis.structure import StructureFacts
from autobatch.passes.control.blocks import LoweredBlocks, to_blocks
from autobatch.passes.simplify.inline import call_graph, recursive_functions
from autobatch.source import Span

# ---- outline
#
# Loops and branches around calls, which computed numbers decide, become functions, so that a stack can run them.
#
# %x = while (%a) test: ... do: ... call @gcd(%a, %b)        %x = call @f.loop0(%a, %b)
#                                                      ->    func @f.loop0(%a, %b): %x = while (%a) ...; return %x


def outline_calls(
    module: Module, places: Mapping[str, frozenset[Span]], numeric: frozenset[str]
) -> tuple[Module, dict[str, Span]]:
    """The module in which control at such places of functions, around calls, is a function where it takes and gives
    numbers alone; and the new functions, with the places. `numeric`: functions of which that is known."""
    outliner = _Outliner(module, numeric)
    functions = [
        replace(f, region=outliner.region(f.region, f.name, places[f.name])) if f.name in places else f
        for f in module.functions
    ]
    return replace(module, functions=(*functions, *outliner.made)), {f.name: f.span for f in outliner.made}


class _Outliner:
    def __init__(self, module: Module, numeric: frozenset[str]) -> None:
        self.fresh, self.shared, self.numeric = Fresh(module), frozenset(module.shared), numeric
        self.names = {f.name for f in module.functions}
        self.made: list[Function] = []

    def region(self, region: Region, owner: str, places: frozenset[Span]) -> Region:
        return replace(region, body=tuple(self.instruction(i, owner, places) for i in region.body))

    def instruction(self, instruction: Instruction, owner: str, places: frozenset[Span]) -> Instruction:
        if not isinstance(instruction, If | For | While) or instruction.span not in places:
            return with_regions(instruction, lambda r: self.region(r, owner, places))
        whole = Region((), (instruction,), instruction.results)
        called = {c.callee for r in regions(instruction) for c in calls(r)}
        captured = free_values(whole, self.shared)
        if not called or not called <= self.numeric or not _are_numbers((*captured, *instruction.results)):
            return with_regions(instruction, lambda r: self.region(r, owner, places))
        name = self.name(owner)
        body = copy_region(replace(whole, args=captured), {}, self.fresh)
        self.made.append(Function(name, body, instruction.span))
        return Call(instruction.results, name, captured, instruction.span)

    def name(self, owner: str) -> str:
        n = 0
        while f"{owner}.loop{n}" in self.names:
            n += 1
        self.names.add(f"{owner}.loop{n}")
        return f"{owner}.loop{n}"


def _are_numbers(values: tuple[object, ...]) -> bool:
    return all(isinstance(getattr(v, "type", None), Array) for v in values)


TURNS = re.compile(r"(.*)\.(for|while|map)\d+")
"""Names of loops that became functions, and of the functions that they stand in."""


@dataclass(frozen=True)
class Limits:
    """What an operation may use for each example: entries of the stack, and blocks."""

    depth: int
    steps: int


class Repeats(Exception):
    """Functions that recurse on the device, and whose decorator `functools.cache` was left out; by their places."""

    def __init__(self, places: frozenset[Span]) -> None:
        self.places = places


def use_stack(
    module: Module,
    functions: Module,
    facts: StructureFacts,
    limits: Limits,
    cached: frozenset[Span] = frozenset(),
    alone: bool = False,
) -> Module | None:
    """The module with a program of blocks for each recursion whose calls depend on computed numbers, and for each loop
    and branch that computed numbers decide around calls; None where there is nothing that a program of blocks can run.
    `functions` is the module with its loops as functions, and `facts` are about it. Raises `Repeats` where functions
    among these run as often as they are called: `cached`, their places. `alone`: no host lays rows out for any
    recursion."""
    controls = [(_owner(name, module), i) for name, i in _numeric_control(functions, facts)]
    graph, recursive = call_graph(module), recursive_functions(module)
    numeric = _numeric_functions(module, graph)
    wanted = _recursions(graph, recursive & numeric, controls)
    if alone:
        wanted |= {f: module.function(f).span for f in sorted(recursive & numeric) if f not in wanted}
    around: dict[str, set[Span]] = defaultdict(set)
    for owner, control in controls:
        if owner not in wanted and any(_calls_of(control)):
            around[owner].add(control.span)
    whole, outlined = outline_calls(module, {f: frozenset(places) for f, places in around.items()}, numeric)
    if not wanted and not outlined:
        return None
    running = {*wanted, *outlined}.union(*(nx.descendants(call_graph(whole), f) for f in (*wanted, *outlined)))
    repeated = cached.intersection(f.span for f in whole.functions if f.name in running & recursive)
    if repeated:
        raise Repeats(repeated)
    return _Replacing(whole, wanted | outlined, limits).run()


def _recursions(
    graph: nx.DiGraph[str], recursive: frozenset[str], controls: Sequence[tuple[str, Instruction]]
) -> dict[str, Span]:
    """The functions that need a stack, and the control that says so: what stands in a circle with such control."""
    component = {n: c for c in nx.strongly_connected_components(graph) for n in c}
    found: dict[str, Span] = {}
    for owner, control in controls:
        if owner in recursive and owner not in found:
            found.update(dict.fromkeys(sorted(component[owner]), control.span))
    return found


def _numeric_functions(module: Module, graph: nx.DiGraph[str]) -> frozenset[str]:
    """The functions that take and return numbers and arrays alone, and so do all that they call."""
    others = {
        f.name
        for f in module.functions
        if not all(isinstance(x.type, Array) for x in (*f.region.args, *f.region.results))
    }
    above = {caller for name in others for caller in nx.ancestors(graph, name)}
    return frozenset(f.name for f in module.functions) - others - above


def _numeric_control(functions: Module, facts: StructureFacts) -> Iterator[tuple[str, Instruction]]:
    """Control that the host cannot decide, and the function that it stands in."""
    for function in functions.functions:
        for instruction in walk(function.region):
            match instruction:
                case If(condition=x) | Map(count=x):
                    if not facts.is_host(x):
                        yield function.name, instruction
                case Apply(op=op, operands=xs) if op.name == "check":
                    if not all(map(facts.is_host, xs)):
                        yield function.name, instruction
                case _:
                    pass


def _calls_of(control: Instruction) -> Iterable[Call]:
    whole = Region((), (control,), ())
    return calls(whole)


def _owner(name: str, module: Module) -> str:
    """The function before loops became functions that a function stands in."""
    names = {f.name for f in module.functions}
    while name not in names and (match := TURNS.fullmatch(name)):
        name = match[1]
    return name


class _Replacing:
    """The rewriting of calls into a set of functions."""

    def __init__(self, module: Module, wanted: dict[str, Span], limits: Limits) -> None:
        self.module, self.wanted, self.limits = module, wanted, limits
        self.fresh = Fresh(module)
        self.made: dict[str, LoweredBlocks] = {}

    def run(self) -> Module:
        kept = [f for f in self.module.functions if f.name not in self.wanted]
        entry = self.module.functions[0]
        if entry.name in self.wanted:
            results = self.fresh.like([Value(-1, r.type) for r in entry.region.results])
            call = Call(results, entry.name, entry.region.args, entry.span)
            kept.insert(0, replace(entry, region=Region(entry.region.args, (call,), results)))
        functions = [replace(f, region=self.region(f.region)) for f in kept]
        whole = replace(self.module, functions=tuple(functions))
        reached = {functions[0].name} | nx.descendants(call_graph(whole), functions[0].name)
        return replace(whole, functions=tuple(f for f in functions if f.name in reached))

    def region(self, region: Region) -> Region:
        return replace(region, body=tuple(map(self.instruction, region.body)))

    def instruction(self, instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Call) or instruction.callee not in self.wanted:
            return with_regions(instruction, self.region)
        lowered = self.lowered(instruction.callee)
        status = self.fresh.value(lowered.program.types[-1])
        op = of_control("blocks", program=lowered.program, base=0, depth=self.limits.depth, steps=self.limits.steps)
        operands = lowered.arguments(instruction.operands)
        return Apply((*instruction.results, status), op, operands, instruction.span)

    def lowered(self, name: str) -> LoweredBlocks:
        if name not in self.made:
            self.made[name] = to_blocks(self.module, name, self.wanted[name], self.fresh)
        return self.made[name]


def programs(module: Module) -> tuple[BlockProgram, ...]:
    """The programs of blocks in a module, each once."""
    found: dict[BlockProgram, None] = {}
    for function in module.functions:
        for instruction in walk(function.region):
            if isinstance(instruction, Apply) and instruction.op.name == "blocks":
                found.setdefault(instruction.op["program"])
    return tuple(found)
