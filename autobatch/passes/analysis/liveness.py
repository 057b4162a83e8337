"""Which registers of a program of blocks are read later: what a call must save, and what has to be kept at all.

    2: %t = sub(%n, 1); %n := %t; enter 0 then 3      live before: %n         %n is read behind the call: it is saved
    3 restores (%n): %a := %r; ...                    live before: %r         what was saved comes from the stack

A value that is made and read in one block is no register. (Aho, Lam, Sethi and Ullman: Compilers, section 9.2.5.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from autobatch.ir.blocks import Block, BlockProgram, Branch, End, Enter, Fail, Jump, Return
from autobatch.ir.core import Operand, Value

Live = frozenset[Value]


def with_saved_registers(program: BlockProgram) -> BlockProgram:
    """The program whose calls save what is live behind them, and whose blocks behind calls restore that."""
    behind = {b.end.after for b in program.blocks if isinstance(b.end, Enter)}
    blocks = [replace(b, restores=None) for b in program.blocks]
    live = _live_before(program, blocks)
    saved = {k: tuple(sorted(_across(blocks, k, live), key=lambda v: v.id)) for k in behind}
    restored = [replace(b, restores=saved.get(k)) for k, b in enumerate(blocks)]
    return replace(
        program,
        blocks=tuple(
            replace(b, end=replace(b.end, saved=saved[b.end.after])) if isinstance(b.end, Enter) else b
            for b in restored
        ),
    )


def registers(program: BlockProgram) -> tuple[Value, ...]:
    """The values that are kept between blocks, in a fixed order; the parameters and the results are among them."""
    live = _live_before(program, program.blocks)
    found = frozenset((*program.parameters, *program.results)).union(*live)
    return tuple(sorted(found, key=lambda v: v.id))


def _live_before(program: BlockProgram, blocks: Sequence[Block]) -> list[Live]:
    """For each block the registers that it or a later one reads before they are set: the least solution."""
    ignored = frozenset(program.captured)
    reads = [read_by(b) - ignored for b in blocks]
    made = [_made(b) for b in blocks]
    live: list[Live] = [frozenset() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(blocks))):
            end = blocks[k].end
            moved = frozenset(m.register for m in blocks[k].moves)
            across = _across(blocks, end.after, live) if isinstance(end, Enter) else frozenset()
            found = reads[k] | (((live_behind(end, live) - moved) | across) - made[k])
            if found != live[k]:
                live[k], changed = found, True
    return live


def _across(blocks: Sequence[Block], after: int, live: Sequence[Live]) -> Live:
    """What is read behind a call, but for what it returns."""
    return live[after] - {m.source for m in blocks[after].takes if isinstance(m.source, Value)}


def live_before(program: BlockProgram) -> list[Live]:
    """For each block the registers that it or a later one reads before they are set."""
    return _live_before(program, program.blocks)


def live_behind(end: End, live: Sequence[Live]) -> Live:
    """What the block that runs next reads; a call saves by itself what is read behind it."""
    match end:
        case Jump(target=target) | Enter(target=target):
            return live[target]
        case Branch(then=then, orelse=orelse):
            return live[then] | live[orelse]
        case Return(results=results):
            return frozenset(results)
        case Fail():
            return frozenset()
        case _:
            assert_never(end)


def set_by(block: Block) -> Live:
    """The values that a block sets."""
    return _made(block) | frozenset(m.register for m in block.moves)


def _made(block: Block) -> Live:
    """What a block sets before its moves."""
    made = [r for i in block.body for r in i.results]
    return frozenset((*(block.restores or ()), *(m.register for m in block.takes), *made))


def read_by(block: Block) -> Live:
    """What a block reads before it sets it. Moves come last: what is saved and tested is what was there before them."""
    known = set(block.restores or ())
    found: set[Value] = set()

    def read(operands: Iterable[Operand]) -> None:
        found.update(x for x in operands if isinstance(x, Value) and x not in known)

    read(m.source for m in block.takes)
    known.update(m.register for m in block.takes)
    for instruction in block.body:
        read(instruction.operands)
        known.update(instruction.results)
    read(m.source for m in block.moves)
    end = block.end
    if isinstance(end, Branch):
        read((end.condition,))
    if isinstance(end, Enter):
        read(end.saved)
    return frozenset(found)
