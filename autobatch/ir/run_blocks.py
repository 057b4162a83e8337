"""Runs a program of blocks for one example, with a stack of Python: what such a program means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.blocks import Block, BlockProgram, Branch, Enter, Fail, Jump, Move, Return
from autobatch.ir.core import Operand, Value
from autobatch.ir.ops import Op
from autobatch.ir.types import Array

Evaluate = Callable[..., Sequence[Any]]
"""`evaluate(op, types of results, *operands)`: a leaf operation on the values of one example."""


@dataclass
class Activity:
    """One example on its way through a program: the block that is next, None where it is done; registers; the stack of
    blocks to go on with and of what they need; how many blocks it has run, and what it failed with."""

    program: BlockProgram
    evaluate: Evaluate
    depth: int
    steps: int
    registers: dict[Value, Any]
    block: int | None = 0
    stack: list[tuple[int, list[Any]]] = field(default_factory=list)
    taken: int = 0
    status: int = 0

    def step(self) -> None:
        """Run one block."""
        assert self.block is not None
        if self.taken == self.steps:
            self.fail(self.program.too_long(self.block))
            return
        self.taken += 1
        block = self.program.blocks[self.block]
        env = self.registers
        if block.restores is not None:
            _, held = self.stack.pop()
            env.update(zip(block.restores, held, strict=True))
        self.move(block.takes)
        for i in block.body:
            types = [r.type for r in i.results if isinstance(r.type, Array)]
            made = self.evaluate(i.op, types, *map(self.read, i.operands))
            env.update((r, cast(x, t)) for r, x, t in zip(i.results, made, types, strict=True))
        self.leave(block, self.block)

    def leave(self, block: Block, number: int) -> None:
        match block.end:
            case Jump(target=target):
                self.block = target
            case Branch(condition=condition, then=then, orelse=orelse):
                self.block = then if bool(self.read(condition)) else orelse
            case Enter(target=target, saved=saved, after=after):
                if len(self.stack) == self.depth:
                    self.fail(self.program.too_deep(number))
                    return
                self.stack.append((after, [self.read(x) for x in saved]))
                self.block = target
            case Return():
                self.block = self.stack[-1][0] if self.stack else None
            case Fail(failure=failure):
                self.fail(1 + failure)
                return
            case _:
                assert_never(block.end)
        self.move(block.moves)

    def fail(self, status: int) -> None:
        self.status, self.block = status, None

    def move(self, moves: Sequence[Move]) -> None:
        values = [cast(self.read(m.source), m.register.type) for m in moves]
        self.registers.update(zip((m.register for m in moves), values, strict=True))

    def read(self, x: Operand) -> Any:
        if isinstance(x, Value):
            return self.registers[x]
        assert isinstance(x.type, Array) and x.constant < 0
        return jax_compat.literal(x.value, x.type)

    @property
    def results(self) -> list[Any]:
        """Those of the operation: zeros for an example that failed, then its status."""
        types = self.program.types
        found = [
            jax_compat.zeros(t.shape, jax_compat.device_dtype(t)) if self.status else self.registers[r]
            for r, t in zip(self.program.results, types, strict=False)
        ]
        return [*found, jnp.asarray(self.status, jax_compat.device_dtype(types[-1]))]


def activity(op: Op, evaluate: Evaluate, operands: Sequence[Any]) -> Activity:
    """An example that is about to start."""
    program: BlockProgram = op["program"]
    inputs = (*program.parameters, *program.captured)
    registers = {v: cast(x, v.type) for v, x in zip(inputs, operands, strict=True)}
    return Activity(program, evaluate, op["depth"], op["steps"], registers)


def run_blocks(op: Op, evaluate: Evaluate, operands: Sequence[Any]) -> list[Any]:
    """The results of an operation `blocks` for one example."""
    example = activity(op, evaluate, operands)
    while example.block is not None:
        example.step()
    return example.results


def cast(value: Any, type: Any) -> Any:
    """A value as a register of a type holds it."""
    assert isinstance(type, Array)
    if type.dtype.startswith("key<"):
        return value
    return jnp.broadcast_to(jnp.asarray(value, jax_compat.device_dtype(type)), type.shape)
