"""Sums over rows: kernels that add up what each row has contributed, in an order that nothing but the rows decides.

    contributions      [rows / 32, size, 32]     as `kernel.py` writes them: those of a warp side by side
    parts              [chunks, size, parts]     part p of a chunk: its rows p, p + parts, ... one after the other
    joined             [chunks, size]            (part 0 + part 8) + ..., as `lanes/reductions.py` joins them
    total              [size]                    one chunk after the other

That is the order in which the processor adds them up under `backend="llvm"`: chunks of `CHUNK` rows, in `PARTS` parts
where there are few numbers. No number of threads is a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from autobatch.backends.cuda import ptx
from autobatch.backends.cuda.device import Device, DeviceMemory
from autobatch.backends.cuda.kernel import DEVICE, WARP, DeviceFunction, headed, numbers
from autobatch.backends.llvm.lanes.program import MOST_SUMMED, PARTS, Result
from autobatch.backends.llvm.lanes.reductions import joined_vector
from autobatch.backends.llvm.lanes.tensors import word, words
from autobatch.backends.llvm.lanes.writer import BYTES, LaneWriter, stored
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.whole.running import CHUNK

TYPES = {"float32": "float", "float64": "double"}
STEPS = ("parts", "join", "total")


def parts_of(size: int) -> int:
    """How many parts a chunk of rows has."""
    return PARTS if size <= MOST_SUMMED else 1


def name_of(step: str, dtype: str) -> str:
    """Of a kernel."""
    return f"{step}_{dtype}"


@cache
def text(machine: str = DEVICE) -> str:
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
        function = self.on.function(ptx.kept(text(), self.on.architecture), name_of(step, self.dtypes[k]))
        with self.on.current():
            self.on.launch(function, -(-threads // BLOCK), BLOCK, self.stream, arguments)
