"""The derivative of a program of blocks in reverse, for one row.

    forward     each block that runs writes its number and what it reads to a tape
    backward    the blocks of the tape from the last to the first: each is run again, and then backward

A register has a cotangent, which the block takes that has set it. What a call saved on the stack, the block behind it
took from there: backward that block puts the cotangents on a stack of their own, and the call takes them. Blocks that
set nothing that moves leave nothing on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from autobatch.backends.llvm.lanes.blocks import BlockMachine, Derivatives, laid_out
from autobatch.backends.llvm.lanes.moving import is_moving, moving
from autobatch.backends.llvm.lanes.ops import Environment, shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.stacks import stack_of
from autobatch.backends.llvm.lanes.tape import Cotangents, Totals, accumulate, summed
from autobatch.backends.llvm.lanes.tensors import Tensor, TensorVariable, copied, zeros
from autobatch.backends.llvm.lanes.writer import LaneValue
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.blocks import Block, BlockProgram, Enter
from autobatch.ir.core import Operand, Region, Value
from autobatch.ir.ops import Op
from autobatch.passes.analysis.unused import unused_in_blocks


class Backward(Protocol):
    """Runs regions forward and then backward."""

    totals: Totals

    def again(self, region: Region, env: Environment) -> None:
        """Forward, such that it can be run backward next; `env` gets what is computed."""
        ...

    def pull(self, region: Region, env: Environment, total: Cotangents, mask: LaneValue | None) -> None: ...


Write = Callable[[frozenset[Value], frozenset[Value]], Backward]
"""Of the values that move, and of those that a row may not use."""


class TapedMachine(BlockMachine):
    """Runs an operation `blocks` with a tape, and then backward. `wrt`: do its operands move?"""

    def __init__(self, gang: Gang, op: Op, derivatives: Derivatives, wrt: Sequence[bool], write: Write) -> None:
        super().__init__(gang, op, derivatives)
        if gang.warp is not None:
            raise RefusedError("the derivative of a recursion in a kernel of a GPU")
        inputs = (*self.program.parameters, *self.program.captured)
        self.found = moving_in(self.program, [v for v, moves in zip(inputs, wrt, strict=True) if moves])
        self.inputs, blocks = inputs, self.program.blocks
        self.code = write(self.found, unused_in_blocks(self.program))
        self.taped = {k: self.inputs_of(b) for k, b in enumerate(blocks) if self.moves(b)}
        saved = {k: self.moving(b.end.saved) for k, b in enumerate(blocks) if isinstance(b.end, Enter)}
        self.saved = {k: values for k, values in saved.items() if values}
        size, self.places_on_tape = laid_out(self.taped)
        self.tape, self.written = stack_of(gang, size), self.f.slot(0)
        size, self.places_of_saved = laid_out(self.saved)
        self.returned, self.pending = stack_of(gang, size), self.f.slot(0)

    def moving(self, values: Sequence[Value]) -> list[Value]:
        return [v for v in values if v in self.found]

    def moves(self, block: Block) -> bool:
        """Does it set anything that moves, or push or pop it?"""
        held = [m.register for m in (*block.takes, *block.moves)] + [r for i in block.body for r in i.results]
        held += [*(block.restores or ()), *(block.end.saved if isinstance(block.end, Enter) else ())]
        return bool(self.moving(held))

    def inputs_of(self, block: Block) -> list[Value]:
        """What a block has from those before it."""
        return list(dict.fromkeys((*self.read(block), *(block.restores or ()))))

    # ---- forward

    def begun(self, number: int, env: Environment) -> None:
        if number not in self.taped:
            return
        f = self.f
        turn = f.get(self.written)
        self.tape.ensure(turn, lambda: self.leave(self.program.too_long(number)))
        self.tape.place(turn, 0, "int64", ()).write((), (self.w.constant(number, "int64"),))
        for v, place in zip(self.taped[number], self.places_on_tape[number], strict=True):
            self.tape.place(turn, place, *shape_of(v.type)).fill(env[v] if v in env else self.kept[v].get())
        f.set(self.written, f.add(turn, 1))

    def push(self, number: int, end: Enter, env: Environment) -> None:
        if number in self.saved:  # here there is a way out where no memory is left, and backward none
            self.returned.ensure(self.f.get(self.height), lambda: self.leave(self.program.too_deep(number)))
        super().push(number, end, env)

    # ---- backward

    def pull(self, cts: Sequence[Tensor | None]) -> list[tuple[int, Tensor]]:
        """The cotangents of the operands that move, by their numbers, from those of the results. A row that has failed
        has none."""
        f, w = self.f, self.w
        held = [v for v in self.found if v in self.kept or v in self.inputs]
        self.held = {v: TensorVariable(w, *shape_of(v.type)) for v in held if v not in self.code.totals.memory}
        for v in self.held.values():
            v.set(zeros(w, v.dtype, v.shape))
        fine = f.let(f"icmp eq i64 {f.get(self.status)}, 0")
        with f.when(fine):
            for result, ct in zip(self.program.results, cts, strict=False):
                if ct is not None and result in self.held:
                    self.add(result, ct)
            self.backward()
        return [(k, copied(w, self.held[v].get())) for k, v in enumerate(self.inputs) if v in self.held]

    def backward(self) -> None:
        f = self.f
        head, body, done, never = (f.name(stem) for stem in ("head", "backward", "done", "never"))
        labels = {number: f.name("back") for number in self.taped}
        f.block(head)
        left = f.get(self.written)
        f.branch(f.let(f"icmp eq i64 {left}, 0"), done, body)
        f.block(body, falls=False)
        turn = f.sub(left, 1)
        f.set(self.written, turn)
        (number,) = self.tape.place(turn, 0, "int64", ()).read(())
        table = " ".join(f"i64 {k}, label %{label}" for k, label in labels.items())
        f.do(f"switch i64 {number.text}, label %{never} [{table}]")
        for k, label in labels.items():
            f.block(label, falls=False)
            self.block_backward(k, self.program.blocks[k], turn)
            f.do(f"br label %{head}")
        f.block(never, falls=False)
        f.do("unreachable")
        f.block(done, falls=False)

    def block_backward(self, number: int, block: Block, turn: str) -> None:
        env: Environment = dict(self.captured)
        for v, place in zip(self.taped[number], self.places_on_tape[number], strict=True):
            env[v] = self.tape.place(turn, place, *shape_of(v.type)).final
        taken = [(m.register, self.cast(self.control.read(m.source, env), m.register)) for m in block.takes]
        env.update(taken)
        region = Region((), block.body, ())
        self.code.again(region, env)
        own = Cotangents(self.w, self.code.totals)
        for m, ct in [(m, self.take(m.register)) for m in block.moves]:
            self.hand_on(own, m.source, ct)
        if number in self.saved:
            for v, ct in zip(self.saved[number], self.popped(number), strict=True):
                own.add(v, ct)
        for r in (r for i in block.body for r in i.results):
            self.hand_on(own, r, self.take(r))
        self.code.pull(region, env, own, None)
        of_taken = [(m.source, self.take(m.register), own.take(m.register)) for m in block.takes]
        for source, *each in of_taken:
            for ct in each:
                self.hand_on(own, source, ct)
        before = None if block.restores is None else self.call_before(number)
        if before in self.saved:
            assert before is not None
            self.pushed(before, [[self.take(v), own.take(v)] for v in self.saved[before]])
        for v in list(own.held):
            if v in self.held:
                self.add(v, own.of(v))

    def hand_on(self, own: Cotangents, source: Operand, ct: Tensor | None) -> None:
        """What a register had is that of the value that it was set to."""
        if ct is None or not is_moving(source, self.found):
            return
        assert isinstance(source, Value)
        if shape_of(source.type) != (ct.dtype, ct.shape):
            raise RefusedError("the derivative of a recursion whose results differ in type")
        own.add(source, ct)

    def take(self, v: Value) -> Tensor | None:
        """The cotangent of a register, which is zero from here on: before this it was another value."""
        if v not in self.held or v not in self.kept:
            return None
        held = self.held[v]
        found = copied(self.w, held.get())
        held.set(zeros(self.w, held.dtype, held.shape))
        return found

    def add(self, v: Value, ct: Tensor) -> None:
        accumulate(self.held[v], ct)

    def pushed(self, call: int, cts: Sequence[Sequence[Tensor | None]]) -> None:
        f, values = self.f, zip(self.saved[call], self.places_of_saved[call], cts, strict=True)
        height = f.get(self.pending)
        for v, place, each in values:
            total = zeros(self.w, *shape_of(v.type))
            for ct in each:
                total = total if ct is None else summed(self.w, total, ct)
            self.returned.place(height, place, *shape_of(v.type)).fill(total)
        f.set(self.pending, f.add(height, 1))

    def popped(self, call: int) -> list[Tensor]:
        f = self.f
        height = f.sub(f.get(self.pending), 1)
        f.set(self.pending, height)
        values = zip(self.saved[call], self.places_of_saved[call], strict=True)
        return [copied(self.w, self.returned.place(height, place, *shape_of(v.type)).tensor) for v, place in values]


def moving_in(program: BlockProgram, by: Sequence[Value]) -> frozenset[Value]:
    """The values of a program that move where those of `by` do."""
    found, before = frozenset(by), -1
    while before != len(found):
        before = len(found)
        for block in program.blocks:
            for m in block.takes:
                found |= {m.register} if is_moving(m.source, found) else set()
            found |= moving(Region((), block.body, ()), found)
            for m in block.moves:
                found |= {m.register} if is_moving(m.source, found) else set()
    return found
