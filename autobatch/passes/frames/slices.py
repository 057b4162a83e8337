"""The structural slice of a module: what the host must compute, as a module of its own.

    func @encode(%1: ref<Node>) -> float32[4]:            func @encode(%1: ref<Node>):
      %2 = load[left](%1)                                   %2 = load[left](%1)
      %3 = is_none(%2)                                      %3 = is_none(%2)
      %4 = if %3 then: ... tanh ... else:           ->      if %3 then: else:
             %8 = call @encode(%2)                            call @encode(%2)
             ...

Parameters and results that only the device needs are gone, and so is arithmetic on them. Its interpreter finds the
structural results of calls. The *failing slice* holds also what the device would read, where reading can fail
(`t.left.x` of a leaf, `states[3]` of two): its interpreter finds what an example fails with first.
"""

from __future__ import annotations

from dataclasses import replace

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
    walk,
)
from autobatch.ir.ops import about
from autobatch.ir.types import INT, List
from autobatch.passes.analysis.structure import StructureFacts


def structural_slice(module: Module, facts: StructureFacts) -> tuple[Module, dict[str, tuple[int, ...]]]:
    """`module` without everything that only the device computes; and which results of each function are left."""
    slicer = _Slicer(module, facts, failing=False)
    return slicer.run(), {f.name: tuple(slicer.results(f.name)) for f in module.functions}


def failing_slice(module: Module, facts: StructureFacts) -> Module:
    """The structural slice with every operation that can fail, and the lists that those read: of the elements that
    only the device computes, a list holds as many zeros."""
    return _Slicer(module, facts, failing=True).run()


class _Slicer:
    def __init__(self, module: Module, facts: StructureFacts, *, failing: bool) -> None:
        self.module, self.facts, self.failing = module, facts, failing
        self.functions = {f.name: f for f in module.functions}
        self.needed: dict[str, set[int]] = {f.name: set() for f in module.functions}
        for function in module.functions:
            for instruction in walk(function.region):
                if isinstance(instruction, Call):
                    wanted = (k for k, r in enumerate(instruction.results) if self.kept(r))
                    self.needed[instruction.callee].update(wanted)

    def run(self) -> Module:
        return replace(self.module, functions=tuple(self.function(f) for f in self.module.functions))

    def kept(self, x: Operand) -> bool:
        if not isinstance(x, Value):
            return False
        if isinstance(x.type, List):
            return x in self.facts.on_host or (self.failing and x in self.facts.on_device)
        return x in self.facts.on_host and self.facts.is_host(x)

    def can_fail(self, instruction: Apply) -> bool:
        """Does this read what may not be there? Its operands are structure, which the slice holds."""
        op, xs = instruction.op, instruction.operands
        reads = op.name in ("load", "item") or (op.name == "reduce" and op["kind"] in ("min", "max"))
        return reads and all(isinstance(x, Literal) or self.kept(x) for x in xs)

    def element(self, x: Operand) -> Operand:
        """An element of a list of which perhaps only the length is asked for."""
        return x if isinstance(x, Literal) or self.kept(x) else Literal(0, INT)

    def parameters(self, function: Function) -> list[int]:
        return [k for k, a in enumerate(function.region.args) if self.kept(a)]

    def results(self, callee: str) -> list[int]:
        """The results of a function that some caller needs on the host."""
        return sorted(self.needed[callee])

    def function(self, function: Function) -> Function:
        region = function.region
        args = tuple(region.args[k] for k in self.parameters(function))
        results = tuple(region.results[k] for k in self.results(function.name))
        return replace(function, region=Region(args, self.body(region), results))

    def body(self, region: Region) -> tuple[Instruction, ...]:
        return tuple(new for i in region.body if (new := self.instruction(i)) is not None)

    def instruction(self, instruction: Instruction) -> Instruction | None:
        match instruction:
            case Apply(op=op, operands=xs, results=results) if op.name == "pack_list":
                elements = tuple(map(self.element, xs))
                return replace(instruction, operands=elements) if self.kept(results[0]) else None
            case Apply(results=results) if any(r in self.facts.numbers for r in results):
                return None  # told, not computed
            case Apply(op=op, results=results):
                effect = not op.is_jax and about(op).effect
                asked = effect or any(self.kept(r) for r in results) or (self.failing and self.can_fail(instruction))
                return instruction if asked else None
            case If(results=results, then=then, orelse=orelse):
                keep = [k for k, r in enumerate(results) if self.kept(r)]
                arms = [Region((), self.body(arm), tuple(arm.results[k] for k in keep)) for arm in (then, orelse)]
                if not keep and not arms[0].body and not arms[1].body:
                    return None
                return replace(instruction, results=tuple(results[k] for k in keep), then=arms[0], orelse=arms[1])
            case Call():
                return self.call(instruction)
            case Map(results=results, body=body, filtered=filtered):
                call = body.body[0]
                assert isinstance(call, Call)
                keep = [k for k, r in enumerate(results) if self.kept(r)]
                inner = self.call(call)
                yields = tuple(self.element(body.results[k + filtered]) for k in keep)
                flag = (body.results[0],) if filtered else ()
                return replace(
                    instruction,
                    results=tuple(results[k] for k in keep),
                    body=Region(body.args, (inner,), (*flag, *yields)),
                )
            case For() | While():
                raise AssertionError("loops are functions by now")

    def call(self, call: Call) -> Call:
        operands = tuple(call.operands[k] for k in self.parameters(self.functions[call.callee]))
        results = tuple(call.results[k] for k in self.results(call.callee))
        return replace(call, operands=operands, results=results)
