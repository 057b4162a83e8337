"""Lists that a function makes and reads again, without memory for them.

    %5 = map %1 do (%2): ... yield %4                 %t = for %1 (0.0) do (%2, %a): ...; yield add(%a, %4)
    %6 = reduce[kind='sum'](%5)                ->

    %5 = map %1 do (%2): ... yield %4                 for %1 do (%8): ...; %9 = (the body of the map at turn %8)
    for %1 do (%8): %9 = item(%5, %8)          ->

What is only reduced is a loop that carries what it reduces to (`comprehensions.py`). What loops over the same turns
read again is computed where it is read, if it is a few operations that no example fails in. Other lists stay, and so do
those that are others but for one element: they lie where those did.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autobatch.data.schema import Schema
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    If,
    Instruction,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import OWN
from autobatch.ir.rewrite import Fresh, copy_region, substitute, with_operands, with_regions
from autobatch.passes.analysis.fallible import fallible_reads
from autobatch.passes.control.uniform_loops import as_loop

SMALL = 16
"""Operations of a turn up to which it is computed again wherever it is read."""


def without_made_lists(module: Module, schema: Schema) -> Module:
    """The module with loops in place of comprehensions, as far as that can be; the same where there are none."""
    if not any(isinstance(i, Map) for f in module.functions for i in walk(f.region)):
        return module
    made = _MadeLists(module, schema)
    return replace(module, functions=tuple(replace(f, region=made.region(f.region)) for f in module.functions))


class _MadeLists:
    def __init__(self, module: Module, schema: Schema) -> None:
        self.fresh = Fresh(module)
        self.fallible = fallible_reads(module, schema)
        self.turns = {
            v for f in module.functions for i in walk(f.region) if isinstance(i, For | Map) for v in i.body.args[:1]
        }

    def region(self, region: Region) -> Region:
        body = tuple(with_regions(i, self.region) for i in region.body)
        done: list[Instruction] = []
        rest = replace(region, body=body)
        while rest.body:
            first, *others = rest.body
            rest = replace(rest, body=tuple(others))
            if not isinstance(first, Map):
                done.append(first)
                continue
            found = as_loop(first, rest.body, rest.results, self.fresh)
            if found is not None:
                kept = [i for k, i in enumerate(rest.body) if k not in found.gone]
                done += [*found.before, found.loop]
                rest = replace(rest, body=(*found.behind, *kept))
            elif self.is_repeatable(first) and not _escapes(first.results, rest, self.turns):
                rest = self.repeated(first, rest)
            else:
                done.append(first)
        return replace(region, body=tuple(done), results=rest.results)

    def is_repeatable(self, of: Map) -> bool:
        """Is a turn a few operations that no example fails in, and no store?"""
        inside = list(walk(of.body))
        few = not of.filtered and len(inside) <= SMALL and all(map(self.is_plain, inside))
        return few and Update.of(of) is None

    def is_plain(self, i: Instruction) -> bool:
        if isinstance(i, Call | For | While | Map) or not self.fallible.isdisjoint(i.results):
            return False
        if isinstance(i, Apply):
            effect = not i.op.is_jax and i.op.name in OWN and OWN[i.op.name].effect
            return not effect
        return True

    def repeated(self, of: Map, rest: Region) -> Region:
        """What is behind a comprehension, with its turns where they are read."""

        def inside(region: Region) -> Region:
            made: list[Instruction] = []
            names: dict[Value, Operand] = {}
            for i in region.body:
                read = i.operands[0] if isinstance(i, Apply) and i.operands else None
                if not isinstance(i, Apply) or read not in of.results:
                    made.append(with_regions(i, inside))
                elif i.op.name == "length":
                    names[i.results[0]] = of.count
                elif i.op.name == "item":
                    turn = copy_region(replace(of.body, args=()), {of.body.args[0]: i.operands[1]}, self.fresh)
                    made += turn.body
                    names[i.results[0]] = turn.results[of.results.index(read)]
                else:
                    made += self.reduced(of, i)
            found = replace(region, body=tuple(made))
            return with_operands(found, lambda x: substitute(x, names)) if names else found

        return inside(rest)

    def reduced(self, of: Map, reduction: Apply) -> Sequence[Instruction]:
        """A reduction of the list, with a loop of its own."""
        lists = self.fresh.like(of.results)
        again = replace(of, results=lists, body=copy_region(of.body, {}, self.fresh))
        read = lists[of.results.index(reduction.operands[0])]
        alone = replace(reduction, operands=(read, *reduction.operands[1:]))
        found = as_loop(again, (alone,), (), self.fresh)
        assert found is not None
        return (*found.before, found.loop, *found.behind)


def _escapes(lists: Sequence[Value], rest: Region, turns: Collection[Value]) -> bool:
    """Are the lists read in another way than element by element in loops, by their length, or by a reduction?"""
    if any(x in lists for x in rest.results):
        return True
    for i in walk(rest):
        inner = [x for r in regions(i) for x in r.results]
        if any(x in lists for x in inner):
            return True
        if not any(x in lists for x in operands(i)):
            continue
        if not isinstance(i, Apply):
            return True
        plain = i.op.name in ("length", "reduce") or (i.op.name == "item" and i.operands[1] in turns)
        if not plain:
            return True
    return False


def is_item(i: Instruction) -> bool:
    return isinstance(i, Apply) and i.op.name == "item" and not i.op.is_jax


def reads_at(i: Instruction, turn: Value) -> bool:
    """Is this the element of a list at the turn?"""
    return is_item(i) and operands(i)[1] == turn


@dataclass(frozen=True)
class Update:
    """Lists of which the element at a place gets a value each."""

    place: Operand
    lists: tuple[Operand, ...]
    values: tuple[Operand, ...]

    @staticmethod
    def of(made: Map) -> Update | None:
        turn, inner = made.body.args[0], walk(made.body)
        reads = {i.results[0]: i.operands[0] for i in inner if isinstance(i, Apply) and reads_at(i, turn)}
        tests = [i for i in made.body.body if isinstance(i, Apply) and i.op.name == "eq" and i.operands[0] == turn]
        choices = [i for i in made.body.body if isinstance(i, If)]
        if made.filtered or len(tests) != 1 or len(choices) != 1 or choices[0].then.body:
            return None
        (test,), (choice,) = tests, choices
        inside = sum(1 for _ in walk(made.body))
        if choice.condition != test.results[0] or inside != len(reads) + 2 or made.body.results != choice.results:
            return None
        others, place = choice.orelse.results, test.operands[1]
        if not all(x in reads for x in others) or any(x in reads for x in (place, *choice.then.results)):
            return None
        return Update(place, tuple(reads[x] for x in others), choice.then.results)  # type: ignore[index]
