"""What a whole function computes, as one region of numbers and small arrays; what does not fit is refused.

    func @f(%1: float32[]) -> (float32[]):          inputs   shared %0, batched %1
      %4 = masked (%1, %0) do ...            ->     region   (%0, %1): masked ..., mul ...; yield %5
      %5 = mul(%4, %0)

The region is that of the entry behind the passes that put control on numbers under masks, and recursion on numbers into
programs of blocks. No host has looked at any number: whatever a batched number decides is decided in the code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autobatch.backends.interface import WholeFunction, Work
from autobatch.backends.llvm.lanes.control import parts
from autobatch.backends.llvm.lanes.tensors import LEAST, SMALL
from autobatch.backends.llvm.lanes.writer import FLOATS
from autobatch.data.columns import ColumnInput, WordInput
from autobatch.errors import Span, UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Apply,
    Array,
    Call,
    For,
    If,
    Instruction,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.leaf import BlockProgram
from autobatch.ir.ops import OWN
from autobatch.ir.printer import print_module
from autobatch.passes.fallible import depending_on
from autobatch.passes.simplify import forward

CURE = "use backend='xla', which computes rows of structure and products of matrices"

WRITTEN_OUT = 150
"""Numbers of arrays that operations give up to which these are kept in registers."""

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
    def registers(self) -> int:
        """How many numbers of an array its code keeps in registers: few where it has many operations on such, which
        are written out for each number. (LLVM takes more than twice the time for twice the code.)"""
        made = (r.type for region in all_regions(self.region) for i in region.body for r in i.results)
        sizes = (math.prod(t.shape) for t in made if isinstance(t, Array))
        return SMALL if sum(n for n in sizes if LEAST < n <= SMALL) <= WRITTEN_OUT else LEAST

    @cached_property
    def has_arrays(self) -> bool:
        """Is there a value of so many numbers that they lie in memory?"""
        made = (r for i in walk(self.forward) for r in i.results)
        sizes = (math.prod(v.type.shape) for v in (*self.region.args, *made) if isinstance(v.type, Array))
        return any(n > self.registers for n in sizes)

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


# ---- estimate
#
# What one example costs as machine code: what `choice.py` goes by.


SORTS = ("sort", "top_k")

TURNS, INNER = 16, 4
"""Iterations that a loop over structure is taken to have, and calls of a recursion; and those of such a loop inside."""


def work_of(whole: WholeRegion) -> Work:
    """What one example costs, as far as that can be told."""
    cost = _WorkCount(_computed(whole), _varying_in(whole), TURNS if whole.columns else 1)
    cost.region(whole.region, 1)
    follow = _recursions(whole)
    own = _own_products(whole.region, set(whole.region.args[whole.shared :]))
    return Work(
        cost.operations,
        cost.multiplications,
        cost.longest,
        cost.loops,
        cost.decided,
        cost.inside,
        cost.elements,
        cost.branches,
        own,
        bool(whole.columns),
        len(follow),
        sum(follow),
        sum(math.prod(r.type.shape) for r in whole.region.results if isinstance(r.type, Array)),
        whole.fails,
        cost.dots,
        cost.own,
    )


def _own_products(region: Region, varying: set[Operand]) -> int:
    """The products of a region, outside of its control, of which each example has both factors for itself, and
    sorts."""
    found = 0
    for i in region.body:
        if not isinstance(i, Apply) or not varying.isdisjoint(i.operands):
            varying.update(i.results)
        if isinstance(i, Apply) and i.op.name == "dot_general" and varying.issuperset(i.operands):
            found += 1
        elif isinstance(i, Apply):
            found += i.op.name in SORTS and not varying.isdisjoint(i.operands)
    return found


def _multiplications(ins: Sequence[Type], outs: Sequence[Type], params: Mapping[str, Any]) -> int:
    """Those of a product."""
    if not isinstance(ins[0], Array) or not isinstance(outs[0], Array):
        return 0
    (left, _), _ = params["dimension_numbers"]
    summed: int = math.prod(ins[0].shape[k] for k in left)
    return math.prod(outs[0].shape) * summed


def _computed(whole: WholeRegion) -> Collection[Operand]:
    """What floats of the function decide or compute: of all else the host of XLA knows the value."""
    if whole.module is None:
        return frozenset()
    values = (v for r in all_regions(whole.region) for v in (*r.args, *(v for i in r.body for v in i.results)))
    return depending_on(whole.module, {v for v in values if _is_float(v.type)})


def _varying_in(whole: WholeRegion) -> Collection[Operand]:
    """What each example has for itself: what depends on its arguments, and on the parameters of recursions."""
    found, size = set[Operand](whole.region.args[whole.shared :]), -1

    def flow(sources: Iterable[Operand], targets: Iterable[Value]) -> None:
        found.update(y for x, y in zip(sources, targets, strict=False) if x in found)

    def region(of: Region) -> None:
        for i in of.body:
            if not found.isdisjoint(operands(i)):
                found.update(i.results)
            for inner in _inside(i):
                if isinstance(i, Apply) and i.op.name == "blocks":
                    found.update(inner.args)
                elif isinstance(i, Apply):
                    flow(i.operands, inner.args)
                elif isinstance(i, For | While):
                    carried = inner.args[isinstance(i, For) :]
                    flow(i.init, carried)
                    flow(inner.results, carried)
                region(inner)
                flow(inner.results, i.results)

    while size < len(found):
        size = len(found)
        region(whole.region)
    return found


def _recursions(whole: WholeRegion) -> list[bool]:
    """The recursions of a function: do floats decide a branch of each?"""
    inside = [i for r in all_regions(whole.region) for i in r.body if isinstance(i, Apply)]
    return [_follows_floats(x) for i in inside for _, x in i.op.params if isinstance(x, BlockProgram)]


def _follows_floats(program: BlockProgram) -> bool:
    """Do floats decide a branch of a recursion?"""
    for region in regions_of(program):
        inside = [i for r in all_regions(region) for i in r.body]
        made = {r: i for i in inside if isinstance(i, Apply) for r in i.results}
        todo: list[Operand] = [i.condition for i in inside if isinstance(i, If)]
        todo += [i.condition.results[0] for i in inside if isinstance(i, While)]
        seen: set[Operand] = set()
        while todo:
            x = todo.pop()
            if _is_float(x.type):
                return True
            if x not in seen and x in made:
                seen.add(x)
                todo += made[x].operands
    return False


def regions_of(x: Any) -> tuple[Region, ...]:
    """Those in a parameter of an operation."""
    if isinstance(x, Region):
        return (x,)
    return tuple(f.region for f in x.structured) if isinstance(x, BlockProgram) else ()


def all_regions(region: Region) -> Iterator[Region]:
    """A region, and those inside, in parameters of operations too."""
    yield region
    for inner in (r for i in region.body for r in _inside(i)):
        yield from all_regions(inner)


def _inside(i: Instruction) -> Iterable[Region]:
    """The regions of an instruction, in parameters of operations too."""
    return (r for _, x in i.op.params for r in regions_of(x)) if isinstance(i, Apply) else regions(i)


class _WorkCount:
    """`computed`: the values that the host of XLA does not know; `varying`: those that each example has for itself.
    `turns`: of loops over structure."""

    def __init__(self, computed: Collection[Operand], varying: Collection[Operand], turns: int) -> None:
        self.computed, self.varying, self.turns, self.within, self.outside = computed, varying, turns, 0, 0
        self.operations = self.multiplications = self.longest = self.loops = self.decided = self.inside = 0
        self.elements = self.branches = self.dots = self.own = 0

    def region(self, region: Region, times: int) -> None:
        for i in region.body:
            self.instruction(i, times)

    def instruction(self, i: Instruction, times: int) -> None:
        match i:
            case For(count=Literal(value=int(turns)), body=body):
                self.region(body, times * max(turns, 0))
            case For(count=count, body=body):
                self.loop(count, (body,), times)
            case While(condition=test, body=body):
                self.loops += 1
                self.loop(test.results[0], (test, body), times)
            case Apply(op=op):
                for _, x in op.params:
                    self.parameter(x, times)
                self.operations += times
                ins, outs, params = [x.type for x in i.operands], [r.type for r in i.results], dict(op.params)
                self.one(op.name, ins, outs, params, times)
                if op.name == "dot_general" and all(x in self.varying for x in i.operands):
                    self.own += times * _multiplications(ins, outs, params)
            case _:
                self.operations += times * isinstance(i, If)
                self.branches += isinstance(i, If)
                for inner in regions(i):
                    self.region(inner, times)

    def loop(self, end: Operand, regions: Sequence[Region], times: int) -> None:
        """A loop of so many turns, or which ends by that."""
        decides = end in self.computed
        self.within += decides
        self.decided += decides
        if decides:
            for inner in regions:
                self.region(inner, times)
        else:
            self.over_structure(regions, times)
        self.within -= decides

    def over_structure(self, regions: Sequence[Region], times: int) -> None:
        """What runs once for each element of a list, or for each call of a recursion."""
        turns = min(self.turns, INNER) if self.outside else self.turns
        self.outside += 1
        for region in regions:
            self.region(region, times * turns)
        self.outside -= 1

    def parameter(self, x: Any, times: int) -> None:
        """What stands in the parameters of an operation: programs of JAX, or of blocks."""
        if isinstance(x, Region):
            self.region(x, times)
        elif isinstance(x, BlockProgram):
            self.loops += 1
            self.over_structure(regions_of(x), times)
        elif (program := jax_compat.program_of(x)) is not None:
            self.jaxpr(program, times)
        elif isinstance(x, (tuple, list)):
            for y in x:
                self.parameter(y, times)

    def jaxpr(self, program: Any, times: int) -> None:
        for e in program.eqns:
            inside = times * e.params["length"] if e.primitive.name == "scan" else times
            for x in e.params.values():
                self.parameter(x, inside)
            self.operations += times
            self.loops += e.primitive.name == "while"
            self.branches += e.primitive.name == "cond"
            ins, outs = ([_of_aval(v.aval) for v in vs] for vs in (e.invars, e.outvars))
            self.one(e.primitive.name, ins, outs, e.params, times)

    def one(self, name: str, ins: Sequence[Type], outs: Sequence[Type], params: dict[str, Any], times: int) -> None:
        shapes = [t.shape for t in (*ins, *outs) if isinstance(t, Array)]
        self.elements += times * self.size(name, ins, outs)
        if name == "dot_general":
            found = times * _multiplications(ins, outs, params)
            self.dots += times
            self.inside += found * bool(self.within)
            self.multiplications += found * (not self.within)
        elif name in FLOATS:
            self.longest = max([self.longest, *map(math.prod, shapes)])

    def size(self, name: str, ins: Sequence[Type], outs: Sequence[Type]) -> int:
        """The numbers that an operation makes, or reads one after another."""
        read = ins if name.startswith(("reduce", "arg", "cum", *SORTS)) else ()
        return max([1, *(math.prod(t.shape) for t in (*read, *outs) if isinstance(t, Array))])


def _is_float(type: Type) -> bool:
    return isinstance(type, Array) and not (type.is_integer or type.is_bool)


def _of_aval(aval: Any) -> Type:
    return Array(str(getattr(aval, "dtype", "float32")), tuple(getattr(aval, "shape", ())))
