"""A whole function with its derivatives, each as a kernel that is written when it is first asked for; the back end
`cuda`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from autobatch.backends import interface
from autobatch.backends.cuda import device
from autobatch.backends.cuda.arrays import DeviceArray, Foreign, is_on_gpu, looked_at, made, on_stream
from autobatch.backends.cuda.device import Device, DeviceMemory, Handle, OutOfMemory, Place, current_device, stream_of
from autobatch.backends.cuda.kernel import CURE, ENTRY, WARP, CudaKernel, Sums, packed, write, write_gradient
from autobatch.backends.interface import Cost, Declined, Load, WholeFunction, Work
from autobatch.backends.llvm.lanes.program import CodeOperand, Result
from autobatch.backends.llvm.whole.program import CHUNK, ArrayForm, as_read, words_dtype, words_shape
from autobatch.backends.llvm.whole.region import WholeRegion, of_kernels, whole_function, work_of
from autobatch.errors import BatchError, UnsupportedError

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


BLOCK = 128
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
