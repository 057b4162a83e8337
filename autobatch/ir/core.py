"""The per-example IR, whole: structured SSA over a closed set of six instructions.

A `Module` is what one `@batched` function becomes for ONE example. Its functions call each other; values of an
enclosing region are visible in the regions inside it; the `shared` values of the module are visible everywhere.

    module(shared %0: float32[5x4])
    func @encode(%1: ref<Node>) -> (float32[4]):
      %2: ref<Node> = load[field='left'](%1)
      %3: bool = is_none(%2)
      %4: float32[4] = if %3 then:
        ...
        yield %7
      else:
        %8: float32[4] = call @encode(%2)
        yield %8
      return %4

`Map` is a comprehension (iterations are independent), `For` has a trip count known on entry, `While` does not.
Tuples, dicts and dataclasses built inside the function do not exist here: the front end flattens them away. Only
where no fixed number of values can stand for an object (a tree that a recursion builds) is it *made*, by `make`: then
it is a value of the type `made<>`, which is handed on and never read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import field
from typing import Any

from autobatch.common.record import record
from autobatch.ir.constants import constant_key
from autobatch.ir.ops import Op
from autobatch.ir.types import Type
from autobatch.source import NOWHERE, Span


@record
class Value:
    """One SSA value. `id` is unique in the module; `hint` is the user's name for it, for printing only."""

    id: int
    type: Type
    hint: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return self.id  # passes look values up by the million

    def __str__(self) -> str:
        return f"%{self.id}"


@record
class Literal:
    """A constant operand: a Python scalar, or the position of an array in `Module.constants`."""

    value: bool | int | float | complex | str | None = field(compare=False)
    type: Type
    constant: int = -1
    key: Hashable = field(init=False, repr=False)
    """What the value is compared by."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", constant_key(self.value))

    @property
    def is_wide(self) -> bool:
        """An int that needs more than 32 bits: the host has 64, the device only under x64."""
        return self.constant < 0 and type(self.value) is int and not -(1 << 31) <= self.value < 1 << 31

    def __str__(self) -> str:
        return f"const{self.constant}: {self.type}" if self.constant >= 0 else f"{self.value!r}: {self.type}"


Operand = Value | Literal


@record
class Region:
    """A block with arguments. `results` are yielded to the instruction that owns the region; `free`: what
    `rewrite.free_values` has found, which many passes ask of the same regions inside regions."""

    args: tuple[Value, ...]
    body: tuple[Instruction, ...]
    results: tuple[Operand, ...]
    free: tuple[Value, ...] | None = field(default=None, init=False, compare=False, repr=False)


@record
class Apply:
    """`results = op(operands)`: one leaf operation."""

    results: tuple[Value, ...]
    op: Op
    operands: tuple[Operand, ...]
    span: Span = field(default=NOWHERE, compare=False)


@record
class If:
    """Two regions without arguments, one of which runs."""

    results: tuple[Value, ...]
    condition: Operand
    then: Region
    orelse: Region
    span: Span = field(default=NOWHERE, compare=False)


@record
class For:
    """`count` turns. The body takes the turn (a Python int from 0) and the carried values, and yields the next ones."""

    results: tuple[Value, ...]
    count: Operand
    init: tuple[Operand, ...]
    body: Region
    span: Span = field(default=NOWHERE, compare=False)


@record
class While:
    """`condition` and `body` both take the carried values; `condition` yields one bool, `body` the next values."""

    results: tuple[Value, ...]
    init: tuple[Operand, ...]
    condition: Region
    body: Region
    span: Span = field(default=NOWHERE, compare=False)


@record
class Map:
    """A comprehension: `count` independent turns of `body`, which takes the turn. Each result is a `List` of what the
    body yields. When `filtered`, the body yields one bool more, first: the turns where it is true are kept."""

    results: tuple[Value, ...]
    count: Operand
    body: Region
    filtered: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@record
class Call:
    """A call of a function of the module: one activation."""

    results: tuple[Value, ...]
    callee: str
    operands: tuple[Operand, ...]
    span: Span = field(default=NOWHERE, compare=False)


Instruction = Apply | If | While | For | Map | Call
"""The closed set of instructions: a pass is one `match` over it that ends in `assert_never`."""


@record
class Function:
    """A function for one example. Its region's results are what it returns. `is_loop`: it was a loop or comprehension,
    and calls of it are turns; `waits`: a `while` loop."""

    name: str
    region: Region
    span: Span = field(default=NOWHERE, compare=False)
    waits: bool = field(default=False, compare=False)
    is_loop: bool = field(default=False, compare=False)


@record
class Module:
    """`functions[0]` is the entry. `shared` are inputs that are the same for every example; `constants` arrays that
    literals name."""

    functions: tuple[Function, ...]
    shared: tuple[Value, ...] = ()
    constants: tuple[Any, ...] = ()

    def function(self, name: str) -> Function:
        return next(f for f in self.functions if f.name == name)


def regions(instruction: Instruction) -> tuple[Region, ...]:
    """The regions that an instruction owns, in program order."""
    match instruction:
        case Apply() | Call():  # nearly all of them
            return ()
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case While(condition=condition, body=body):
            return (condition, body)
        case For(body=body) | Map(body=body):
            return (body,)


def operands(instruction: Instruction) -> tuple[Operand, ...]:
    """The operands that an instruction itself reads, without those of its regions."""
    match instruction:
        case Apply(operands=xs) | Call(operands=xs):
            return xs
        case If(condition=c):
            return (c,)
        case While(init=init):
            return init
        case For(count=count, init=init):
            return (count, *init)
        case Map(count=count):
            return (count,)


def walk(region: Region) -> Iterator[Instruction]:
    """Every instruction of a region and of the regions inside it, in program order."""
    for instruction in region.body:
        yield instruction
        for inner in regions(instruction):
            yield from walk(inner)
