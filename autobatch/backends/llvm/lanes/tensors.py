"""Arrays of numbers in machine code: what gives the number at an index.

A tensor is a function from an index to instructions. What only moves numbers (a slice, a transposition) or is asked for
once (a product inside a sum) is never laid out; the rest is `kept`: few numbers in registers, many in memory. Indices
are ints where they are known, else values of type i64 that all lanes share.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from autobatch.backends.llvm.lanes.writer import BYTES, COMPLEX, ELEMENTS, LaneValue, LaneWriter, rounded, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.common.record import record
from autobatch.ir.ops import Op

SMALL = 16
"""So many numbers of an array are kept in registers at most, and each operation on them is written out."""

LEAST = 4
"""So many are in any case; others lie in memory where a program has many operations on them."""


class _Registers(threading.local):
    most = SMALL


_registers = _Registers()


@contextmanager
def registers_of(most: int) -> Iterator[None]:
    """Inside, so many numbers of an array at most are kept in registers."""
    before, _registers.most = _registers.most, most
    try:
        yield
    finally:
        _registers.most = before


def in_registers(count: int) -> bool:
    """Are so many numbers kept in registers?"""
    return count <= _registers.most


Index = int | str
Indices = tuple[Index, ...]
Element = tuple[LaneValue, ...]
"""What stands at an index: a number, or the two words of a random key."""

KEY = "key<fry>"
"""The dtype of random keys of two words, those of the generator threefry."""


@dataclass(frozen=True)
class ChangeInPlace:
    """The right to change an array where it lies, in the lanes of a mask; None: in all. `note`: is told what is written
    over."""

    mask: LaneValue | None
    note: Callable[[Indices, Element], None] | None = None


@record
class Tensor:
    """`held`: to read a number again costs no more than a load; `fixed`: it is always the same number."""

    dtype: str
    shape: tuple[int, ...]
    at: Callable[[Indices], Element]
    held: bool = False
    fixed: bool = False
    origin: MemoryTensor | None = None
    """The memory whose numbers these are, where it is one that may be written to again."""
    memory: MemoryTensor | None = None
    """The memory in which they lie, in any case."""
    given: ChangeInPlace | None = None
    """Whoever gets this may write to that memory."""
    zero: bool = False
    """Is it zero everywhere?"""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def one(self, index: Indices = ()) -> LaneValue:
        """The number at an index, of an array whose elements are numbers."""
        found = self.at(index)
        if len(found) != 1:
            raise RefusedError(f"that of {self.dtype}")
        return found[0]


def words(dtype: str) -> int:
    """How many numbers an element is."""
    return 2 if dtype == KEY or dtype in COMPLEX else 1


def word(dtype: str) -> str:
    """The dtype of these numbers."""
    if dtype == KEY:
        return "uint32"
    if dtype in COMPLEX:
        return COMPLEX[dtype]
    if dtype not in ELEMENTS:
        raise RefusedError(f"numbers of {dtype}")
    return dtype


# ---- indices


def add(w: LaneWriter, a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    return w.f.let(f"add i64 {a}, {b}")


def multiply(w: LaneWriter, a: Index, b: int) -> Index:
    if isinstance(a, int):
        return a * b
    return a if b == 1 else w.f.let(f"mul i64 {a}, {b}")


def flat(w: LaneWriter, index: Indices, shape: Sequence[int]) -> Index:
    """The place of an element among those of an array in the order of rows."""
    found: Index = 0
    for at, size in zip(index, shape, strict=True):
        found = add(w, multiply(w, found, size), at)
    return found


def unflat(w: LaneWriter, place: Index, shape: Sequence[int]) -> Indices:
    found: list[Index] = []
    for size in reversed(shape):
        if isinstance(place, int):
            place, rest = divmod(place, size) if size else (0, 0)
            found.append(rest)
        elif size == 1:
            found.append(0)
        elif size == math.prod(shape):  # nothing is left over
            found.append(place)
            place = 0
        else:
            found.append(w.f.let(f"urem i64 {place}, {size}"))
            place = w.f.let(f"udiv i64 {place}, {size}")
    return tuple(reversed(found))


def every(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape))


def over(
    w: LaneWriter, shape: Sequence[int], do: Callable[[Indices], None], parallel: bool = False, vectors: bool = True
) -> None:
    """Loops over all indices; few of them one after another. `vectors`: LLVM may make vectors along the last axis. (Of
    a loop that has others inside it cannot, and would say so to whoever reads the process's standard error.)"""
    if in_registers(math.prod(shape)):
        for index in every(shape):
            do(index)
        return
    last = max(k for k, n in enumerate(shape) if n > 1) if vectors else -1
    with ExitStack() as loops:
        place: list[Index] = [0] * len(shape)
        for k, n in enumerate(shape):
            if n > 1:
                place[k] = loops.enter_context(w.loop(n, parallel) if k == last else w.f.loop(0, n, 1))
        do(tuple(place))


def one_by_one(w: LaneWriter, count: int, do: Callable[[Index], None]) -> None:
    """A loop whose turns read what those before have written."""
    if in_registers(count):
        for k in range(count):
            do(k)
        return
    with w.f.loop(0, count, 1) as number:
        do(number)


# ---- where numbers are


def registers(w: LaneWriter, dtype: str, shape: tuple[int, ...], elements: Sequence[Element]) -> Tensor:
    """Elements that there are, in the order of rows."""

    def at(index: Indices) -> Element:
        place = flat(w, index, shape)
        if isinstance(place, int):
            return elements[place]
        found = elements[0]
        for k, other in enumerate(elements[1:], 1):
            here = LaneValue(w.f.let(f"icmp eq i64 {place}, {k}"), "bool", True)
            found = tuple(w.select(here, x, y) for x, y in zip(other, found, strict=True))
        return found

    return Tensor(dtype, shape, at, held=True, fixed=True)


def scalar(number: LaneValue) -> Tensor:
    return Tensor(number.dtype, (), lambda _: (number,), held=True, fixed=True)


def constant(w: LaneWriter, value: object, dtype: str, shape: tuple[int, ...] = ()) -> Tensor:
    found = element(w, value, dtype)
    return Tensor(dtype, shape, lambda _: found, held=True, fixed=True)


def element(w: LaneWriter, value: Any, dtype: str) -> Element:
    """A number of the program."""
    if dtype in COMPLEX:
        whole = complex(value)
        return w.constant(whole.real, COMPLEX[dtype]), w.constant(whole.imag, COMPLEX[dtype])
    return (w.constant(value, dtype),)


def zeros(w: LaneWriter, dtype: str, shape: tuple[int, ...]) -> Tensor:
    zero = w.constant(0, word(dtype))
    return Tensor(dtype, shape, lambda _: (zero,) * words(dtype), held=True, fixed=True, zero=True)


@dataclass(frozen=True)
class MemoryTensor:
    """Numbers behind a pointer, in the order of rows: `width` of each for the lanes of a gang; or one, for all lanes
    (`shared`) or because there is one lane. `threads`: so many threads or lanes have theirs side by side, the pointer
    is to those of one. `own`: it is no argument and no constant, but was reserved for this."""

    w: LaneWriter
    pointer: str
    dtype: str
    shape: tuple[int, ...]
    shared: bool = False
    threads: int = 1
    own: bool = False

    def place(self, index: Indices, number: int) -> tuple[str, int]:
        many = self.threads * (1 if self.shared else self.w.width)
        size = BYTES[stored(word(self.dtype))] * many
        first = add(self.w, multiply(self.w, flat(self.w, index, self.shape), words(self.dtype)), number)
        return self.w.f.let(f"getelementptr i8, ptr {self.pointer}, i64 {multiply(self.w, first, size)}"), size // many

    @property
    def group(self) -> str:
        return f", !llvm.access.group {self.w.f.access_group()}" if self.w.width == 1 else ""

    def read(self, index: Indices) -> Element:
        return tuple(self._read(index, k) for k in range(words(self.dtype)))

    def _read(self, index: Indices, number: int) -> LaneValue:
        w, dtype = self.w, word(self.dtype)
        place, align = self.place(index, number)
        of = w.vector(stored(dtype), self.shared)
        found = w.f.let(f"load {of}, ptr {place}, align {align}{self.group}")
        if dtype == "bool":
            found = w.f.let(f"trunc {of} {found} to {w.vector('i1', self.shared)}")
        return LaneValue(found, dtype, self.shared)

    def write(self, index: Indices, element: Element) -> None:
        for k, x in enumerate(element):
            self._write(index, k, x)

    def _write(self, index: Indices, number: int, x: LaneValue) -> None:
        w = self.w
        assert not self.shared
        x = w.spread(x)
        place, align = self.place(index, number)
        of, text = w.type_of(x.dtype), x.text
        if x.dtype == "bool":
            of = w.vector("i8")
            text = w.f.let(f"zext {w.vector('i1')} {text} to {of}")
        w.f.do(f"store {of} {text}, ptr {place}, align {align}{self.group}")

    @property
    def tensor(self) -> Tensor:
        """What is there when it is read."""
        return Tensor(self.dtype, self.shape, self.read, held=True, origin=self, memory=self)

    @property
    def final(self) -> Tensor:
        """The same, where nobody will write any more."""
        return Tensor(self.dtype, self.shape, self.read, held=True, fixed=True, memory=self)

    def fill(self, x: Tensor) -> None:
        """Write all of an array, which is not in this memory, or is at the same place."""
        count, f = math.prod(self.shape), self.w.f
        if in_registers(count) or self.threads > 1 or not (x.zero or self._like(x.memory)):
            over(self.w, self.shape, lambda index: self.write(index, x.at(index)), parallel=True)
            return
        size = count * words(self.dtype) * BYTES[stored(word(self.dtype))] * self.w.width
        if x.memory is None:
            f.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            f.do(f"call void @llvm.memset.p0.i64(ptr {self.pointer}, i8 0, i64 {size}, i1 false)")
        else:
            f.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {self.pointer}, ptr {x.memory.pointer}, i64 {size}, i1 false)")

    def _like(self, other: MemoryTensor | None) -> bool:
        """Are the numbers of another array where those of this one are?"""
        if other is None or other.threads > 1 or (other.shared and self.w.width > 1):
            return False
        return (other.dtype, other.shape) == (self.dtype, self.shape)


def fresh(w: LaneWriter, dtype: str, shape: tuple[int, ...]) -> MemoryTensor:
    """Memory that nobody has."""
    return MemoryTensor(w, w.reserve(word(dtype), max(1, math.prod(shape)) * words(dtype)), dtype, shape, own=True)


def kept(w: LaneWriter, x: Tensor) -> Tensor:
    """The same array, to be read as often as one likes."""
    if x.held:
        return x
    if in_registers(x.size):
        return registers(w, x.dtype, x.shape, [x.at(index) for index in every(x.shape)])
    return copied(w, x)


def copied(w: LaneWriter, x: Tensor) -> Tensor:
    """The same numbers in memory of their own, or in registers."""
    if x.fixed and x.held:
        return x
    if in_registers(x.size):
        return registers(w, x.dtype, x.shape, [x.at(index) for index in every(x.shape)])
    memory = fresh(w, x.dtype, x.shape)
    memory.fill(x)
    return memory.final


def apart(x: Tensor) -> Tensor:
    """The same numbers, each rounded by itself: products that are read twice are equal both times."""
    if not x.dtype.startswith(("float", "complex")):
        return x
    return replace(x, at=lambda index: tuple(map(rounded, x.at(index))))


# ---- variables


class TensorVariable:
    """An array that changes: in registers, or in memory. `shared`: few numbers, which are the same in all lanes.
    `left`: what each lane has of a shared one that a loop carries, where lanes leave the loop one by one."""

    def __init__(
        self,
        w: LaneWriter,
        dtype: str,
        shape: tuple[int, ...],
        shared: bool = False,
        memory: MemoryTensor | None = None,
    ) -> None:
        """`memory`: where the array lies already."""
        self.w, self.dtype, self.shape, self.shared = w, dtype, shape, shared
        self.left: TensorVariable | None = None
        size = math.prod(shape)
        self.memory = memory or (fresh(w, dtype, shape) if not in_registers(size) else None)
        self.slots = (
            [[w.slot(word(dtype), shared) for _ in range(words(dtype))] for _ in range(size)] if not self.memory else []
        )

    def get(self) -> Tensor:
        """What it holds now. In memory it is what it will hold when it is read."""
        if self.memory is not None:
            return self.memory.tensor
        return registers(self.w, self.dtype, self.shape, [tuple(s.get() for s in each) for each in self.slots])

    def has(self, x: Tensor) -> bool:
        """Is an array where this one lies?"""
        return self.memory is not None and x.memory == self.memory

    def kept_apart(self) -> None:
        """From here on each lane keeps what it has."""
        self.left = TensorVariable(self.w, self.dtype, self.shape)
        self.left.set(self.get())

    @property
    def own(self) -> TensorVariable:
        """Where each lane has what it had last."""
        return self if self.left is None else self.left

    def set(self, x: Tensor) -> None:
        if self.memory is not None:
            if not self.has(x):
                self.memory.fill(x)
            return
        found = [x.at(index) for index in every(self.shape)]
        for slots, element in zip(self.slots, found, strict=True):
            for slot, number in zip(slots, element, strict=True):
                slot.set(number)


def select(w: LaneWriter, mask: LaneValue, x: Tensor, y: Tensor) -> Tensor:
    """`x` in the lanes of a mask, `y` in the others."""

    def at(index: Indices) -> Element:
        return tuple(w.select(mask, a, b) for a, b in zip(x.at(index), y.at(index), strict=True))

    return Tensor(x.dtype, x.shape, at)


def set_all(w: LaneWriter, variables: Sequence[TensorVariable], xs: Sequence[Tensor]) -> None:
    """Set variables at once: all is read before any of them changes."""
    changing = [v.memory for v in variables if v.memory is not None]

    def safe(x: Tensor) -> Tensor:
        if not in_registers(x.size) and x.origin is not None and x.origin not in changing:
            return x
        return copied(w, x)

    pairs = zip(variables, xs, strict=True)
    for variable, x in [(v, x if v.has(x) else safe(x)) for v, x in pairs]:
        variable.set(x)


# ---- moves
#
# Operations that only say where numbers come from.


Shapes = Sequence[tuple[str, tuple[int, ...]]]
"""Dtype and shape of each result."""


def _moved(x: Tensor, shape: tuple[int, ...], where: Callable[[Indices], Indices]) -> Tensor:
    return Tensor(x.dtype, shape, lambda index: x.at(where(index)), x.held, x.fixed)


def reshape(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), ((_, shape),) = xs, results
    if op.name == "reshape" and op["dimensions"] is not None:
        raise RefusedError("reshape with another order of axes")
    kept = [k for k, n in enumerate(x.shape) if n != 1]
    if [x.shape[k] for k in kept] == [n for n in shape if n != 1]:  # only axes of one element come or go
        there = [k for k, n in enumerate(shape) if n != 1]

        def where(index: Indices) -> Indices:
            found: list[Index] = [0] * len(x.shape)
            for k, j in zip(kept, there, strict=True):
                found[k] = index[j]
            return tuple(found)

        return [_moved(x, shape, where)]
    return [_moved(x, shape, lambda index: unflat(w, flat(w, index, shape), x.shape))]


def broadcast(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    x, (_, shape) = xs[0], results[0]
    axes = op["broadcast_dimensions"]

    def where(index: Indices) -> Indices:
        return tuple(0 if n == 1 else index[axis] for axis, n in zip(axes, x.shape, strict=True))

    return [_moved(x, shape, where)]


def transpose(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), order = xs, op["permutation"]
    return [_moved(x, results[0][1], lambda index: tuple(index[order.index(k)] for k in range(len(order))))]


def reverse(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), axes = xs, op["dimensions"]

    def where(index: Indices) -> Indices:
        return tuple(
            add(w, n - 1, multiply(w, i, -1)) if k in axes else i
            for k, (i, n) in enumerate(zip(index, x.shape, strict=True))
        )

    return [_moved(x, x.shape, where)]


def part(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), starts = xs, op["start_indices"]
    strides = op["strides"] or (1,) * len(starts)

    def where(index: Indices) -> Indices:
        return tuple(add(w, multiply(w, i, s), b) for i, s, b in zip(index, strides, starts, strict=True))

    return [_moved(x, results[0][1], where)]


def split(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), axis = xs, op["axis"]
    starts = [0, *accumulate(op["sizes"])]

    def moved(begin: int, shape: tuple[int, ...]) -> Tensor:
        return _moved(x, shape, lambda i: (*i[:axis], add(w, i[axis], begin), *i[axis + 1 :]))

    return [moved(begin, shape) for begin, (_, shape) in zip(starts, results, strict=False)]


FEW = 3
"""Arrays side by side among which it is chosen at an index that is not known."""


def _written(
    w: LaneWriter, xs: Sequence[Tensor], dtype: str, shape: tuple[int, ...], begin: Sequence[Indices]
) -> Tensor:
    """Many arrays as one, each written where it begins: a choice among all at each index would be as many for each
    number."""
    memory = fresh(w, dtype, shape)
    for x, first in zip(xs, begin, strict=True):

        def write(index: Indices, x: Tensor = x, first: Indices = first) -> None:
            memory.write(tuple(add(w, i, k) for i, k in zip(index, first, strict=True)), x.at(index))

        over(w, x.shape, write, parallel=True)
    return memory.final


def concatenate(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    axis, (dtype, shape) = op["dimension"], results[0]
    ends = list(accumulate(x.shape[axis] for x in xs))
    if len(xs) > FEW and not in_registers(math.prod(shape)):
        begin = [tuple(n if k == axis else 0 for k in range(len(shape))) for n in (0, *ends[:-1])]
        return [_written(w, xs, dtype, shape, begin)]

    def at(index: Indices) -> Element:
        place, begin = index[axis], 0
        found: Element | None = None
        for x, end in zip(xs, ends, strict=True):
            if isinstance(place, int):
                if begin <= place < end:
                    return x.at((*index[:axis], place - begin, *index[axis + 1 :]))
            elif begin < end:
                inside = clamped(w, add(w, place, -begin), end - begin)
                here = x.at((*index[:axis], inside, *index[axis + 1 :]))
                if found is not None:
                    past = LaneValue(w.f.let(f"icmp uge i64 {place}, {begin}"), "bool", True)
                    here = tuple(w.select(past, a, b) for a, b in zip(here, found, strict=True))
                found = here
            begin = end
        assert found is not None
        return found

    return [Tensor(dtype, shape, at)]


def clamped(w: LaneWriter, place: Index, size: int) -> Index:
    """A place, or the nearest one of 0 to `size - 1`."""
    if isinstance(place, int):
        return min(max(place, 0), size - 1)
    if size == 1:
        return 0
    for name, bound in (("smax", 0), ("smin", size - 1)):
        w.f.declare(f"declare i64 @llvm.{name}.i64(i64, i64)")
        place = w.f.let(f"call i64 @llvm.{name}.i64(i64 {place}, i64 {bound})")
    return place


def stack(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Arrays side by side along a new axis."""
    axis, (dtype, shape) = op["axis"], results[0]
    axis = axis % len(shape)
    if len(xs) > FEW and not in_registers(math.prod(shape)):
        thin = [_moved(x, (*shape[:axis], 1, *shape[axis + 1 :]), lambda i: (*i[:axis], *i[axis + 1 :])) for x in xs]
        begin = [tuple(n if k == axis else 0 for k in range(len(shape))) for n in range(len(xs))]
        return [_written(w, thin, dtype, shape, begin)]

    def at(index: Indices) -> Element:
        place, rest = index[axis], (*index[:axis], *index[axis + 1 :])
        if isinstance(place, int):
            return xs[place].at(rest)
        found = xs[0].at(rest)
        for k, x in enumerate(xs[1:], 1):
            here = LaneValue(w.f.let(f"icmp eq i64 {place}, {k}"), "bool", True)
            found = tuple(w.select(here, a, b) for a, b in zip(x.at(rest), found, strict=True))
        return found

    return [Tensor(dtype, shape, at)]


def platform_index(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Which of some branches is meant for a processor: JAX lets libraries write one for each kind of device."""
    names = op["platforms"]
    found = next(k for k, name in enumerate(names) if name is None or "cpu" in name)
    return [constant(w, found, *results[0])]


def tile(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The array again and again, along each axis."""
    (x,), ((_, shape),) = xs, results

    def within(place: Index, size: int) -> Index:
        if isinstance(place, int) or size == 1:
            return place % size if isinstance(place, int) else 0
        return w.f.let(f"urem i64 {place}, {size}")

    return [_moved(x, shape, lambda index: tuple(map(within, index, x.shape)))]


def unstack(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """An array for each place of an axis."""
    (x,) = xs
    axis = op["axis"] % len(x.shape)

    def one(place: int, shape: tuple[int, ...]) -> Tensor:
        return _moved(x, shape, lambda index: (*index[:axis], place, *index[axis:]))

    return [one(k, shape) for k, (_, shape) in enumerate(results)]


def pad(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x, filling), (dtype, shape) = xs, results[0]
    config = op["padding_config"]
    if math.prod(x.shape) == 0:
        return [Tensor(dtype, shape, lambda _: filling.at(()))]

    def at(index: Indices) -> Element:
        inside: LaneValue | None = None
        places: list[Index] = []
        for i, (low, _, between), n in zip(index, config, x.shape, strict=True):
            if isinstance(i, int):
                place, off = divmod(i - low, between + 1)
                if off or not 0 <= place < n:
                    return filling.at(())
                places.append(place)
                continue
            moved = add(w, i, -low)
            held = [f"icmp sge i64 {moved}, 0", f"icmp slt i64 {moved}, {(n - 1) * (between + 1) + 1}"]
            if between:
                held.append(f"icmp eq i64 {w.f.let(f'srem i64 {moved}, {between + 1}')}, 0")
                moved = w.f.let(f"sdiv i64 {moved}, {between + 1}")
            for test in held:
                inside = w.both(inside, LaneValue(w.f.let(test), "bool", True))
            places.append(clamped(w, moved, n))
        found = x.at(tuple(places))
        if inside is None:
            return found
        return tuple(w.select(inside, a, b) for a, b in zip(found, filling.at(()), strict=True))

    return [Tensor(dtype, shape, at)]


def iota(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (dtype, shape), axis = results[0], op["dimension"]

    def at(index: Indices) -> Element:
        return (of_index(w, index[axis], dtype),)

    return [Tensor(dtype, shape, at, held=True, fixed=True)]


def of_index(w: LaneWriter, index: Index, dtype: str) -> LaneValue:
    """An index as a number."""
    if isinstance(index, (int, np.integer)):
        return w.constant(int(index), dtype)
    whole = LaneValue(index, "int64", True)
    if dtype.startswith("float"):
        return w.cast("sitofp", whole, dtype)
    bits = w.constant(0, word(dtype)).bits
    return LaneValue(index, dtype, True) if bits == 64 else w.cast("trunc", whole, dtype)


MOVES: Mapping[str, Callable[..., list[Tensor]]] = {
    "broadcast_in_dim": broadcast,
    "concatenate": concatenate,
    "iota": iota,
    "pad": pad,
    "platform_index": platform_index,
    "reshape": reshape,
    "rev": reverse,
    "slice": part,
    "split": split,
    "squeeze": reshape,
    "stack": stack,
    "tile": tile,
    "transpose": transpose,
    "unstack": unstack,
}
