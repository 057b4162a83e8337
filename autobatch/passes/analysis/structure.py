"""Which values the host can compute, and which of them anybody needs: the structural slice of a program.

A value is *host-computable* when it derives from example data and constants through operations alone, not from shared
arrays. It is *structural* when control, a reference or an index of the host needs it. A number that the device needs
is computed there, unless it is an integer, bool or tag that the host can compute: that becomes a column.

Runs on a module whose loops are functions (`passes/control/loops.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from autobatch.data.spec import Number, element_type
from autobatch.ir import host_ops
from autobatch.ir.core import (
    Apply,
    Array,
    BuiltObject,
    Call,
    For,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Value,
    While,
    operands,
    walk,
)
from autobatch.ir.host_ops import never_fails
from autobatch.ir.ops import INHERENT, Op, about


@dataclass
class StructureFacts:
    """Facts about the values of a module.

    `host`: computable there; `direct`: without waiting for the result of a call. `on_host` and `on_device`: needed
    there (a value can be needed in both places; a list needed on the device is one whose elements are; one needed on
    the host may be needed for its length alone, when its elements are not computable there). `uniform`: computed from
    shared values alone, so once for the whole batch. `numbers`: shared integers, and uniform values of such, that
    decide structure: the host is told what they are."""

    numbers: set[Value] = field(default_factory=set)
    uniform: set[Value] = field(default_factory=set)
    host: set[Value] = field(default_factory=set)
    direct: set[Value] = field(default_factory=set)
    on_host: set[Value] = field(default_factory=set)
    on_device: set[Value] = field(default_factory=set)

    def is_host(self, operand: Operand) -> bool:
        return isinstance(operand, Literal) or operand in self.host or operand in self.numbers

    def is_column(self, operand: Operand) -> bool:
        """Does the device receive this value as a column that the host has computed?"""
        if not isinstance(operand, Value) or operand not in self.direct or operand in self.uniform:
            return False
        return is_small(operand)


def is_small(value: Value) -> bool:
    """Integers and bools travel as columns; floats and arrays have derivatives, or cost too much on the host."""
    return isinstance(value.type, Array) and value.type.is_scalar and (value.type.is_integer or value.type.is_bool)


def is_load(op: Op) -> bool:
    return op.name in ("load", "item")


def is_host_only(op: Op) -> bool:
    """Does the device not know this operation? Its result is a column even where it waits for the result of a call."""
    return not op.is_jax and about(op).host and not is_load(op)


def analyse(
    module: Module, traced: frozenset[int] = frozenset(), numbers: frozenset[int] = frozenset()
) -> StructureFacts:
    """Both facts, by fixpoint over the functions of the module. `traced` are parameters of the entry whose values the
    host will not know: arrays that an outer `jax.jit` traces. `numbers` are shared values, by position, that the host
    may be told: Python integers of the call. It asks for what decides structure (`n`, or `n > 0`), and a plan is for
    these values; every other one is a number like a shared float, and a plan is for all its values."""
    known = frozenset(module.shared[k] for k in numbers)
    asked = frozenset(_Analysis(module, traced, known | decided(module, known), frozenset()).run().numbers)
    return _Analysis(module, traced, asked, asked).run()


def decided(module: Module, shared: frozenset[Value]) -> frozenset[Value]:
    """The scalars that operations compute from these shared values alone. What can fail is not among them (a division,
    a sum that overflows): it fails for the examples that run it."""
    found = set(shared)
    for instruction in (i for f in module.functions for i in walk(f.region)):
        if isinstance(instruction, Apply) and never_fails(instruction.op):
            read = [x for x in instruction.operands if isinstance(x, Value)]
            scalars = all(isinstance(r.type, Array) and r.type.is_scalar for r in instruction.results)
            if read and scalars and all(x in found for x in read):
                found.update(instruction.results)
    return frozenset(found - shared)


class _Analysis:
    """`numbers`: the uniform values that structure may depend on; `columns`: those that columns of numbers may."""

    def __init__(
        self, module: Module, traced: frozenset[int], numbers: frozenset[Value], columns: frozenset[Value]
    ) -> None:
        self.module, self.traced, self.numbers, self.columns = module, traced, numbers, columns
        self.facts = StructureFacts()
        self.functions = {f.name: f for f in module.functions}
        self.sites: dict[str, list[Call]] = defaultdict(list)
        self.definition: dict[Value, tuple[Instruction, int]] = {}
        self.parameter: dict[Value, tuple[str, int]] = {}
        self.turns: set[Value] = set()
        for f in module.functions:
            self.parameter.update({a: (f.name, k) for k, a in enumerate(f.region.args)})
            for instruction in walk(f.region):
                self.definition.update({r: (instruction, k) for k, r in enumerate(instruction.results)})
                if isinstance(instruction, Call):
                    self.sites[instruction.callee].append(instruction)
                if isinstance(instruction, Map):
                    self.turns.update(instruction.body.args)

    def run(self) -> StructureFacts:
        self.find_uniform()
        self.find_host()
        self.find_needs()
        return self.facts

    def find_uniform(self) -> None:
        known = set(self.module.shared)
        for function in self.module.functions:
            for instruction in walk(function.region):
                op = instruction.op if isinstance(instruction, Apply) else None
                if op is not None and not (is_load(op) or is_host_only(op) or op.exact):
                    read = [x for x in operands(instruction) if isinstance(x, Value)]
                    if read and all(x in known for x in read):
                        known.update(instruction.results)
                        self.facts.uniform.update(instruction.results)

    # ---- what the host can compute: the largest solution, by removal

    def find_host(self) -> None:
        self.everything = frozenset((*self.definition, *self.parameter, *self.turns))
        self.facts.host = self._largest(set(self.everything), self.numbers, through_calls=True)
        self.facts.direct = self._largest(set(self.facts.host), self.columns, through_calls=False)

    def _largest(self, held: set[Value], numbers: frozenset[Value], *, through_calls: bool) -> set[Value]:
        """The values that stay when each goes that waits for one that is gone."""
        waiting: dict[Value, list[Value]] = defaultdict(list)
        gone: list[Value] = []
        for value in held:
            needed = self.waits_for(value, numbers, through_calls)
            if needed is None:
                gone.append(value)
                continue
            for operand in needed:
                if isinstance(operand, Literal) or operand in numbers:
                    continue
                if operand in held:
                    waiting[operand].append(value)
                else:
                    gone.append(value)
                    break
        while gone:
            value = gone.pop()
            if value in held:
                held.remove(value)
                gone += waiting[value]
        return held

    def waits_for(self, value: Value, numbers: frozenset[Value], through_calls: bool) -> Iterable[Operand] | None:
        """What the host has to know for it to know a value; None where that is not enough."""
        if value in self.turns or value in numbers:
            return ()
        if isinstance(element_type(value.type), BuiltObject):
            return None  # known when everything has run
        if isinstance(value.type, Array) and value.type.dtype.startswith("key<"):
            return None  # random bits are made on the device, from raw key data that the host never reads
        if value in self.parameter:
            name, k = self.parameter[value]
            if k in self.traced and name == self.module.functions[0].name:
                return None
            return [site.operands[k] for site in self.sites[name]]
        instruction, k = self.definition[value]
        match instruction:
            case Apply(op=op) if op.name in INHERENT:
                return None
            case Apply(op=op, operands=xs):
                of_host = is_host_only(op) or op.exact  # it has more bits there
                return () if op.name == "length" or (not through_calls and of_host) else xs
            case If(condition=c, then=then, orelse=orelse):
                return (c, then.results[k], orelse.results[k])
            case Call(callee=callee):
                return (self.functions[callee].region.results[k],) if through_calls else None
            case Map(count=count, body=body, filtered=filtered):
                return (count, body.results[k + filtered]) if through_calls else None
            case For() | While():
                raise AssertionError("loops are functions by now")
        assert_never(instruction)

    # ---- who needs what: from the entry's results, from control, and from effects

    def find_needs(self) -> None:
        entry = self.module.functions[0]
        self.todo: list[tuple[Operand, bool]] = []
        for result in entry.region.results:
            self.need(result, device=self.is_numeric(result))
        reached = self.reached_functions()
        for name in reached:
            for instruction in walk(self.functions[name].region):
                match instruction:
                    case If(condition=c):
                        self.need(c, device=False)
                    case Map(count=n, body=body, filtered=filtered):
                        self.need(n, device=False)
                        if filtered:
                            self.need(body.results[0], device=False)
                    case Apply(op=op, operands=xs) if not op.is_jax and about(op).effect:
                        for x in xs:
                            self.need(x, device=False)
                    case _:
                        pass
        while self.todo:
            operand, device = self.todo.pop()
            if isinstance(operand, Value):
                self.propagate(operand, device)

    def reached_functions(self) -> set[str]:
        reached, todo = {self.module.functions[0].name}, [self.module.functions[0]]
        while todo:
            for instruction in walk(todo.pop().region):
                if isinstance(instruction, Call) and instruction.callee not in reached:
                    reached.add(instruction.callee)
                    todo.append(self.functions[instruction.callee])
        return reached

    def is_numeric(self, operand: Operand) -> bool:
        """Does this result leave as pointers (to device numbers, made objects), not as what the host computed?"""
        return isinstance(element_type(operand.type), Array | BuiltObject)

    def need(self, operand: Operand, *, device: bool) -> None:
        """Note that `operand` is needed; a small host value that the device needs is needed on the host too."""
        if isinstance(operand, Value) and operand in self.numbers and not device:
            self.facts.numbers.add(operand)
            self.facts.on_host.add(operand)
            return
        if not isinstance(operand, Value) or operand not in self.everything:
            return
        if device and self.facts.is_column(operand):
            self._note(operand, on_device=True)
            device = False
        self._note(operand, on_device=device)

    def _note(self, value: Value, *, on_device: bool) -> None:
        place = self.facts.on_device if on_device else self.facts.on_host
        if value not in place:
            place.add(value)
            self.todo.append((value, on_device))

    def propagate(self, value: Value, device: bool) -> None:
        if device and self.facts.is_column(value):
            return
        if value in self.turns:
            return
        if value in self.parameter:
            name, k = self.parameter[value]
            for site in self.sites[name]:
                self.need(site.operands[k], device=device)
            return
        instruction, k = self.definition[value]
        match instruction:
            case Apply(op=op, operands=xs):
                for x in xs:
                    if op.name in ("make", "adopt"):
                        self.need(x, device=self.is_numeric(x))
                    elif op.name == "pack_list":
                        self.need_element(x, device)
                    else:
                        self.need(x, device=device and (self.is_made_list(x) or not is_load(op)))
            case If(then=then, orelse=orelse):
                self.need(then.results[k], device=device)
                self.need(orelse.results[k], device=device)
            case Call(callee=callee):
                self.need(self.functions[callee].region.results[k], device=device)
            case Map(count=count, body=body, filtered=filtered):
                self.need(count, device=False)
                self.need_element(body.results[k + filtered], device)
            case For() | While():
                raise AssertionError("loops are functions by now")
            case _:
                assert_never(instruction)

    def need_element(self, element: Operand, device: bool) -> None:
        """An element of a list that a `Map` made. A list may be needed on the host for its length alone."""
        if device or self.facts.is_host(element) or element in self.numbers or self.is_made_list(element):
            self.need(element, device=device)

    def is_made_list(self, operand: Operand) -> bool:
        """A list that a `Map` made: its elements are rows of the device, its length is known to the host."""
        return isinstance(operand.type, List) and operand.type.store is None


# ---- decisions
#
# What shared integers decide, computed on the host at every call: what a plan is for.
#
# if n > 3:                 n = 4, n = 5: one plan, for True          n = 2: another one, for False
# f(node.left, n - 1)       a plan for each n


class Decisions:
    """The values `asked` of a module, as functions of shared values alone: those at the positions `deciding`."""

    def __init__(self, module: Module, asked: Sequence[Value]) -> None:
        self.asked, self.constants = asked, module.constants
        makers = {r: i for f in module.functions for i in walk(f.region) if isinstance(i, Apply) for r in i.results}
        self.steps: list[Apply] = []
        needed: set[Value] = set()
        todo: list[Operand] = list(asked)
        while todo:
            value = todo.pop()
            if isinstance(value, Value) and value not in needed:
                needed.add(value)
                if value in makers:
                    todo += makers[value].operands
        for made in makers.values():
            if not needed.isdisjoint(made.results) and made not in self.steps:
                self.steps.append(made)
        self.deciding = tuple(k for k, x in enumerate(module.shared) if x in needed)
        self.read = tuple(module.shared[k] for k in self.deciding)

    def values(self, integers: Sequence[int]) -> tuple[Number, ...]:
        """The values of `asked`, for values of the shared inputs at `deciding`."""
        held = {x: np.array([n]) for x, n in zip(self.read, integers, strict=True)}
        for step in self.steps:
            types = [r.type for r in step.results if isinstance(r.type, Array)]
            operands = [self.literal(x) if isinstance(x, Literal) else held[x] for x in step.operands]
            held.update(zip(step.results, host_ops.evaluate(step.op, types, operands, 1), strict=True))
        return tuple(held[x][0].item() for x in self.asked)

    def literal(self, x: Literal) -> NDArray[Any]:
        return np.asarray(x.value if x.constant < 0 else self.constants[x.constant])[None]
