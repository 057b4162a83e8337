"""Programs of basic blocks: recursion for which no rows can be laid out ahead.

    func @fib(%n):                                 blocks fib(%n) -> (%r):
      if %n < 2 then: yield %n                       0 fib: %c = lt(%n, 2); branch %c 1 2
      else: call @fib(%n - 1) + call @fib(%n - 2)    1: %r := %n; return %r
                                                     2: %t = sub(%n, 1); %n := %t; enter 0 saving (%n) then 3
                                                     3 restores (%n): %a := %r; %u = sub(%n, 2); %n := %u; enter 0 ...
                                                     4 restores (%a): %b := %r; %s = add(%a, %b); %r := %s; return %r

Each example has a program counter, registers (values that one block sets and another one reads) and a stack. `Enter`
pushes the block to go on with and the registers that it will need, and jumps; a block that `restores` pops them. A tail
call is a jump. (Radul, Patton, Maclaurin, Hoffman and Saurous: Automatically Batching Control-Intensive Programs for
Modern Accelerators, MLSys 2020.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from autobatch.ir.core import Apply, Function, Operand, Value
from autobatch.ir.types import BOOL, INT, Array
from autobatch.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Move:
    """`register := source`. The moves of a block happen at once: all sources are read before any register is set."""

    register: Value
    source: Operand


@dataclass(frozen=True, slots=True)
class Jump:
    target: int


@dataclass(frozen=True, slots=True)
class Branch:
    condition: Operand
    then: int
    orelse: int


@dataclass(frozen=True, slots=True)
class Enter:
    """A call: push the block `after` and the registers `saved`, then go on at `target`."""

    target: int
    saved: tuple[Value, ...]
    after: int
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Return:
    """Go on with the block on top of the stack, which pops it; the example is done where there is none. The function
    returns what its moves have set the registers `results` to."""

    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """The example is done: it fails with `BlockProgram.failures[failure]`."""

    failure: int


End = Jump | Branch | Enter | Return | Fail
"""The closed set of ends of blocks."""


@dataclass(frozen=True, slots=True)
class Block:
    """Straight-line code. First the registers `restores` are popped (None: this block is behind no call), then `takes`
    happen, the `body`, and `moves`."""

    name: str
    restores: tuple[Value, ...] | None
    takes: tuple[Move, ...]
    body: tuple[Apply, ...]
    moves: tuple[Move, ...]
    end: End


@dataclass(frozen=True, slots=True)
class Site:
    """What an example can fail with, and where: the name of Python's exception, and its message."""

    kind: str
    message: str
    span: Span = field(default=NOWHERE, compare=False)


ENDLESS = "RuntimeError"
"""What an example fails with whose recursion has taken as many steps as it may."""
DEEP = "RecursionError"
"""The same of its depth."""


def _endless(steps: int) -> str:
    return f"this recursion never ends, presumably: max_steps={steps}"


_TOO_DEEP = "maximum recursion depth exceeded: max_depth="


def is_endless(kind: str, message: str, steps: int) -> bool:
    """Is it what an example fails with that may take so many steps?"""
    return kind == ENDLESS and message.startswith(f"{_endless(steps)} ")


def is_too_deep(kind: str, message: str) -> bool:
    """Is it what an example fails with whose stack is full?"""
    return kind == DEEP and message.startswith(_TOO_DEEP)


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """A function that ran by blocks, and all that it calls. `blocks[0]` is its entry. Operands of the operation set the
    registers `parameters`, then those of `captured`, which never change. `results` are registers. `forced`: the control
    that no row can be laid out for; `functions`: the names of what became blocks; `structured`: these functions before
    that, the first one with the arguments `parameters` (`blocks.py`). Two programs are equal if they are
    one."""

    name: str
    parameters: tuple[Value, ...]
    captured: tuple[Value, ...]
    results: tuple[Value, ...]
    blocks: tuple[Block, ...]
    failures: tuple[Site, ...]
    forced: Span
    functions: tuple[str, ...] = ()
    structured: tuple[Function, ...] = ()

    def __str__(self) -> str:
        return print_blocks(self)

    @property
    def types(self) -> tuple[Array, ...]:
        """The types of the results of the operation: those of the function, then its status."""
        found = [r.type for r in self.results]
        return (*(t for t in found if isinstance(t, Array)), STATUS)

    def sites(self, depth: int, steps: int) -> tuple[Site, ...]:
        """What each status from 1 means: the failures of the program, then for each block that a stack of `depth`
        entries was full there, then that `steps` blocks were not enough and it was the next one."""
        deep = (
            f"{_TOO_DEEP}{depth} entries of the stack; test for the end of the "
            "recursion before this call, or raise ab.options(max_depth=...) if it is meant to go so deep"
        )
        long = (
            f"{_endless(steps)} blocks were not enough; test for its end before the call, or raise "
            "ab.options(max_steps=...) if it is meant to run so long"
        )
        ends = [b.end.span if isinstance(b.end, Enter) else self.forced for b in self.blocks]
        return (
            *self.failures,
            *(Site(DEEP, deep, span) for span in ends),
            *(Site(ENDLESS, long, self.span_of(b)) for b in self.blocks),
        )

    def span_of(self, block: Block) -> Span:
        """A place in the source that a block stems from."""
        if isinstance(block.end, Enter):
            return block.end.span
        return next((i.span for i in block.body if i.span != NOWHERE), self.forced)

    def spans(self) -> Iterator[Span]:
        """The place of each operation and of each call."""
        for block in self.blocks:
            yield from (i.span for i in block.body)
            if isinstance(block.end, Enter):
                yield block.end.span

    def too_deep(self, block: int) -> int:
        """The status of an example whose stack is full at the end of a block."""
        return 1 + len(self.failures) + block

    def too_long(self, block: int) -> int:
        """The status of an example that is stopped before a block."""
        return 1 + len(self.failures) + len(self.blocks) + block


STATUS = Array(INT.dtype)
"""The type of a status: 0, or 1 + the position of what the example failed with."""


def targets(end: End) -> tuple[int, ...]:
    """The blocks that may run next."""
    match end:
        case Jump(target=target):
            return (target,)
        case Branch(then=then, orelse=orelse):
            return (then, orelse)
        case Enter(target=target, after=after):
            return (target, after)
        case Return() | Fail():
            return ()
        case _:
            assert_never(end)


def print_blocks(program: BlockProgram) -> str:
    """The program as text, one line for each operation."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: BlockProgram) -> Iterator[str]:
    held = f" with {_values(program.captured)}" if program.captured else ""
    yield f"blocks {program.name}({_values(program.parameters)}){held} -> ({_values(program.results)}):"
    for number, block in enumerate(program.blocks):
        restored = "" if block.restores is None else f" restores ({_values(block.restores)})"
        yield f"  {number} {block.name}{restored}:"
        yield from (f"    {m.register} := {m.source}" for m in block.takes)
        for i in block.body:
            yield f"    {_values(i.results)} = {i.op.name}({', '.join(map(str, i.operands))})"
        yield from (f"    {m.register} := {m.source}" for m in block.moves)
        yield f"    {_end(block.end)}"


def _end(end: End) -> str:
    match end:
        case Jump(target=target):
            return f"jump {target}"
        case Branch(condition=condition, then=then, orelse=orelse):
            return f"branch {condition} {then} {orelse}"
        case Enter(target=target, saved=saved, after=after):
            return f"enter {target} saving ({_values(saved)}) then {after}"
        case Return(results=results):
            return f"return {_values(results)}"
        case Fail(failure=failure):
            return f"fail {failure}"
        case _:
            assert_never(end)


def _values(values: Iterable[Value]) -> str:
    return ", ".join(map(str, values))


def problems(program: BlockProgram) -> Iterator[str]:
    """What is wrong with a program, in words."""
    blocks, captured = program.blocks, frozenset(program.captured)
    given = {v for b in blocks for v in _given(b)} | {*program.parameters, *captured}
    behind = {b.end.after: b.end for b in blocks if isinstance(b.end, Enter)}
    for number, block in enumerate(blocks):
        where = f"block {number}"
        if any(not 0 <= t < len(blocks) for t in targets(block.end)):
            yield f"{where} leads to a block that there is not"
        if (number in behind) != (block.restores is not None):
            yield f"{where} pops what no call has pushed, or leaves it there"
        if block.restores is not None and number in behind and block.restores != behind[number].saved:
            yield f"{where} restores ({_values(block.restores)}), saved are ({_values(behind[number].saved)})"
        for x in _read(block):
            if isinstance(x, Value) and x not in given:
                yield f"{where} reads {x}, which nothing sets"
            if not isinstance(x, Value) and x.constant >= 0:
                yield f"{where} reads an array of the module, which should be captured"
        for v in _given(block):
            if v in captured:
                yield f"{where} sets {v}, which never changes"
        if isinstance(block.end, Branch) and block.end.condition.type != BOOL:
            yield f"{where} tests {block.end.condition.type}"
        if isinstance(block.end, Fail) and not 0 <= block.end.failure < len(program.failures):
            yield f"{where} fails with what is not listed"


def _given(block: Block) -> Iterator[Value]:
    yield from block.restores or ()
    yield from (m.register for m in (*block.takes, *block.moves))
    yield from (r for i in block.body for r in i.results)


def _read(block: Block) -> Iterator[Operand]:
    yield from (m.source for m in (*block.takes, *block.moves))
    yield from (x for i in block.body for x in i.operands)
    if isinstance(block.end, Branch):
        yield block.end.condition
    if isinstance(block.end, Enter):
        yield from block.end.saved
