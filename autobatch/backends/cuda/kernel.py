"""A region as a kernel: each thread computes a row, then the one that lies as many rows on as there are threads.

    void run(operands, constants, results, scratch: pointers; tapes, stacks: bytes; notes: pointer; begin, end: rows)

The emitter is that of the lanes, with gangs of one: control is jumps, and the hardware masks threads that disagree. The
scratch memory of a warp is `tapes` bytes for the states of loops and `stacks` for those of recursion, for each thread;
`notes[0]` becomes 1 where a row has failed, `notes[1]` where a stack did not suffice. What is summed over rows is
written row by row, and added up behind that (`kernel.py`).

For tests the same kernel is written for the host, where the driver's array of addresses of parameters is its own:

    void run(parameters: pointer; thread, threads: numbers)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from autobatch.backends.cuda import device
from autobatch.backends.cuda.arrays import DeviceArray, made
from autobatch.backends.cuda.device import Device, DeviceMemory
from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import (
    MOST_SUMMED,
    PARTS,
    Body,
    CodeOperand,
    CodeSignature,
    Gang,
    GangLoop,
    Result,
    Warp,
    finished,
)
from autobatch.backends.llvm.lanes.reductions import joined_vector
from autobatch.backends.llvm.lanes.tensors import Tensor, kept, select, word, words, zeros
from autobatch.backends.llvm.lanes.writer import BYTES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.whole.code import SCRATCH, Direct, derivative_of, region_of
from autobatch.backends.llvm.whole.program import CHUNK
from autobatch.backends.llvm.whole.region import WholeRegion
from autobatch.errors import NOWHERE, BatchError, UnsupportedError
from autobatch.ir.core import Apply, walk

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


# ---- sums
#
# Sums over rows: kernels that add up what each row has contributed, in an order that nothing but the rows decides.
#
#     contributions      [rows / 32, size, 32]     as `kernel.py` writes them: those of a warp side by side
#     parts              [chunks, size, parts]     part p of a chunk: its rows p, p + parts, ... one after the other
#     joined             [chunks, size]            (part 0 + part 8) + ..., as `lanes/reductions.py` joins them
#     total              [size]                    one chunk after the other
#
# That is the order in which the processor adds them up under `backend="llvm"`: chunks of `CHUNK` rows, in `PARTS` parts
# where there are few numbers. No number of threads is a part of it.


TYPES = {"float32": "float", "float64": "double"}
STEPS = ("parts", "join", "total")


def parts_of(size: int) -> int:
    """How many parts a chunk of rows has."""
    return PARTS if size <= MOST_SUMMED else 1


def name_of(step: str, dtype: str) -> str:
    """Of a kernel."""
    return f"{step}_{dtype}"


@cache
def sums_text(machine: str = DEVICE) -> str:
    """The module of all of them."""
    made = [_WRITTEN[step](dtype, machine) for dtype in TYPES for step in STEPS]
    declared = dict.fromkeys(d for f, _ in made for d in f.declarations)
    return "\n".join([*declared, *(written for _, written in made)])


def _begun(machine: str) -> tuple[LlvmFunction, str, str]:
    f = DeviceFunction("")
    return f, *numbers(f, machine)


def _ended(f: LlvmFunction, step: str, dtype: str, machine: str, *parameters: str) -> tuple[LlvmFunction, str]:
    f.do("ret void")
    return f, headed(f, name_of(step, dtype), ["ptr %from", "ptr %to", *(f"i64 %{p}" for p in parameters)], machine)


def _add(f: LlvmFunction, of: str, slot: str, place: str) -> None:
    held, more = f.let(f"load {of}, ptr {slot}"), _get(f, of, "%from", place)
    f.do(f"store {of} {f.let(f'fadd {of} {held}, {more}')}, ptr {slot}")


def _get(f: LlvmFunction, of: str, base: str, place: str) -> str:
    return f.let(f"load {of}, ptr {f.let(f'getelementptr {of}, ptr {base}, i64 {place}')}")


def _put(f: LlvmFunction, of: str, place: str, x: str) -> None:
    f.do(f"store {of} {x}, ptr {f.let(f'getelementptr {of}, ptr %to, i64 {place}')}")


def _divided(f: LlvmFunction, x: str, by: str) -> tuple[str, str]:
    return f.let(f"udiv i64 {x}, {by}"), f.let(f"urem i64 {x}, {by}")


def _parts(dtype: str, machine: str) -> tuple[LlvmFunction, str]:
    """A thread for each part of a chunk."""
    f, thread, threads = _begun(machine)
    of = TYPES[dtype]
    with f.loop(thread, "%count", threads) as at:
        rest, part = _divided(f, at, "%parts")
        chunk, number = _divided(f, rest, "%size")
        begin = f.mul(chunk, CHUNK)
        end = f.least(f.add(begin, CHUNK), "%rows")
        total = f.vector_slot(of)
        f.do(f"store {of} 0.0, ptr {total}")
        with f.loop(f.add(begin, part), end, "%parts") as row:
            tile, lane = _divided(f, row, str(WARP))
            place = f.add(f.mul(f.add(f.mul(tile, "%size"), number), WARP), lane)
            _add(f, of, total, place)
        _put(f, of, at, f.let(f"load {of}, ptr {total}"))
    f.declare("declare i64 @llvm.umin.i64(i64, i64)")
    return _ended(f, "parts", dtype, machine, "size", "rows", "parts", "count")


def _join(dtype: str, machine: str) -> tuple[LlvmFunction, str]:
    """A thread for each number of a chunk."""
    f, thread, threads = _begun(machine)
    of = TYPES[dtype]
    with f.loop(thread, "%count", threads) as at:
        first = f.let(f"getelementptr {of}, ptr %from, i64 {f.mul(at, PARTS)}")
        _put(f, of, at, joined_vector(LaneWriter(f, 1), "fadd", first, dtype, PARTS).text)
    return _ended(f, "join", dtype, machine, "count")


def _total(dtype: str, machine: str) -> tuple[LlvmFunction, str]:
    """A thread for each number."""
    f, thread, threads = _begun(machine)
    of = TYPES[dtype]
    with f.loop(thread, "%size", threads) as at:
        total = f.vector_slot(of)
        f.do(f"store {of} {_get(f, of, '%from', at)}, ptr {total}")
        with f.loop(1, "%chunks", 1) as chunk:
            _add(f, of, total, f.add(f.mul(chunk, "%size"), at))
        _put(f, of, at, f.let(f"load {of}, ptr {total}"))
    return _ended(f, "total", dtype, machine, "size", "chunks")


_WRITTEN = {"parts": _parts, "join": _join, "total": _total}


# ---- over a batch

BLOCK = 128
"""Threads of a block."""


class Sums:
    """The sums of one call over its rows, which come in order and in whole chunks. `out`: of each result the address
    of its sum; None for one that has rows."""

    def __init__(
        self, on: Device, stream: int, results: Sequence[Result], rows: int, out: Sequence[int | None]
    ) -> None:
        self.on, self.stream, self.rows, self.out = on, stream, rows, tuple(out)
        self.dtypes = [word(r.dtype) for r in results]
        self.sizes = [math.prod(r.shape) * words(r.dtype) for r in results]
        self.bytes = [BYTES[stored(d)] for d in self.dtypes]
        self.chunks = -(-rows // CHUNK)
        self.joined = [
            None if o is None else on.allocate(self.chunks * n * size, stream)
            for o, n, size in zip(self.out, self.sizes, self.bytes, strict=True)
        ]

    @property
    def each(self) -> int:
        """Bytes that each row contributes."""
        return sum(n * b for o, n, b in zip(self.out, self.sizes, self.bytes, strict=True) if o is not None)

    def room(self, rows: int) -> list[DeviceMemory | None]:
        """Memory for what so many rows contribute."""
        held = -(-rows // WARP) * WARP
        return [
            None if o is None else self.on.allocate(held * n * b, self.stream)
            for o, n, b in zip(self.out, self.sizes, self.bytes, strict=True)
        ]

    def add(self, contributions: Sequence[DeviceMemory | None], first: int, rows: int) -> None:
        """Add up the contributions of rows, of which the first one is row `first` of the batch."""
        chunks = -(-rows // CHUNK)
        for k, (x, joined) in enumerate(zip(contributions, self.joined, strict=True)):
            size = self.sizes[k]
            if x is None or joined is None or not size:
                continue
            parts = parts_of(size)
            to = joined.place + first // CHUNK * size * self.bytes[k]
            count = chunks * size
            if parts == 1:
                self.launch("parts", k, count, x.place, to, size, rows, 1, count)
                continue
            between = self.on.allocate(count * parts * self.bytes[k], self.stream)
            self.launch("parts", k, count * parts, x.place, between.place, size, rows, parts, count * parts)
            self.launch("join", k, count, between.place, to, count)

    def finish(self) -> None:
        """The sums of all chunks."""
        for k, (to, joined) in enumerate(zip(self.out, self.joined, strict=True)):
            size = self.sizes[k]
            if to is None or joined is None or not size:
                continue
            if self.chunks:
                self.launch("total", k, size, joined.place, to, size, self.chunks)
            else:
                with self.on.current():
                    self.on.driver("cuMemsetD8Async", to, 0, size * self.bytes[k], self.stream)

    def launch(self, step: str, k: int, threads: int, *arguments: int) -> None:
        function = self.on.function(device.kept(sums_text(), self.on.architecture), name_of(step, self.dtypes[k]))
        with self.on.current():
            self.on.launch(function, -(-threads // BLOCK), BLOCK, self.stream, arguments)


# ---- packing
#
# Arrays on a GPU whose rows do not lie one behind the other, or not where their numbers may: copied as kernels read.
#
# from[i, j, k, l]  at  i s0 + j s1 + k s2 + l s3 bytes      ->      to, in the order of rows


AXES = 4
"""Axes that are left when those that lie behind each other are one."""

UNITS = (8, 4, 2, 1)
"""Bytes that are copied at once."""


@cache
def packing_text(machine: str = DEVICE) -> str:
    """The module with a kernel for each unit."""
    written: list[str] = []
    declared: dict[str, None] = {}
    for unit in UNITS:
        f = DeviceFunction("")
        thread, threads = numbers(f, machine)
        of = f"i{8 * unit}"
        with f.loop(thread, "%count", threads) as at:
            rest, place = at, "0"
            for axis in reversed(range(AXES)):
                index = f.let(f"urem i64 {rest}, %n{axis}")
                rest = f.let(f"udiv i64 {rest}, %n{axis}")
                place = f.add(f.mul(index, f"%s{axis}"), place)
            found = f.let(f"load {of}, ptr {f.at('%from', place)}")
            f.do(f"store {of} {found}, ptr {f.let(f'getelementptr {of}, ptr %to, i64 {at}')}")
        f.do("ret void")
        sizes = [f"i64 %{x}{k}" for k in range(AXES) for x in "ns"]
        written.append(headed(f, f"pack{unit}", ["ptr %from", "ptr %to", *sizes, "i64 %count"], machine))
        declared.update(f.declarations)
    return "\n".join([*declared, *written])


def packed(x: DeviceArray, stream: int) -> DeviceArray:
    """A copy whose rows lie one behind the other."""
    found = made(x.device, x.shape, x.dtype, stream)
    if x.size == 0:
        return found
    unit = next(u for u in UNITS if all(n % u == 0 for n in (x.dtype.itemsize, x.view.place, *x.view.strides)))
    axes = merged([*zip(x.shape, x.view.strides, strict=True), (x.dtype.itemsize // unit, unit)])
    if len(axes) > AXES:
        raise BatchError(
            f"an array on a GPU of shape {x.shape} with the strides {x.view.strides}: its rows do not lie one behind "
            "the other, and it has too many axes to be copied here; make it contiguous"
        )
    axes = [(1, 0)] * (AXES - len(axes)) + axes
    count = math.prod(n for n, _ in axes)
    function = x.device.function(device.kept(packing_text(), x.device.architecture), f"pack{unit}")
    with x.device.current():
        sizes = [n for axis in axes for n in axis]
        places = [x.view.place, found.view.place, *sizes, count]
        x.device.launch(function, -(-count // BLOCK), BLOCK, stream, places)
    return found


def merged(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Axes, each with its size and stride, as few as say the same.

    >>> merged([(5, 24), (1, 7), (3, 8), (2, 4)])
    [(30, 4)]
    """
    found: list[tuple[int, int]] = []
    for n, stride in axes:
        if n == 1:
            continue
        if found and found[-1][1] == n * stride:
            found[-1] = (found[-1][0] * n, stride)
        else:
            found.append((n, stride))
    return found


# ---- gradient
#
# The derivative of a whole function in reverse, as a kernel.
#
#     operands   those of the function, the arrays that its literals name, the weight of each row
#     results    of each operand asked for: its cotangents row by row; of a shared one what each row contributes
#
# The states of loops lie in global memory, those of a warp side by side.


def write_gradient(
    whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int], machine: str = DEVICE
) -> CudaKernel:
    """The kernel of a derivative. UnsupportedError where there is none."""
    try:
        found = derivative_of(whole, sites, output, wrt)
        for result in found.signature.results:
            if result.summed and stored(word(result.dtype)) not in ("float", "double"):
                raise RefusedError(f"a sum over rows of numbers of {result.dtype}")
        kernel = written(found.signature, found.body, machine, False, False, found.arrays)
        if kernel.scratch > SCRATCH * WARP:
            each = kernel.scratch // WARP
            raise RefusedError(f"the states of its loops take {each:,} bytes, more than {SCRATCH:,}")
        return kernel
    except RefusedError as error:
        raise refusal(error) from error
