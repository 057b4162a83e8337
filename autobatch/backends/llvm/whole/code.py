"""A region as one function of machine code over the rows of a batch, and how it is called.

    i64 run(operands, constants, results, scratch: pointers; begin, end: rows)

It computes the rows from `begin` to `end`, and returns whether one of them failed. How many rows there are is no part
of the text, and no row depends on another: any cut of a batch into calls gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.interrupts import Interrupts
from autobatch.backends.llvm.lanes.control import RegionWriter
from autobatch.backends.llvm.lanes.lifetimes import Lifetimes
from autobatch.backends.llvm.lanes.ops import Environment, located, shape_of
from autobatch.backends.llvm.lanes.pressure import most_at_once
from autobatch.backends.llvm.lanes.program import (
    Body,
    CodeOperand,
    CodeSignature,
    EmittedCode,
    Gang,
    GangLoop,
    Result,
    finished,
)
from autobatch.backends.llvm.lanes.recursion import run_recursion
from autobatch.backends.llvm.lanes.refill import LoopSplit, asked_in, refilled, walks
from autobatch.backends.llvm.lanes.reverse import inner_gradient
from autobatch.backends.llvm.lanes.tensors import Tensor, kept
from autobatch.backends.llvm.lanes.widths import widest
from autobatch.backends.llvm.lanes.writer import STACK, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.whole.gangs import form_gangs
from autobatch.backends.llvm.whole.region import CURE, WholeRegion
from autobatch.common.stages import stage
from autobatch.errors import UnsupportedError
from autobatch.ir.core import Apply, Instruction, Region, walk
from autobatch.ir.core import Operand as Read
from autobatch.ir.types import Array
from autobatch.source import NOWHERE, Span

ENTRY = "run"
"""The name of the function."""

MANY = 600
"""Instructions of a function up to which its values are two registers each, where they fit."""

WIDEST = 128
"""Numbers of an array up to which each lane of a gang has its own."""


SCRATCH = 1 << 28
"""Bytes that arrays and the states of loops may take, for each thread."""


@dataclass(frozen=True)
class Direct:
    """The frame of a call that has its pointers as parameters."""

    def argument(self, number: int) -> str:
        return f"%a{number}"

    def result(self, number: int) -> str:
        return f"%r{number}"


class _Control(RegionWriter):
    """Runs the region of a whole function: recursion is a program of blocks among other operations."""

    def __init__(self, gang: Gang, arrays: Sequence[Any], lifetimes: Lifetimes | None = None) -> None:
        super().__init__(gang.w, gang.constant, partial(inner_gradient, gang), lifetimes)
        self.gang, self.arrays = gang, arrays

    def read(self, x: Read, env: Environment, arrays: Sequence[Any] = ()) -> Tensor:
        return super().read(x, env, arrays or self.arrays)

    def instruction(self, instruction: Instruction, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        try:
            if isinstance(instruction, Apply) and instruction.op.name == "blocks":
                xs = [kept(self.w, self.read(x, env)) for x in instruction.operands]
                return run_recursion(self.gang, instruction.op, xs, mask)
            return super().instruction(instruction, env, mask)
        except RefusedError as error:
            located(error, instruction)
            raise


@dataclass(frozen=True)
class WholeCode:
    """The text of a whole function, what goes in and comes out, and how many rows a gang has."""

    program: EmittedCode
    signature: CodeSignature
    width: int
    arrays: tuple[Any, ...] = ()
    """Operands that the program holds itself, behind those of the call but before its last one."""


def write(whole: WholeRegion, sites: bool) -> WholeCode:
    """The code of a region. `sites`: its last result says what an example has failed with. UnsupportedError where there
    is none, or no processor for it."""
    try:
        with stage("LLVM: write IR"):
            return _write(whole, sites)
    except UnavailableError as error:
        raise unavailable(error) from error


def unavailable(error: UnavailableError) -> UnsupportedError:
    """The error of a user on whose machine no code of ours runs."""
    return UnsupportedError(f"backend='llvm' is not available: {error}", cure="use backend='xla'")


def _write(whole: WholeRegion, sites: bool) -> WholeCode:
    region = whole.region
    refused: RefusedError | None = None
    try:
        operands = tuple(CodeOperand(*shape_of(v.type), varies=k >= whole.shared) for k, v in enumerate(region.args))
        results = [Result(*shape_of(r.type)) for r in region.results]
        if sites and not machine_code.is_written_for_others():
            results[-1] = replace(results[-1], seldom=True)
        signature = CodeSignature(operands, tuple(results), False)
        for width in (*_wider(whole), *widths(whole)):
            try:
                return WholeCode(_program(signature, width, whole, sites), signature, width)
            except RefusedError as error:
                refused = refused or error
    except RefusedError as error:
        refused = error
    assert refused is not None
    raise refusal(refused, region)


def refusal(refused: RefusedError, region: Region) -> UnsupportedError:
    """The error of a user whose function is refused: by an operation, or by the room that all of them take."""
    span = refused.span or _largest(region)
    return UnsupportedError(f"backend='llvm' has no machine code for this: {refused}", span, CURE)


def _largest(region: Region) -> Span:
    """Where the largest array is made."""
    placed = [i for i in walk(region) if i.span != NOWHERE]
    return max(placed, key=_numbers).span if placed else NOWHERE


def _numbers(i: Instruction) -> int:
    return max((math.prod(r.type.shape) for r in i.results if isinstance(r.type, Array)), default=0)


def widths(whole: WholeRegion) -> Iterator[int]:
    """Rows of a gang: as many as a vector has numbers of 32 bits, or one."""
    lanes = machine_code.host().target.lanes
    fits = widest(whole.region, _varying(whole)) <= WIDEST and not whole.walks_examples
    if fits and form_gangs(whole.forward, whole.shared, lanes):
        yield lanes
    yield 1


def _wider(whole: WholeRegion) -> Iterator[int]:
    """Rows of a gang whose values are two registers each: two chains of operations, of which one goes on while the
    other waits. Where twice the numbers are more than twice the registers it waits for memory instead. (Of Mandelbrot's
    loop it takes two thirds of the time, of noise, which holds 27 numbers at once, four fifths.) A long function has
    many chains already, and twice the instructions would take the compiler twice the time. (A recursion holds what it
    has kept behind its calls besides, so each of its functions may have a third of the registers.)"""
    if sum(1 for _ in walk(whole.forward)) > MANY:
        return
    if walks(whole.forward, whole.forward.args[: whole.shared]):
        return
    varying, target = _varying(whole), machine_code.host().target
    programs = [i.op["program"] for i in walk(whole.region) if isinstance(i, Apply) and i.op.name == "blocks"]
    held = [most_at_once(f.region, [True] * len(f.region.args)) for p in programs for f in p.structured]
    if all(n <= target.registers // 3 for n in held) and most_at_once(whole.forward, varying) <= target.registers:
        yield from (2 * n for n in widths(whole) if n > 1)


def _varying(whole: WholeRegion) -> list[bool]:
    return [k >= whole.shared for k in range(len(whole.region.args))]


def _program(signature: CodeSignature, width: int, whole: WholeRegion, sites: bool) -> EmittedCode:
    f = LlvmFunction("")
    gang = direct(f, width, signature)
    failed = f.slot(0)
    split = (
        LoopSplit.of(whole.forward, whole.forward.args[: whole.shared], asked_in(whole.region)) if width > 1 else None
    )
    if split is None:
        GangLoop(gang, "%begin", "%end").run(_body(whole, sites, failed))
    else:
        ended = partial(notice, gang.w, failed) if sites else lambda results, done: None
        refilled(split, lambda gang: _Control(gang, whole.constants), gang, "%begin", "%end", ended)
    f.do(f"ret i64 {f.get(failed)}")
    return completed(f, gang)


def direct(f: LlvmFunction, width: int, signature: CodeSignature) -> Gang:
    """The gang of a function that is called directly. Of one lane, arrays may lie in scratch memory."""
    gang = Gang(LaneWriter(f, width), signature, Direct())
    if width == 1:
        gang.reserves_outside()
    gang.w.room = STACK
    gang.w.whole = not machine_code.is_written_for_others()
    asking(f, signature)
    return gang


def asking(f: LlvmFunction, signature: CodeSignature) -> None:
    """Loops ask whether the call is still wanted, where it is one of this process."""
    if not machine_code.is_written_for_others():
        f.interrupts = Interrupts(f, f"%r{len(signature.results)}")


def completed(f: LlvmFunction, gang: Gang) -> EmittedCode:
    """The program of a function that is written to its end."""
    more = f.interrupts.leave(gang.behind) if f.interrupts is not None else ""
    headed(f, gang)
    if gang.scratch > SCRATCH:
        raise RefusedError(f"it needs {gang.scratch:,} bytes for its arrays, more than {SCRATCH:,}")
    return finished(f, f"{f}{more}", gang)


def headed(f: LlvmFunction, gang: Gang) -> None:
    """Write the head of the function, now that all of its parameters are known."""
    parameters = [f"ptr noalias %a{k}" for k in range(len(gang.signature.operands) + len(gang.constants))]
    parameters += [f"ptr noalias %r{k}" for k in range(len(gang.signature.results) + 1)]
    f.head = f"i64 @{ENTRY}({', '.join([*parameters, 'i64 %begin', 'i64 %end'])}) nounwind"


def _body(whole: WholeRegion, sites: bool, failed: str) -> Body:
    def body(gang: Gang, xs: Sequence[Tensor]) -> Sequence[Tensor]:
        found = region_of(gang, whole, xs)
        if sites:
            found[-1] = kept(gang.w, found[-1])
            notice(gang.w, failed, found, gang.mask)
        return found

    return body


def region_of(gang: Gang, whole: WholeRegion, xs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a region in the lanes of a gang."""
    lifetimes = Lifetimes() if whole.has_arrays else None
    return _Control(gang, whole.constants, lifetimes).once(whole.forward, xs, {}, gang.mask)


def notice(w: LaneWriter, failed: str, results: Sequence[Tensor], mask: LaneValue | None) -> None:
    """Has a row of a mask failed, whose last result is its status?"""
    status = w.spread(results[-1].one())
    wrong = w.instruction("icmp ne", status, w.constant(0, status.dtype), "bool")
    some = w.any(wrong if mask is None else w.both(mask, wrong))
    w.f.set(failed, w.f.let(f"or i64 {w.f.get(failed)}, {w.f.let(f'zext i1 {some} to i64')}"))
