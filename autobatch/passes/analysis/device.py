"""Which values only the device knows: what is computed from shared floats and arrays, and what they decide.

    %2 = mul(%0, %1)            %0 is a shared array: %2 is a number of the device
    %3 = gt(%2, 0.0)
    %4 = if %3 then: ...        and so is what this gives
    %5 = length(%6)             a length never is

The counterpart of `structure.py` for modules whose loops are not functions yet: a value is listed here where
that would not call it host-computable. The least fixpoint over the functions of the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from autobatch.data.returned import element_type
from autobatch.ir.core import Apply, Call, For, If, Instruction, Literal, Map, Module, Operand, Region, Value, While
from autobatch.ir.ops import INHERENT
from autobatch.ir.types import Array, BuiltObject
from autobatch.passes.analysis.structure import decided


def device_values(
    module: Module,
    traced: frozenset[int] = frozenset(),
    numbers: frozenset[int] = frozenset(),
    left: frozenset[Value] = frozenset(),
) -> frozenset[Value]:
    """The values that the host cannot compute. `traced` are parameters of the entry, and `numbers` shared values, by
    position, as `structure.analyse` has them. `left`: values that are left to the device."""
    known = frozenset(module.shared[k] for k in numbers)
    told = known | decided(module, known)
    found = _DeviceValues(module, told)
    found.add(x for x in module.shared if x not in told)
    found.add(left)
    found.add(a for k, a in enumerate(module.functions[0].region.args) if k in traced)
    while found.changed:
        found.changed = False
        for function in module.functions:
            found.region(function.region)
    return frozenset(found.values)


def deciding(instruction: Instruction) -> Sequence[Operand]:
    """What decides which parts of an instruction run, and how often."""
    match instruction:
        case Apply() | Call():
            return ()
        case If(condition=x) | For(count=x):
            return (x,)
        case While(condition=test):
            return test.results[:1]
        case Map(count=x, body=body, filtered=filtered):
            return (x, *body.results[:filtered])
        case _:
            assert_never(instruction)


def depending_on(module: Module, values: Iterable[Value]) -> frozenset[Value]:
    """What is computed from some values, and what they decide."""
    found = _DeviceValues(module, frozenset(), inherent=False)
    found.add(values)
    while found.changed:
        found.changed = False
        for function in module.functions:
            found.region(function.region)
    return frozenset(found.values)


class _DeviceValues:
    """`inherent`: are random keys and objects that are made among them?"""

    def __init__(self, module: Module, told: frozenset[Value], inherent: bool = True) -> None:
        self.inherent = inherent
        self.functions: Mapping[str, Region] = {f.name: f.region for f in module.functions}
        self.told = told
        self.values: set[Value] = set()
        self.changed = True

    def add(self, values: Iterable[Value]) -> None:
        new = set(values) - self.told - self.values
        self.changed |= bool(new)
        self.values |= new

    def holds(self, x: Operand) -> bool:
        return not isinstance(x, Literal) and x in self.values

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.add(y for x, y in zip(sources, targets, strict=True) if self.holds(x))

    def region(self, region: Region) -> None:
        if self.inherent:
            self.add(a for a in region.args if _is_key(a))
        for instruction in region.body:
            if self.inherent:
                made = isinstance(instruction, Apply) and instruction.op.name in INHERENT
                self.add(
                    r
                    for r in instruction.results
                    if made or _is_key(r) or isinstance(element_type(r.type), BuiltObject)
                )
            self.instruction(instruction)

    def instruction(self, instruction: Instruction) -> None:
        results = instruction.results
        match instruction:
            case Apply(op=op, operands=xs):
                if op.name != "length" and any(map(self.holds, xs)):
                    self.add(results)
                if op.name == "masked" and not op.is_jax:  # nothing before masks
                    self.flow(xs, op["region"].args)
                    self.region(op["region"])
            case If(condition=condition, then=then, orelse=orelse):
                for arm in (then, orelse):
                    self.region(arm)
                    self.flow(arm.results, results)
                self.decide(condition, results)
            case For(count=count, init=init, body=body):
                self.carry(init, body.results, body.args[1:])
                self.region(body)
                self.flow(body.args[1:], results)
                self.decide(count, results)
            case While(init=init, condition=test, body=body):
                self.carry(init, body.results, body.args)
                self.flow(body.args, test.args)
                self.region(test)
                self.region(body)
                self.flow(body.args, results)
                self.decide(test.results[0], (*results, *body.args, *test.args))
            case Map(count=count, body=body, filtered=filtered):
                self.region(body)
                self.flow(body.results[filtered:], results)
                for x in (count, *body.results[:filtered]):
                    self.decide(x, results)
            case Call(callee=callee, operands=xs):
                self.flow(xs, self.functions[callee].args)
                self.flow(self.functions[callee].results, results)
            case _:
                assert_never(instruction)

    def carry(self, init: Sequence[Operand], again: Sequence[Operand], carried: Sequence[Value]) -> None:
        self.flow(init, carried)
        self.flow(again, carried)

    def decide(self, x: Operand, results: Sequence[Value]) -> None:
        if self.holds(x):
            self.add(results)


def _is_key(value: Value) -> bool:
    return isinstance(value.type, Array) and value.type.dtype.startswith("key<")
