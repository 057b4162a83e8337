"""Which lists need memory: those of which computed numbers say how long they are, or which they are.

    %1 = pack_list()                              a list of structure: nothing decides it
    %5 = while (%0, %1) test (%2, %3): lt(%2, 1.0)
      do (%2, %3):                                %3: computed numbers end the loop that carries it
        %4 = flatten(pack_list(%3, pack_list(%2)))     and %4 has as many elements as that
    %6 = length(%5)                               a number that only the device knows

Such a length decides further control, which decides further lists: the least fixpoint of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import assert_never

import networkx as nx

from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.rewrite import calls, free_values, region_values
from autobatch.ir.types import Array, List
from autobatch.passes.analysis.device import deciding
from autobatch.passes.memory.arena_operations import is_storable, made_type
from autobatch.passes.simplify.inline import call_graph

Device = Callable[[frozenset[Value]], Collection[Operand]]
"""The values that only the device knows, where the lengths given are such."""


def lists_of_numbers(
    module: Module, device: Device, alone: bool, handed: bool = False
) -> tuple[frozenset[Value], Collection[Operand]]:
    """The lists of which the device alone knows the length; and all that it alone knows then. `alone`: that is
    everything. Of functions that call themselves those that they hand on where such lists come in, or tables are;
    `handed`: and all of those of which numbers decide which calls there are, or what is read of them."""
    inside = [i for f in module.functions for i in walk(f.region)]
    lengths = frozenset[Value]()
    while True:
        numbers = device(lengths)
        whole = frozenset(_decided(module, numbers) if handed else ())
        read = _read_below(module, numbers) if handed and not alone else frozenset[Value]()
        lists = _ListsNeedingMemory(numbers, alone, module, whole, handed).of(module, read)
        behind = frozenset(
            i.results[0]
            for i in inside
            if isinstance(i, Apply) and i.op.name in ("length", "find") and i.operands[0] in lists
        )
        if behind == lengths:
            return lists, numbers
        lengths = behind


TABLES = ("find", "put")
"""The operations of dicts and sets, whose lists always have memory."""


def has_tables(module: Module) -> bool:
    """Are there dicts or sets of keys that a function makes?"""
    return any(isinstance(i, Apply) and i.op.name in TABLES for f in module.functions for i in walk(f.region))


def floats_decide(module: Module, device: Device) -> bool:
    """Do floats, or other numbers that no trace knows, decide any branch, loop or key?"""
    inside = [i for f in module.functions for i in walk(f.region)]
    values = (v for f in module.functions for v in region_values(f.region))
    unknown = device(frozenset(v for v in values if isinstance(v.type, Array) and _is_float(v.type)))
    keys = (x for i in inside if isinstance(i, Apply) and i.op.name == "find" for x in i.operands)
    return any(x in unknown for x in keys) or any(x in unknown for i in inside for x in deciding(i))


def _is_float(type: Array) -> bool:
    return not (type.is_integer or type.is_bool)


def decided_by_device(instruction: Instruction, device: Collection[Operand]) -> bool:
    """Do computed numbers decide a branch or loop that calls nothing?"""
    if not any(x in device for x in deciding(instruction)):
        return False
    return not any(isinstance(i, Call) for i in walk(Region((), (instruction,), ())))


def reads_by_number(region: Region, device: Collection[Operand]) -> Iterator[Apply]:
    """The reads of lists where only the device knows the place, or in control of its own at a place that is chosen
    there; in loops of its own also those of elements that it has computed, which cannot be read in front."""
    for i in walk(region):
        decided = decided_by_device(i, device)
        inside = [j for r in regions(i) for j in walk(r)] if decided else [i]
        free = set(free_values(Region((), (i,), ()))) if decided else set()
        for j in inside:
            if isinstance(j, Apply) and j.op.name == "item":
                read, index = j.operands
                chosen = index not in free and isinstance(index, Value)
                computed = not isinstance(i, If) and read in device
                if index in device or (read in free and (chosen or computed)):
                    yield j


def is_inner(i: Apply) -> bool:
    """Is it a list of numbers of the examples that is read from a list of such?"""
    return i.op.name == "item" and isinstance(i.results[0].type, List) and is_storable(made_type(i.results[0]))


def is_made(x: Operand) -> bool:
    """Is it a list that the program makes?"""
    return isinstance(x.type, List) and x.type.store is None


def _decided(module: Module, device: Collection[Operand]) -> Iterator[str]:
    """The functions that call themselves where computed numbers decide, and hand on numbers, arrays and lists of
    them."""
    graph = call_graph(module)
    for names in nx.strongly_connected_components(graph):
        functions = [f for f in module.functions if f.name in names]
        control = (i for f in functions for i in walk(f.region) if any(x in device for x in deciding(i)))
        inside = (j for i in control for j in walk(Region((), (i,), ())))
        handed = (x for f in functions for x in (*f.region.args, *f.region.results) if not isinstance(x.type, Array))
        if any(isinstance(j, Call) and j.callee in names for j in inside) and all(
            isinstance(x.type, List) and is_storable(made_type(x)) for x in handed
        ):
            yield from names


def _read_below(module: Module, device: Collection[Operand]) -> frozenset[Value]:
    """The lists that are handed to functions which read them where only the device knows the place."""
    _, *others = module.functions
    read = {i.operands[0] for f in others for i in reads_by_number(f.region, device)}
    found = {a for f in others for a in f.region.args if a in read and is_made(a) and is_storable(made_type(a))}
    size = -1
    while size < len(found):
        size = len(found)
        for f in others:
            for call in calls(f.region):
                given = zip(call.operands, module.function(call.callee).region.args, strict=True)
                found.update(x for x, a in given if a in found and isinstance(x, Value) and x in f.region.args)
    return frozenset(found)


class _ListsNeedingMemory:
    """`functions`: by name; `whole`: those that hand on no list without memory; `results`: the lists that each function
    gives back, by position; `handed`: as in `lists_of_numbers`."""

    def __init__(
        self, device: Collection[Operand], alone: bool, module: Module, whole: frozenset[str], handed: bool
    ) -> None:
        self.device, self.alone, self.whole, self.handed = device, alone, whole, handed
        self.found: set[Value] = set()
        self.functions = {f.name: f.region for f in module.functions}
        self.results: set[tuple[str, int]] = set()

    def of(self, module: Module, read: frozenset[Value]) -> frozenset[Value]:
        """`read`: lists that functions are handed, and have memory in any case."""
        entry, *others = module.functions
        self.found.update(read)
        if not self.alone:
            self.found.update(r for i in reads_by_number(entry.region, self.device) if is_inner(i) for r in i.results)
        for function in others:
            if function.name in self.whole:
                self.found.update(a for a in function.region.args if isinstance(a.type, List))
        size = -1
        while size < len(self.found) + len(self.results):
            size = len(self.found) + len(self.results)
            self.region(entry.region, self.alone)
            for other in others:
                if self.concerns(other):
                    self.region(other.region, self.alone or other.name in self.whole)
                    self.returned(other.name)
        return frozenset(self.found)

    def concerns(self, function: Function) -> bool:
        """Do lists that have memory come into a function, are its results such, or does it make some?"""
        if self.alone or function.name in self.whole or any(a in self.found for a in function.region.args):
            return True
        if any(name == function.name for name, _ in self.results):
            return True
        inside = list(walk(function.region))
        if self.handed and any(decided_by_device(i, self.device) and any(map(is_made, i.results)) for i in inside):
            return True
        return any(isinstance(i, Apply) and i.op.name in (*TABLES, "spelt") for i in inside)

    def returned(self, name: str) -> None:
        for k, x in enumerate(self.functions[name].results):
            if x in self.found:
                self.results.add((name, k))
            elif (name, k) in self.results and isinstance(x, Value):
                self.add([x])

    def called(self, call: Call) -> None:
        self.flow(call.operands, self.functions[call.callee].args)
        for k, r in enumerate(call.results):
            if r in self.found:
                self.results.add((call.callee, k))
            elif (call.callee, k) in self.results:
                self.add([r])

    def add(self, xs: Sequence[Value]) -> None:
        self.found.update(x for x in xs if is_made(x))

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.add([y for x, y in zip(sources, targets, strict=True) if x in self.found])

    def region(self, region: Region, inside: bool) -> None:
        """`inside`: do computed numbers decide how often it runs?"""
        for instruction in region.body:
            self.instruction(instruction, inside)

    def instruction(self, i: Instruction, inside: bool) -> None:
        decided = inside or decided_by_device(i, self.device)
        if decided:
            self.add(i.results)
        match i:
            case Apply(op=op, operands=xs):
                ordered = op.name == "sort_order" and any(x in self.device for x in xs)
                if op.name in TABLES or op.name == "spelt":
                    self.add([x for x in (*xs, *i.results) if isinstance(x, Value)])
                if inside or ordered or any(x in self.found for x in xs):
                    self.add(i.results)
            case If(then=then, orelse=orelse):
                for arm in (then, orelse):
                    self.region(arm, decided)
                    self.flow(arm.results, i.results)
            case For(init=init, body=body):
                self.carried(init, body.results, (body.args[1:], i.results), decided)
                self.region(body, decided)
            case While(init=init, condition=test, body=body):
                self.carried(init, body.results, (body.args, test.args, i.results), decided)
                self.region(test, decided)
                self.region(body, decided)
            case Map(body=body, filtered=filtered):
                self.region(body, decided)
                self.flow(body.results[filtered:], i.results)
                long = any(x in self.device for x in deciding(i))  # also where it calls what may recurse
                if long or not self.found.isdisjoint(i.results):  # they are written by one loop
                    self.add(i.results)
            case Call():
                self.called(i)
            case _:
                assert_never(i)

    def carried(
        self, init: Sequence[Operand], again: Sequence[Operand], places: Sequence[Sequence[Value]], decided: bool
    ) -> None:
        for place in places:
            if decided:
                self.add(place)
            for sources in (init, again, places[-1]):
                self.flow(sources, place)
