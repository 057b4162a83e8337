"""Do floats decide a branch or loop somewhere?

    %3 = lt(%2, 1.0)                 %2 is a float
    %5 = while (%0) test (%1): %3    so this loop is decided by one

Where none does, control is structure, integers, and what is read of objects by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobatch.ir.core import Apply, Call, For, If, Instruction, Map, Module, Operand, Region, Value, While, walk
from autobatch.ir.types import Array, List


def decided_by_floats(module: Module) -> bool:
    """Is there such a branch or loop in the module?"""
    found = _ByFloats(module)
    while found.grows():
        pass
    return found.decides


class _ByFloats:
    """`values`: what floats decide, so far, floats aside."""

    def __init__(self, module: Module) -> None:
        self.module, self.values, self.decides = module, set[Operand](), False

    def grows(self) -> bool:
        before = len(self.values)
        for function in self.module.functions:
            for i in walk(function.region):
                self.instruction(i)
        return len(self.values) > before

    def by_floats(self, xs: Sequence[Operand]) -> bool:
        return any(x in self.values or _is_float(x) for x in xs)

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.values.update(y for x, y in zip(sources, targets, strict=True) if x in self.values)

    def decided(self, condition: Operand, results: Sequence[Value]) -> None:
        if condition in self.values:
            self.decides = True
            self.values.update(results)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply(results=results, op=op, operands=xs):
                compared = op.name in _COMPARING and any(_holds_floats(x) or x in self.values for x in xs)
                self.decides |= compared
                if compared or self.by_floats(xs):
                    self.values.update(r for r in results if not _is_float(r))
            case If(results=results, condition=condition, then=then, orelse=orelse):
                self.flow(then.results, results)
                self.flow(orelse.results, results)
                self.decided(condition, results)
            case For(results=results, count=count, init=init, body=body):
                self.carried(init, body, body.args[1:], results)
                self.decided(count, results)
            case While(results=results, init=init, condition=test, body=body):
                self.carried(init, body, body.args, results)
                self.flow(init, test.args)
                self.flow(body.results, test.args)
                self.decided(test.results[0], results)
            case Map(results=results, count=count, body=body, filtered=filtered):
                for condition in (count, *body.results[:filtered]):
                    self.decided(condition, results)
                self.flow(body.results[filtered:], results)
            case Call(results=results, callee=callee, operands=xs):
                region = self.module.function(callee).region
                self.flow(xs, region.args)
                self.flow(region.results, results)

    def carried(self, init: Sequence[Operand], body: Region, args: Sequence[Value], results: Sequence[Value]) -> None:
        for sources in (init, body.results):
            self.flow(sources, args)
            self.flow(sources, results)


_COMPARING = ("sort_order", "find")
"""What tells positions by comparing elements: of floats, as no trace can. (Their length, no float decides.)"""


def _holds_floats(x: Operand) -> bool:
    return isinstance(x.type, List) and isinstance(x.type.elem, Array) and _floats(x.type.elem)


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and _floats(x.type)


def _floats(type: Array) -> bool:
    return not (type.is_integer or type.is_bool)
