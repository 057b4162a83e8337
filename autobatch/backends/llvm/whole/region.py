"""What a whole function computes, as one region of numbers and small arrays; what does not fit is refused.

    func @f(%1: float32[]) -> (float32[]):          inputs   shared %0, batched %1
      %4 = masked (%1, %0) do ...            ->     region   (%0, %1): masked ..., mul ...; yield %5
      %5 = mul(%4, %0)

The region is that of the entry behind the passes that put control on numbers under masks, and recursion on numbers into
programs of blocks. No host has looked at any number: whatever a batched number decides is decided in the code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autobatch.backends.interface import WholeFunction
from autobatch.backends.llvm.lanes.control import parts
from autobatch.backends.llvm.lanes.tensors import SMALL
from autobatch.data.schema import ColumnInput, WordInput
from autobatch.errors import UnsupportedError
from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import Apply, Call, For, Instruction, Map, Module, Region, Value, walk
from autobatch.ir.ops import OWN
from autobatch.ir.printer import print_module
from autobatch.ir.types import Array, Type
from autobatch.passes.simplify.forward import forward
from autobatch.source import Span

CURE = "use backend='xla', which computes rows of structure and products of matrices"

WIDEST = 1 << 15
"""Numbers that an array of one example may have: a stack of some hundred vectors; what is larger is XLA's."""


@dataclass(frozen=True)
class WholeRegion:
    """`region` takes the shared inputs of the module, then the batched ones. `constants`: arrays that its literals
    name. `columns`: those of the shared inputs that hold what each example has for itself."""

    region: Region
    shared: int
    constants: tuple[Any, ...]
    columns: frozenset[Value] = frozenset()
    module: Module | None = field(default=None, repr=False)
    """What it was made of."""
    inputs: tuple[ColumnInput | WordInput, ...] = ()
    fails: bool = False
    """As in `interface.Function`."""

    def __str__(self) -> str:
        """The region as a function."""
        return "" if self.module is None else print_module(self.module)

    @cached_property
    def forward(self) -> Region:
        """The region that code is written of which takes no derivatives."""
        return forward(self.region)

    @cached_property
    def has_arrays(self) -> bool:
        """Is there a value of so many numbers that they lie in memory?"""
        made = (r for i in walk(self.forward) for r in i.results)
        return any(isinstance(v.type, Array) and math.prod(v.type.shape) > SMALL for v in (*self.region.args, *made))

    @property
    def walks_examples(self) -> bool:
        """Does a recursion walk over what each example has for itself, and part at the calls that it makes? Then lanes
        of a gang would hardly ever be in one place, and a row by itself is faster: 4,000 expression trees take 2.2 ms
        in place of 2.9, though both arms of their branches make the same call, which melds."""
        return any(map(self._walks, walk(self.region)))

    def _walks(self, i: Instruction) -> bool:
        if not isinstance(i, Apply) or i.op.name != "blocks":
            return False
        program: BlockProgram = i.op["program"]
        inputs = (*program.parameters, *program.captured)
        held = {v for v, x in zip(inputs, i.operands, strict=True) if x in self.columns}
        inside = (j for f in program.structured for j in walk(f.region))
        reads = any(isinstance(j, Apply) and j.op.name == "take_row" and j.operands[0] in held for j in inside)
        return reads and parts(program.structured)


def whole_function(source: WholeFunction) -> WholeRegion:
    """The region of a module's entry. UnsupportedError where it holds what is no arithmetic on numbers and small
    arrays: the operation, its line, and what to do."""
    module, inputs = source.module, tuple(source.inputs)
    entry = module.functions[0]
    for value in (*module.shared, *entry.region.args):
        what = f"the argument {value.hint}" if value.hint else "an argument"
        _check_type(value.type, entry.span, what, of_all=value in module.shared)
    for instruction in walk(entry.region):
        match instruction:
            case Call(callee=name, span=span):
                raise _refused(f"a call of {name} that is an activation of its own", span)
            case Map(span=span):
                raise _refused("a comprehension whose length is not known while compiling", span)
            case For(count=Value(), span=span):
                raise _refused("a loop whose turns the host counts", span)
            case Apply(op=op, results=(), span=span) if not op.is_jax and OWN[op.name].effect:
                raise _refused(f"what the host checks ({op.name})", span)
            case Apply(op=op, results=results, span=span):
                for r in results:
                    _check_type(r.type, span, op.name)
            case _:
                pass
    for k, x in enumerate(entry.region.results):
        _check_type(x.type, entry.span, f"result {k}")
    region = Region((*module.shared, *entry.region.args), entry.region.body, entry.region.results)
    last = module.shared[len(module.shared) - len(inputs) :]
    named = list(zip(last, inputs, strict=True))
    columns = frozenset(v for v, x in named if isinstance(x, ColumnInput))
    return WholeRegion(region, len(module.shared), module.constants, columns, module, inputs, source.fails)


def _check_type(type: Type, span: Span, what: str, of_all: bool = False) -> None:
    """`of_all`: all rows share it, so it may be as large as it likes."""
    if not isinstance(type, Array):
        raise _refused(f"{what} of type {type}: rows of structure", span)
    size = 1
    for n in type.shape:
        size *= n
    if size > WIDEST and not of_all:
        raise _refused(f"{what}: an array of {size:,} numbers in one example", span)


def of_kernels(error: UnsupportedError) -> UnsupportedError:
    """What is no machine code is no kernel."""
    words = error.message.replace("backend='llvm' has no machine code", "backend='cuda' has no kernel")
    return UnsupportedError(words, error.span, error.cure, error.also)


def _refused(what: str, span: Span) -> UnsupportedError:
    return UnsupportedError(f"backend='llvm' has no machine code for this: {what}", span, CURE)
