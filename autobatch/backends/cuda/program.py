"""The back end `cuda`: a whole function with its derivatives as kernels, each written when it is first asked for.

A kernel is a region: each thread computes a row, then the one that lies as many rows on as there are threads.

    void run(operands, constants, results, scratch: pointers; tapes, stacks: bytes; notes: pointer; begin, end: rows)

The emitter is that of the lanes, with gangs of one: control is jumps, and the hardware masks threads that disagree. The
scratch memory of a warp is `tapes` bytes for the states of loops and `stacks` for those of recursion, for each thread;
`notes[0]` becomes 1 where a row has failed, `notes[1]` where a stack did not suffice. What is summed over rows is
written row by row, and added up behind that.

For tests the same kernel is written for the host, where the driver's array of addresses of parameters is its own:

    void run(parameters: pointer; thread, threads: numbers)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np

from autobatch.backends import interface
from autobatch.backends.cuda import device
from autobatch.backends.cuda.device import (
    Device,
    DeviceArray,
    DeviceMemory,
    Foreign,
    Handle,
    OutOfMemory,
    Place,
    current_device,
    is_on_gpu,
    looked_at,
    made,
    on_stream,
    stream_of,
)
from autobatch.backends.interface import Cost, Declined, Load, WholeFunction, Work
from autobatch.backends.llvm.code import SCRATCH, Direct, derivative_of, region_of
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
from autobatch.backends.llvm.program import CHUNK, ArrayForm, as_read, words_dtype, words_shape
from autobatch.backends.llvm.region import WholeRegion, of_kernels, whole_function, work_of
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.errors import NOWHERE, BatchError, UnsupportedError
from autobatch.ir.core import Apply, walk

# ---- kernels


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
#     contributions      [rows / 32, size, 32]     as kernels write them: those of a warp side by side
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


# ---- running
#
# A kernel over the rows of a batch: what goes in, launches, what comes out.
#
#     arrays on a GPU     are read where they lie; results are new arrays there, in the order of the caller's stream
#     arrays of NumPy     are copied to the GPU and their results back, as many rows at once as its memory has room for
#
# A launch that needs scratch memory has as many threads as the GPU runs at once, or fewer where memory does not
# suffice: each of them takes one row after the other. Without, there is a thread for each row. Nothing but the rows
# decides what the numbers are: neither threads, nor launches, nor the GPU.


"""Threads of a block."""

LAUNCHED = 1 << 22
"""Rows of one launch whose sums over rows are added up behind it, at most."""

ROOM = 1 << 10
"""Bytes of its stack that each thread has at first; a launch in which one of them needs more is run again."""

SHARE = 4
"""This part of the free memory may be taken by what a launch needs besides arrays."""


def bytes_of(x: CodeOperand | Result) -> int:
    """Of one row."""
    return math.prod(words_shape(x)) * words_dtype(x).itemsize


class KernelExecutable:
    """A kernel, assembled for each kind of GPU that it runs on. Any number of threads may call it. `names`: of its
    operands, for errors."""

    def __init__(self, kernel: CudaKernel, names: Sequence[str]) -> None:
        self.kernel, self.names = kernel, tuple(names)
        self.operands, self.results = kernel.signature.operands, kernel.signature.results
        self.width = 1
        self._room = ROOM if kernel.recurses else 0
        self._held: dict[int, list[DeviceMemory]] = {}
        self._texts: dict[str, str] = {}
        self._functions: dict[int, Handle] = {}
        self._lock = threading.Lock()

    def ptx(self, architecture: str) -> str:
        """The PTX for a kind of GPU, "sm_80", "sm_90" or "sm_100". No GPU is needed."""
        found = device.architecture(architecture)
        if architecture not in self._texts:
            self._texts[architecture] = device.kept(self.kernel.text, found)
        return self._texts[architecture]

    def function(self, on: Device) -> Handle:
        """The kernel on a GPU."""
        if on.ordinal not in self._functions:
            self._functions[on.ordinal] = on.function(self.ptx(on.architecture.name), ENTRY)
        return self._functions[on.ordinal]

    @property
    def text(self) -> str:
        """The PTX for the oldest kind, which all others run too."""
        return self.ptx(device.ARCHITECTURES[0].name)

    def run(self, operands: Sequence[Any], rows: int, place: interface.Placement) -> tuple[list[Any], bool]:
        """See `interface.FunctionCode`."""
        return self(operands, rows, place.stream)

    def __call__(self, operands: Sequence[Any], rows: int, stream: Any) -> tuple[list[Any], bool]:
        """The results for `rows` rows, and whether a row has failed."""
        *first, last = operands
        whole = [*first, *self.kernel.arrays, last] if self.kernel.arrays else list(operands)
        there = [x for x in whole if is_on_gpu(x)]
        on = _device_of(there) if there else current_device()
        with on.current():
            call = _DeviceCall(self, on, stream_of(stream))
            if any(is_on_gpu(x) for x, o in zip(whole, self.operands, strict=True) if o.varies):
                return call.in_place(whole, rows)
            return call.through_memory(whole, rows)

    def constants(self, on: Device) -> list[DeviceMemory]:
        """The arrays of the program on a GPU, which are copied to it once."""
        with self._lock:
            if on.ordinal not in self._held:
                stream = stream_of(None)
                self._held[on.ordinal] = [_copied(on, np.ascontiguousarray(x), stream) for x in self.kernel.constants]
                on.wait(stream)
            return self._held[on.ordinal]

    @property
    def room(self) -> int:
        """Bytes of stack for each thread, as far as calls have shown what is needed."""
        return self._room

    def needs(self, room: int) -> None:
        self._room = max(self._room, room)


class _DeviceCall:
    """One call on one device."""

    def __init__(self, executable: KernelExecutable, on: Device, stream: int) -> None:
        self.executable, self.on, self.stream = executable, on, stream
        self.kernel = executable.kernel
        self.function, self.constants = executable.function(on), executable.constants(on)

    # ---- arrays

    def in_place(self, operands: Sequence[Any], rows: int) -> tuple[list[Any], bool]:
        """Arrays that are on the device already, and what has to be brought there."""
        held = [self.brought(x, k, rows) for k, x in enumerate(operands)]
        shapes = [words_shape(r) if r.summed else (rows, *words_shape(r)) for r in self.executable.results]
        out = [
            made(self.on, s, words_dtype(r), self.stream) for s, r in zip(shapes, self.executable.results, strict=True)
        ]
        failed = self.run([x.view.place for x in held], [x.view.place for x in out], rows)
        if not self.waits and any(not isinstance(x, DeviceArray) or isinstance(x, Foreign) for x in operands):
            self.on.keep(held, self.stream)  # others may use their memory again, in the order of streams of their own
        return list(out), failed

    @property
    def waits(self) -> bool:
        """Is a launch over when it is known how it went?"""
        return self.kernel.reports or self.kernel.recurses

    def brought(self, x: Any, number: int, rows: int) -> DeviceArray:
        """An operand as the kernel reads it, in the order of the stream."""
        operand = self.executable.operands[number]
        dtype, shape = words_dtype(operand), words_shape(operand)
        wanted = (rows, *shape) if operand.varies else shape
        if not is_on_gpu(x):
            host = as_read(x, ArrayForm.of(operand), rows)
            found = made(self.on, host.shape, host.dtype, self.stream)
            _write(self.on, found.view.place, host, self.stream)
            return found
        held = on_stream(x, self.stream)
        name = self.executable.names[number]
        if held.view.ordinal != self.on.ordinal:
            raise BatchError(f"{name} is on GPU {held.view.ordinal}, other arguments on GPU {self.on.ordinal}")
        if held.shape != wanted:
            raise BatchError(f"{name} has the shape {held.shape} where {wanted} was compiled for")
        if held.dtype != dtype:
            raise BatchError(
                f"{name} is an array of {held.dtype} on a GPU, and the program computes with {dtype}: convert it there "
                f"(`x.astype`, `x.to`){', or turn on jax_enable_x64' if held.dtype.itemsize == 8 else ''}"
            )
        return held if held.is_contiguous and held.is_aligned else packed(held, self.stream)

    def through_memory(self, operands: Sequence[Any], rows: int) -> tuple[list[Any], bool]:
        """Arrays of the host: as many rows at once as there is memory for."""
        kinds, results = self.executable.operands, self.executable.results
        given = [as_read(x, ArrayForm.of(o), rows) if o.varies else x for x, o in zip(operands, kinds, strict=True)]
        shared = {
            k: self.brought(x, k, rows) for k, (x, o) in enumerate(zip(operands, kinds, strict=True)) if not o.varies
        }
        out = [np.empty(words_shape(r) if r.summed else (rows, *words_shape(r)), words_dtype(r)) for r in results]
        summed = [made(self.on, words_shape(r), words_dtype(r), self.stream) if r.summed else None for r in results]
        sums = Sums(self.on, self.stream, results, rows, [None if s is None else s.view.place for s in summed])

        def part(begin: int, end: int) -> bool:
            count = end - begin
            held = [
                shared[k].view.place if k in shared else _upload(self.on, x[begin:end], self.stream)
                for k, x in enumerate(given)
            ]
            places = [h if isinstance(h, int) else h.place for h in held]
            found = [None if r.summed else self.on.allocate(count * bytes_of(r), self.stream) for r in results]
            failed = self.part(places, [0 if m is None else m.place for m in found], begin, 0, count, sums)
            for m, whole in zip(found, out, strict=True):
                if m is not None and whole.size:
                    rows_of = whole[begin:end]
                    m.read(rows_of.ctypes.data, rows_of.nbytes, self.stream)
            return failed

        each = sum([1, *(bytes_of(o) for o in kinds if o.varies), *map(bytes_of, results)])
        failed = self.cut(part, rows, self.rows_for(each), CHUNK)
        sums.finish()
        for s, whole in zip(summed, out, strict=True):
            if s is not None:
                whole[...] = s.to_host()
        return list(out), failed

    def rows_for(self, each: int) -> int:
        """How many rows there is room for, of so many bytes each: a multiple of a chunk."""
        free, _ = self.on.room()
        return max(1, free // SHARE // each // CHUNK) * CHUNK

    def cut(self, part: Callable[[int, int], bool], rows: int, most: int, least: int) -> bool:
        """Run the rows in parts, of fewer rows each where memory does not suffice. Has one of them failed?"""
        begin, failed = 0, False
        while begin < rows:
            end = min(begin + most, rows)
            try:
                failed |= part(begin, end)
            except OutOfMemory:
                if most <= least:
                    raise
                self.on.wait(self.stream)
                most = max(least, most // 2 // least * least)
                continue
            begin = end
        return failed

    # ---- launches

    def run(self, places: Sequence[int], out: Sequence[int], rows: int) -> bool:
        """Compute the rows of arrays on the device."""
        results = self.executable.results
        sums = Sums(
            self.on, self.stream, results, rows, [o if r.summed else None for o, r in zip(out, results, strict=True)]
        )
        most = LAUNCHED if sums.each else max(rows, 1)
        if sums.each:
            most = min(most, self.rows_for(sums.each))
        failed = self.cut(lambda begin, end: self.part(places, out, begin, begin, end, sums), rows, most, CHUNK)
        sums.finish()
        return failed

    def part(self, places: Sequence[int], out: Sequence[int], first: int, begin: int, end: int, sums: Sums) -> bool:
        """One launch, for the rows from `begin` to `end` of its arrays; the first one is row `first` of the batch."""
        summed = sums.room(end - begin)
        results = [o if s is None else s.place for o, s in zip(out, summed, strict=True)]
        failed = self.launch([*places, *(m.place for m in self.constants), *results], begin, end)
        sums.add(summed, first, end - begin)
        return failed

    def launch(self, places: Sequence[int], begin: int, end: int) -> bool:
        """Run the kernel, again with larger stacks where they did not suffice."""
        kernel, room = self.kernel, self.executable.room
        while True:
            blocks, scratch = self.scratch(end - begin, room)
            notes = self.on.allocate(16, self.stream)
            notes.clear(self.stream)
            with self.on.current():
                tail = [scratch.place if scratch else 0, kernel.scratch, room, notes.place, begin, end]
                self.on.launch(self.function, blocks, BLOCK, self.stream, [*places, *tail])
            if not self.waits:
                return False
            said = np.zeros(2, np.int64)
            notes.read(said.ctypes.data, said.nbytes, self.stream)
            if not said[1]:
                return bool(said[0])
            room *= 4
            self.executable.needs(room)

    def scratch(self, rows: int, room: int) -> tuple[int, DeviceMemory | None]:
        """How many blocks run, and their scratch memory."""
        blocks = -(-rows // BLOCK)
        each = (self.kernel.scratch + room * WARP) * (BLOCK // WARP)
        if not each:
            return blocks, None
        free, _ = self.on.room()
        resident = self._resident()
        blocks = min(blocks, resident, max(1, free // SHARE // each))
        while True:
            try:
                return blocks, self.on.allocate(each * blocks, self.stream)
            except OutOfMemory:
                if blocks == 1:
                    raise
                blocks = max(1, blocks // 2)

    def _resident(self) -> int:
        with self.on.current():
            return self.on.resident(self.function, BLOCK)


def ones(like: DeviceArray, dtype: Any, stream: Any) -> DeviceArray:
    """As many ones as another array has rows, where it is."""
    on, order = like.device, stream_of(stream)
    found = made(on, (len(like),), np.dtype(dtype), order)
    if found.dtype == np.float32:
        with on.current():
            on.driver("cuMemsetD32Async", Place(found.view.place), 0x3F800000, len(like), order)
    else:
        _write(on, found.view.place, np.ones(len(like), dtype), order)
    return found


def _device_of(arrays: Sequence[Any]) -> Device:
    return looked_at(arrays[0]).device


def _copied(on: Device, x: np.ndarray[Any, Any], stream: int) -> DeviceMemory:
    memory = on.allocate(x.nbytes, stream)
    if x.nbytes:
        memory.write(x.ctypes.data, x.nbytes, stream)
    return memory


def _upload(on: Device, x: np.ndarray[Any, Any], stream: int) -> DeviceMemory:
    return _copied(on, np.ascontiguousarray(x), stream)


def _write(on: Device, place: int, x: np.ndarray[Any, Any], stream: int) -> None:
    if x.nbytes:
        with on.current():
            on.driver("cuMemcpyHtoDAsync_v2", Place(place), x.ctypes.data, x.nbytes, stream)


class CudaProgram(KernelExecutable):
    """The entry of a module. No GPU is looked for before the first call."""

    on_host: ClassVar[bool] = False
    how = "one kernel, a thread for each example"

    def __init__(self, whole: WholeRegion) -> None:
        self.whole, self.sites, self.inputs = whole, whole.fails, whole.inputs
        self.work: Work = work_of(whole)
        names = [v.hint or f"argument {k}" for k, v in enumerate(whole.region.args)]
        super().__init__(write(whole, whole.fails), names)
        self.gradients: dict[tuple[int, tuple[int, ...]], KernelExecutable] = {}
        self._writing = threading.Lock()

    def refusal(self) -> None:
        """Derivatives that have no kernel are errors."""

    def gradient(self, output: int, wrt: tuple[int, ...]) -> KernelExecutable:
        """The derivative of result `output`, each row weighted by an operand more, by the operands `wrt`: of what
        varies row by row, of what is shared summed over rows. UnsupportedError where there is no kernel for it."""
        if self.inputs:
            raise UnsupportedError(
                "backend='cuda' has no kernel for a derivative of a function of structure", cure=CURE
            )
        with self._writing:
            if (output, wrt) not in self.gradients:
                kernel = write_gradient(self.whole, self.sites, output, wrt)
                held = [f"an array of the program ({k})" for k in range(len(kernel.arrays))]
                made = KernelExecutable(kernel, [*self.names, *held, "the weight of each example"])
                self.gradients[output, wrt] = made
            return self.gradients[output, wrt]


LAUNCH, THREADS = 100.0, 8192
"""Microseconds of a call, by Python; rows that a GPU computes at once."""
ELEMENT = 0.004
"""Microseconds for a number that one thread makes."""
MATRIX = 3.5
"""So many times as long takes a multiplication of a product, whose factors lie in memory."""


class Cuda:
    """A kernel of its own for a GPU of NVIDIA, which launches nothing inside of loops."""

    name: ClassVar[str] = "cuda"

    def accepts(self, source: WholeFunction) -> WholeRegion | Declined:
        """As `llvm`, whose regions it compiles."""
        try:
            return whole_function(source)
        except UnsupportedError as error:
            return Declined(of_kernels(error))

    def cost(self, work: Work, load: Load) -> Cost:
        """A launch, and what the threads do one row after another."""
        waves = -(-load.rows // THREADS)
        row = ELEMENT * (work.elements + MATRIX * work.products)
        return Cost(LAUNCH + waves * row * (3 if load.derives else 1), 1.0)

    def compile(self, taken: WholeRegion) -> CudaProgram:
        """The kernel."""
        return CudaProgram(taken)
