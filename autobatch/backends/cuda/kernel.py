"""A region as a kernel: each thread computes a row, then the one that lies as many rows on as there are threads.

    void run(operands, constants, results, scratch: pointers; tapes, stacks: bytes; notes: pointer; begin, end: rows)

The emitter is that of the lanes, with gangs of one: control is jumps, and the hardware masks threads that disagree. The
scratch memory of a warp is `tapes` bytes for the states of loops and `stacks` for those of recursion, for each thread;
`notes[0]` becomes 1 where a row has failed, `notes[1]` where a stack did not suffice. What is summed over rows is
written row by row, and added up behind that (`sums.py`).

For tests the same kernel is written for the host, where the driver's array of addresses of parameters is its own:

    void run(parameters: pointer; thread, threads: numbers)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import (
    Body,
    CodeOperand,
    CodeSignature,
    Gang,
    GangLoop,
    Result,
    Warp,
    finished,
)
from autobatch.backends.llvm.lanes.tensors import Tensor, kept, select, word, words, zeros
from autobatch.backends.llvm.lanes.writer import BYTES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.whole.code import Direct, region_of
from autobatch.backends.llvm.whole.region import WholeRegion
from autobatch.errors import UnsupportedError
from autobatch.ir.core import Apply, walk
from autobatch.source import NOWHERE

ENTRY = "run"
"""The name of the kernel."""

WARP = 32
"""Threads that run together, on all GPUs of NVIDIA."""

DEVICE, HOST = "device", "host"
"""What a kernel is written for."""

CURE = "use backend='llvm' or backend='xla', which run on the processor"


@dataclass(frozen=True)
class CudaKernel:
    """`text`: a module of LLVM IR. `scratch`: bytes that a warp needs for states of loops. `recurses`: it needs stacks.
    `arrays`: operands that the program holds itself, behind those of a call but before its last one."""

    text: str
    signature: CodeSignature
    constants: tuple[Any, ...]
    scratch: int
    recurses: bool
    reports: bool
    arrays: tuple[Any, ...] = field(default=())


class DeviceFunction(LlvmFunction):
    """A function that no library is linked to."""

    def declare(self, declaration: str) -> None:
        if declaration.startswith("declare ") and "@llvm." not in declaration:
            name = declaration.partition("@")[2].partition("(")[0]
            raise RefusedError(f"it calls {name} of the C library, which a GPU does not have")
        super().declare(declaration)


def write(whole: WholeRegion, sites: bool, machine: str = DEVICE) -> CudaKernel:
    """The kernel of a region. `sites`: its last result says what an example has failed with. UnsupportedError where
    there is none."""
    region = whole.region
    try:
        operands = tuple(CodeOperand(*shape_of(v.type), varies=k >= whole.shared) for k, v in enumerate(region.args))
        signature = CodeSignature(operands, tuple(Result(*shape_of(r.type)) for r in region.results), False)
        notes = KernelReport()

        def body(gang: Gang, xs: Sequence[Tensor]) -> Sequence[Tensor]:
            found = region_of(gang, whole, xs)
            return notes.failed(gang.w, found) if sites else found

        recurses = any(isinstance(i, Apply) and i.op.name == "blocks" for i in walk(region))
        return written(signature, body, machine, recurses, sites, notes=notes)
    except RefusedError as error:
        raise refusal(error) from error


def refusal(error: RefusedError) -> UnsupportedError:
    return UnsupportedError(f"backend='cuda' has no kernel for this: {error}", error.span or NOWHERE, CURE)


class KernelReport:
    """What a kernel says of its rows."""

    pointer = "%notes"

    def failed(self, w: LaneWriter, found: Sequence[Tensor]) -> list[Tensor]:
        """The results of a row that may have failed: then zeros, and a note."""
        *others, status = found
        status = kept(w, status)
        number = status.one()
        wrong = w.instruction("icmp ne", number, w.constant(0, number.dtype), "bool")
        with w.f.when(wrong.text):
            w.f.do(f"store i64 1, ptr {self.pointer}")
        return [*(cleared(w, wrong, x) for x in others), status]


def cleared(w: LaneWriter, wrong: LaneValue, x: Tensor) -> Tensor:
    return select(w, wrong, zeros(w, x.dtype, x.shape), x)


def written(
    signature: CodeSignature,
    body: Body,
    machine: str,
    recurses: bool,
    reports: bool,
    arrays: Sequence[Any] = (),
    notes: KernelReport | None = None,
) -> CudaKernel:
    """The kernel that computes `body` for each row."""
    f = DeviceFunction("")
    thread, threads = numbers(f, machine)
    lane = f.let(f"and i64 {thread}, {WARP - 1}")
    warp = f.let(f"lshr i64 {thread}, 5")
    stacks = f.mul("%stacks", WARP)
    memory = f.at("%scratch", f.mul(warp, f.add("%tapes", stacks)))
    own = Warp(WARP, lane, memory, f.at(memory, "%tapes"), "%stacks", f.at(KernelReport.pointer, 8))
    gang = Gang(LaneWriter(f, 1, vectorizes=False), signature, Direct(), warp=own)
    Threads(gang, f.add("%begin", thread), "%end", threads).run(body)
    f.do("ret void")
    parameters = [f"ptr %a{k}" for k in range(len(signature.operands) + len(gang.constants))]
    parameters += [f"ptr %r{k}" for k in range(len(signature.results))]
    parameters += ["ptr %scratch", "i64 %tapes", "i64 %stacks", "ptr %notes", "i64 %begin", "i64 %end"]
    text = headed(f, ENTRY, parameters, machine)
    program = finished(f, text, gang)
    return CudaKernel(program.text, signature, tuple(program.constants), gang.scratch, recurses, reports, tuple(arrays))


def numbers(f: LlvmFunction, machine: str) -> tuple[str, str]:
    """The number of this thread among all of them, and how many there are."""
    if machine == HOST:
        return "%thread", "%threads"

    def register(name: str) -> str:
        f.declare(f"declare i32 @llvm.nvvm.read.ptx.sreg.{name}.x()")
        return f.let(f"zext i32 {f.let(f'call i32 @llvm.nvvm.read.ptx.sreg.{name}.x()')} to i64")

    size = register("ntid")
    return f.add(f.mul(register("ctaid"), size), register("tid")), f.mul(register("nctaid"), size)


def headed(f: LlvmFunction, name: str, parameters: Sequence[str], machine: str) -> str:
    """The text of a kernel, with its head."""
    if machine == DEVICE:
        held = [p.replace("ptr ", "ptr noalias ") for p in parameters]
        f.head = f"ptx_kernel void @{name}({', '.join(held)}) nounwind"
        return str(f)
    f.head = f"void @{name}(ptr %parameters, i64 %thread, i64 %threads) nounwind"
    lines = []
    for k, (kind, parameter) in enumerate(p.split() for p in parameters):
        lines.append(f"  %place{k} = getelementptr ptr, ptr %parameters, i64 {k}")
        lines.append(f"  %held{k} = load ptr, ptr %place{k}")
        lines.append(f"  {parameter} = load {kind}, ptr %held{k}")
    return str(f).replace("entry:\n", "\n".join(["entry:", *lines, ""]), 1)


class Threads(GangLoop):
    """The loop over the rows of a thread. What is summed over rows is written for each of them: those of a warp side by
    side, from the first row of the call on."""

    def sums(self, out: Sequence[str]) -> list[str]:
        return list(out)

    def join(self, sums: Sequence[str], out: Sequence[str]) -> None:
        """That is another kernel's."""

    def add_up(self, x: Tensor, base: str, first: str) -> None:
        w, f, many = self.w, self.f, words(x.dtype)
        size = math.prod(x.shape) * many * BYTES[stored(word(x.dtype))]
        warp = self.gang.warp
        assert warp is not None
        row = f.sub(first, "%begin")
        tile = f.at(base, f.mul(f.sub(row, warp.thread), size))
        warp.own(w, tile, x.dtype, x.shape).fill(x)
