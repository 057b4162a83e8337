"""Loops that count: all of their turns are known before the first one.

    func @f.for0(%1: turn, %2: count, %3: h, %4: list):          a counter, its bound, and what turns hand on:
      %5 = lt(%1, %2)                                            numbers that the device computes in each turn (%8),
      if %5 then:                                                and what the host reads there (%6)
        %6 = item(%4, %1)
        ...
        %9 = call @f.for0(%10 = add(%1, 1), %2, %8, %4)

What a turn does on the host depends on no turn before it, so the planner runs all turns of all loops at once
(`planning/activations.py`). A loop that does not count, as one with a `break`, is run turn by turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autobatch.data.spec import CountedSpec, RegionSpec
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.types import Array, List
from autobatch.passes.analysis.structure import StructureFacts

COMPARED = {"lt": (0, 1, False), "le": (0, 1, True), "gt": (1, 0, False), "ge": (1, 0, True)}
"""Of a comparison: which operand is the smaller one, which is the larger one, and whether they may be equal."""

OF_THE_ROW = frozenset(("make", "adopt", "pack_list"))
"""Operations that name the row they stand in, or pointers, so that they cannot be done ahead of it."""


def counted(module: Module, facts: StructureFacts, roots: Mapping[str, RegionSpec]) -> dict[str, CountedSpec]:
    """The functions of a module that are loops which count."""
    found = {f.name: _CountedLoop(f, facts, roots[f.name]).spec() for f in module.functions if f.is_loop}
    return {name: spec for name, spec in found.items() if spec is not None}


@dataclass
class _CountedLoop:
    function: Function
    facts: StructureFacts
    root: RegionSpec
    steps: dict[int, int] = field(default_factory=dict)
    delayed: dict[int, Operand] = field(default_factory=dict)
    exports: dict[int, int] = field(default_factory=dict)
    later: set[int] = field(default_factory=set)

    def spec(self) -> CountedSpec | None:
        """None where turns depend on one another, or on more than a counter."""
        body = self.function.region.body
        if not body or not isinstance(body[-1], If) or not all(isinstance(i, Apply) for i in body[:-1]):
            return None
        self.last, self.before = body[-1], [i for i in body[:-1] if isinstance(i, Apply)]
        self.then = self.last.then.body
        call = self.next_turn()
        if call is None or not all(map(self.hand_on, range(len(call.operands)), call.operands)):
            return None
        if not (self.exports or self.later) or not self.only_recorded(call):
            return None
        return self.bounded()

    def next_turn(self) -> Call | None:
        """The one call of the loop itself."""
        name = self.function.name
        every = [i for i in walk(self.function.region) if isinstance(i, Call) and i.callee == name]
        found = [i for i in self.then if isinstance(i, Call) and i.callee == name]
        results = [*self.last.results, *(r for i in found for r in i.results)]
        on_host = any(r in self.facts.on_host for r in results)
        return found[0] if len(every) == 1 and len(found) == 1 and not on_host else None

    def hand_on(self, k: int, x: Operand) -> bool:
        """Is it known what a turn hands on as argument k, without the turns before it?"""
        arg = self.function.region.args[k]
        if x is arg:
            return True
        if arg in self.facts.on_host:
            step = self.step(arg, x)
            if step:
                self.steps[k] = step
            else:
                self.delayed[k] = x
        if arg not in self.facts.on_device or self.facts.is_column(arg):
            return True
        exports = self.root.arms[len(self.before)][0].exports
        if isinstance(x, Value) and x in exports:
            self.exports[k] = exports[x]
        else:
            self.later.add(k)
        return isinstance(arg.type, Array)

    def only_recorded(self, next_turn: Call) -> bool:
        """Do arguments of which it is known later where they are go into tables alone? A call is one with others of
        the same arguments, so it has to know them."""
        args = self.function.region.args
        late: set[Operand] = {args[k] for k in self.later}
        for i in _inside_out(self.function.region):
            match i:
                case If(results=results, then=then, orelse=orelse):
                    late.update(r for k, r in enumerate(results) if {then.results[k], orelse.results[k]} & late)
                case Call(operands=operands) if i is not next_turn and late.intersection(operands):
                    return False
                case Map() | For() | While() if late:
                    return False
                case Apply(op=op, operands=operands) if op.name in OF_THE_ROW and late.intersection(operands):
                    return False
        return True

    def step(self, arg: Value, x: Operand) -> int:
        """By how much a counter grows; zero for all else."""
        made = next((i for i in self.then if isinstance(i, Apply) and x in i.results), None)
        if made is None or made.op.name not in ("add", "sub"):
            return 0
        left, right = made.operands
        if made.op.name == "add" and right is arg:
            left, right = right, left
        if left is not arg or not isinstance(right, Literal) or type(right.value) is not int:
            return 0
        return right.value if made.op.name == "add" else -right.value

    def bounded(self) -> CountedSpec | None:
        """The counter that ends the loop, and what it is compared with."""
        args = self.function.region.args
        test = next((i for i in self.before if self.last.condition in i.results), None)
        if test is None or test.op.name not in COMPARED:
            return None
        small, large, inclusive = COMPARED[test.op.name]
        moving = {args[k] for k in (*self.steps, *self.delayed)}
        delayed = needed(self.delayed.values(), [*self.before, *self.then], {args[k] for k in self.delayed})
        for k, step in self.steps.items():
            counter, bound = test.operands[small], test.operands[large]
            if step < 0:
                counter, bound = bound, counter
            bounding = needed([bound], self.before, moving)
            if counter is args[k] and bounding is not None and delayed is not None:
                return CountedSpec(
                    k, bound, inclusive, bounding, dict(self.steps), dict(self.delayed), delayed,
                    dict(self.exports), frozenset(self.later),
                )  # fmt: skip
        return None


def _inside_out(region: Region) -> Iterator[Instruction]:
    """Every instruction of a region, behind those that stand in it."""
    for instruction in region.body:
        for inner in regions(instruction):
            yield from _inside_out(inner)
        yield instruction


def needed(
    wanted: Collection[Operand], instructions: Sequence[Instruction], apart: Collection[Value]
) -> tuple[Apply, ...] | None:
    """The operations among some that make values, in order; None where they read any that are `apart`, or where they
    are more than operations on structure."""
    todo, found = [x for x in wanted if isinstance(x, Value)], list[Instruction]()
    makers = {r: i for i in instructions for r in i.results}
    seen = set[Value]()
    while todo:
        x = todo.pop()
        if x in seen:
            continue
        seen.add(x)
        made = makers.get(x)
        if x in apart or (made is not None and not (isinstance(made, Apply) and _is_ahead(made))):
            return None
        if isinstance(made, Apply):
            found.append(made)
            todo += [y for y in made.operands if isinstance(y, Value)]
    return tuple(i for i in instructions if isinstance(i, Apply) and i in found)


def _is_ahead(made: Apply) -> bool:
    """Can it be done before its row is there?"""
    of_made_list = any(isinstance(x.type, List) and x.type.store is None for x in made.operands)
    return made.op.name not in OF_THE_ROW and not of_made_list
