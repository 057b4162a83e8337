"""Instructions on numbers: one for each lane of a gang, or one that all lanes share.

A number of one lane is a register of `width` of them: `<16 x float>`; what all lanes share is a single one, and is
spread where it meets the others. With a width of 1 there is no difference, and a mask is a plain condition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm import float32, float64, float64_special, machine_code
from autobatch.backends.llvm.formulas import INTRINSICS, Formula, VectorWriter, called, in_double, inline, text_of
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction, broadcast
from autobatch.common.record import record
from autobatch.ir import jax_compat
from autobatch.ir.ops import Op

# ---- folding
#
# Instructions whose result is known while they are written: those on literals, and on bools beside one.
#
#     icmp eq i32 3, 0            false
#     and i1 %v1, true            %v1
#
# LLVM would find the same, later and for more: a text that has none of these is read and compiled faster.


LITERALS = frozenset("-0123456789")

WHOLE: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "smin": min,
    "smax": max,
}
"""Of integers as they are."""

COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
UNSIGNED: Mapping[str, Callable[[int, int], bool]] = {
    "ult": operator.lt,
    "ule": operator.le,
    "ugt": operator.gt,
    "uge": operator.ge,
}

BESIDE: Mapping[tuple[str, str], str | None] = {
    ("and", "true"): None,
    ("and", "false"): "false",
    ("or", "true"): "true",
    ("or", "false"): None,
    ("xor", "false"): None,
    ("icmp ne", "false"): None,
    ("icmp eq", "true"): None,
}
"""Of a bool and a literal, in either order: what that is; None: the bool."""


def whole(text: str) -> int | None:
    """The integer that a literal is; None where it is none."""
    return int(text) if text[0] in LITERALS and not text.startswith("0x") else None


def literal(n: int, bits: int) -> str:
    """A number of so many bits, as texts have it: with a sign."""
    n &= (1 << bits) - 1
    return str(n - (1 << bits) if n >> (bits - 1) else n)


def of_integers(name: str, a: str, b: str, bits: int) -> str | None:
    """The literal that an instruction on two integers is; None where that is not known."""
    x, y = whole(a), whole(b)
    if x is None or y is None:
        return None
    if name in WHOLE:
        return literal(WHOLE[name](x, y), bits)
    predicate = name.removeprefix("icmp ")
    if predicate in COMPARED:
        return "true" if COMPARED[predicate](x, y) else "false"
    if predicate in UNSIGNED:
        mask = (1 << bits) - 1
        return "true" if UNSIGNED[predicate](x & mask, y & mask) else "false"
    return None


def of_bools(name: str, a: str, b: str) -> str | None:
    """What an instruction on two bools is, where one is a literal: that bool, or a literal."""
    for one, other in ((a, b), (b, a)):
        if (name, one) in BESIDE:
            found = BESIDE[name, one]
            return other if found is None else found
    return "false" if name == "xor" and a == b == "true" else None


ELEMENTS = {
    "bool": "i1",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "uint16": "i16",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
    "float16": "i16",
    "bfloat16": "i16",
    "float32": "float",
    "float64": "double",
}
"""The dtypes of numbers, and LLVM's types for them."""

HALVES = ("float16", "bfloat16")
"""Floats that are kept as their bits (`elementwise.py`)."""

COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""Complex numbers, and the dtype of their parts: two numbers each."""

ROOM, STACK = 1 << 17, 1 << 20
"""Bytes that arrays may have on the stack of a thread: of a program that XLA's threads run; and of any other, so much
as the cache of a processor holds, of which one lane has further ones elsewhere. (There they are slower: LLVM does not
know that no two are the same. Attention over 40 vectors 4.0 instead of 2.4 ms.)"""

BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}


def in_vectors(width: int) -> str:
    """Metadata of a loop: LLVM is to make vectors of so many turns. (Where it were told to in any case, it would write
    to the standard error stream of loops of which it makes none.)"""
    return f'!"llvm.loop.vectorize.width", i32 {width}'


@record
class LaneValue:
    """A value of LLVM's: one of `dtype` for each lane, or (`shared`) one for all. `factors`: it is their product, and a
    sum with it may round once."""

    text: str
    dtype: str
    shared: bool = False
    factors: tuple[LaneValue, LaneValue] | None = field(default=None, compare=False)
    vector: str | None = field(default=None, compare=False)
    """A mask as a vector of 32 bits for each lane, of which the first one counts."""

    @property
    def element(self) -> str:
        return ELEMENTS[self.dtype]

    @property
    def is_float(self) -> bool:
        return self.element in ("float", "double")

    @property
    def is_signed(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def bits(self) -> int:
        return 1 if self.dtype == "bool" else 8 * BYTES[self.element]


ZERO = "zeroinitializer"
GATHERED = 4
"""Bytes of the smallest numbers that processors gather and scatter."""


class LaneWriter:
    """Writes into one function, for gangs of `width` lanes. `vectorizes`: with one lane LLVM is to make vectors of
    loops over arrays."""

    def __init__(self, f: LlvmFunction, width: int, vectorizes: bool = True) -> None:
        self.f, self.width, self.vectorizes = f, width, vectorizes
        self.reserved, self.room = 0, ROOM
        self.outside: Callable[[int], str] | None = None
        """Where so many bytes are that the stack has no room for; None: nowhere."""
        self.whole = False
        """Is this the code of whole functions, so that no other code computes products of matrices; does it run in this
        process, so that it may call functions of other libraries?"""
        self.sizes: dict[str, int] = {}
        self.released: list[str] = []

    # ---- types and constants

    def type_of(self, dtype: str, shared: bool = False) -> str:
        return self.vector(ELEMENTS[dtype], shared)

    def vector(self, element: str, shared: bool = False) -> str:
        return element if shared or self.width == 1 else f"<{self.width} x {element}>"

    def constant(self, value: Any, dtype: str) -> LaneValue:
        element = ELEMENTS.get(dtype)
        if element is None:
            raise RefusedError(f"numbers of {dtype}")
        if element == "i1":
            return LaneValue("true" if value else "false", dtype, True)
        if dtype in HALVES:
            value = int(np.asarray(value, jnp.dtype(dtype)).view(np.uint16))
        if element in ("float", "double"):
            return LaneValue(text_of(float(value), BYTES[element]), dtype, True)
        bits = 8 * BYTES[element]
        whole = int(value) & ((1 << bits) - 1)
        return LaneValue(str(whole - (1 << bits) if whole >> (bits - 1) else whole), dtype, True)

    def spread(self, x: LaneValue) -> LaneValue:
        """The same number in each lane."""
        if not x.shared or self.width == 1:
            return LaneValue(x.text, x.dtype, False, vector=x.vector)
        if x.text in ("true", "false") and self.holds_masks_in_vectors:
            return LaneValue(f"splat (i1 {x.text})", x.dtype, False)
        return LaneValue(broadcast(self.f, self.width, x.element, x.text), x.dtype, False)

    def together(self, *xs: LaneValue) -> tuple[list[LaneValue], bool]:
        """Numbers that one instruction can take, and whether all lanes share them."""
        shared = all(x.shared for x in xs)
        return ([*xs] if shared else [self.spread(x) for x in xs]), shared

    # ---- memory, each lane its own place

    def gathered(
        self, dtype: str, places: str, where: str, align: int | None = None, otherwise: str = ZERO
    ) -> LaneValue:
        """What stands at addresses, in the lanes of a mask."""
        of, pointers, lanes = stored(dtype), self.vector("ptr"), self.vector("i1")
        vector, name = self.vector(of), f"@llvm.masked.gather.{self.suffix(of)}.v{self.width}p0"
        align = align or BYTES[of]
        if BYTES[of] >= GATHERED:
            self.f.declare(f"declare {vector} {name}({pointers}, i32, {lanes}, {vector})")
            operands = f"{pointers} {places}, i32 {align}, {lanes} {where}, {vector} {otherwise}"
            return LaneValue(self.f.let(f"call {vector} {name}({operands})"), dtype)
        found = ZERO
        for k, place in enumerate(self._places_of_lanes(of, places, where)):
            x = self.f.let(f"load {of}, ptr {place}, align {align}")
            found = self.f.let(f"insertelement {vector} {found}, {of} {x}, i32 {k}")
        return LaneValue(self.f.let(f"trunc {vector} {found} to {lanes}") if dtype == "bool" else found, dtype)

    def scatter(self, x: LaneValue, places: str, where: str) -> None:
        """Write what lanes have to their addresses, in the lanes of a mask."""
        of, pointers, lanes = stored(x.dtype), self.vector("ptr"), self.vector("i1")
        vector, name = self.vector(of), f"@llvm.masked.scatter.{self.suffix(of)}.v{self.width}p0"
        if BYTES[of] >= GATHERED:
            self.f.declare(f"declare void {name}({vector}, {pointers}, i32, {lanes})")
            operands = f"{pointers} {places}, i32 {BYTES[of]}, {lanes} {where}"
            self.f.do(f"call void {name}({vector} {x.text}, {operands})")
            return
        text = self.f.let(f"zext {lanes} {x.text} to {vector}") if x.dtype == "bool" else x.text
        with self.f.when(self.any(LaneValue(where, "bool"))):  # LLVM's schedulers are quadratic in a block's length
            for k, place in enumerate(self._places_of_lanes(of, places, where)):
                held = self.f.let(f"extractelement {vector} {text}, i32 {k}")
                self.f.do(f"store {of} {held}, ptr {place}, align {BYTES[of]}")

    def _places_of_lanes(self, of: str, places: str, where: str) -> list[str]:
        """The address of each lane; of one outside of the mask that of a number which nobody reads but such lanes.

        Processors gather and scatter no numbers of less than four bytes: LLVM makes a branch for each lane then, and
        thousands of branches take it seconds."""
        nowhere = self.f.cleared_slot(of, "0")
        pointers, elsewhere = self.vector("ptr"), broadcast(self.f, self.width, "ptr", nowhere)
        chosen = self.f.let(f"select {self.vector('i1')} {where}, {pointers} {places}, {pointers} {elsewhere}")
        return [self.f.let(f"extractelement {pointers} {chosen}, i32 {k}") for k in range(self.width)]

    def suffix(self, of: str) -> str:
        """How the names of functions that read and write memory end."""
        return f"v{self.width}{of if of.startswith('i') else f'f{8 * BYTES[of]}'}"

    # ---- instructions

    def instruction(self, name: str, a: LaneValue, b: LaneValue, dtype: str | None = None) -> LaneValue:
        """`name` of two numbers of one type. `dtype`: of the result, where it is another."""
        if a.shared and b.shared and (known := self.known(name, a, b, dtype)) is not None:
            return known
        if a.dtype == "bool" and (found := of_bools(name, a.text, b.text)) is not None:
            return a if found == a.text else b if found == b.text else self.constant(found == "true", "bool")
        (a, b), shared = self.together(a, b)
        if self.in_vectors(a, b, shared):
            of = f"<{self.width} x i32>"
            return self.mask_of(self.f.let(f"{name} {of} {self.vector_of(a)}, {self.vector_of(b)}"))
        found = self.f.let(f"{name} {self.type_of(a.dtype, shared)} {a.text}, {b.text}")
        return LaneValue(found, dtype or a.dtype, shared)

    def known(self, name: str, a: LaneValue, b: LaneValue, dtype: str | None) -> LaneValue | None:
        """The constant that an instruction on two integers is; None where it is none."""
        if a.is_float or a.dtype == "bool" or a.dtype in HALVES:
            return None
        found = of_integers(name, a.text, b.text, a.bits)
        return None if found is None else LaneValue(found, dtype or a.dtype, True)

    def cast(self, name: str, x: LaneValue, dtype: str) -> LaneValue:
        """A conversion by an instruction of LLVM; of what has the dtype already there is none."""
        if x.dtype == dtype:
            return x
        to = self.type_of(dtype, x.shared)
        return LaneValue(self.f.let(f"{name} {self.type_of(x.dtype, x.shared)} {x.text} to {to}"), dtype, x.shared)

    def intrinsic(self, name: str, *xs: LaneValue, dtype: str | None = None) -> LaneValue:
        """An intrinsic of LLVM that is named by the type of its operands, and of its result where that is another."""
        if len(xs) == 2 and all(x.shared for x in xs) and (known := self.known(name, *xs, dtype)) is not None:
            return known
        held, shared = self.together(*xs)
        of = self.type_of(held[0].dtype, shared)
        to, suffix = of, self.suffix_of(held[0].dtype, shared)
        if dtype is not None:
            to, suffix = self.type_of(dtype, shared), f"{self.suffix_of(dtype, shared)}.{suffix}"
        operands = ", ".join(f"{of} {x.text}" for x in held)
        self.f.declare(f"declare {to} @llvm.{name}.{suffix}({', '.join([of] * len(held))})")
        return LaneValue(self.f.let(f"call {to} @llvm.{name}.{suffix}({operands})"), dtype or held[0].dtype, shared)

    def suffix_of(self, dtype: str, shared: bool) -> str:
        """How the names of intrinsics end for a type."""
        bits = 1 if dtype == "bool" else 8 * BYTES[ELEMENTS[dtype]]
        one = f"{'f' if ELEMENTS[dtype] in ('float', 'double') else 'i'}{bits}"
        return one if shared or self.width == 1 else f"v{self.width}{one}"

    def product(self, a: LaneValue, b: LaneValue) -> LaneValue:
        """Of floats."""
        return replace(self.instruction("fmul", a, b), factors=(a, b))

    def sum(self, a: LaneValue, b: LaneValue) -> LaneValue:
        """Of floats: with a product it is one operation. It is written as one: if LLVM were to choose, it would depend
        on the number of lanes."""
        if a.factors is not None:
            return self.intrinsic("fma", *a.factors, b)
        if b.factors is not None:
            return self.intrinsic("fma", *b.factors, a)
        return self.instruction("fadd", a, b)

    def difference(self, a: LaneValue, b: LaneValue) -> LaneValue:
        """Of floats."""
        if a.factors is not None:
            return self.intrinsic("fma", *a.factors, self.opposite(b))
        if b.factors is not None:
            one, other = b.factors
            return self.intrinsic("fma", self.opposite(one), other, a)
        return self.instruction("fsub", a, b)

    def opposite(self, x: LaneValue) -> LaneValue:
        """Of a float."""
        return LaneValue(self.f.let(f"fneg {self.type_of(x.dtype, x.shared)} {x.text}"), x.dtype, x.shared)

    def select(self, mask: LaneValue, a: LaneValue, b: LaneValue) -> LaneValue:
        if a == b:
            return rounded(a)
        if mask.text in ("true", "false"):
            return rounded(a if mask.text == "true" else b)
        if mask.shared:
            (a, b), shared = self.together(a, b)
            of = self.type_of(a.dtype, shared)
            return LaneValue(self.f.let(f"select i1 {mask.text}, {of} {a.text}, {of} {b.text}"), a.dtype, shared)
        a, b = self.spread(a), self.spread(b)
        of = self.type_of(a.dtype)
        return LaneValue(self.f.let(f"select {self.vector('i1')} {mask.text}, {of} {a.text}, {of} {b.text}"), a.dtype)

    def function(self, make: Callable[..., str], *xs: LaneValue) -> LaneValue:
        """A function of `formulas.py` or `float32.py`."""
        held, shared = self.together(*xs)
        v = self.vectors(held[0], shared)
        return LaneValue(make(v, *(x.text for x in held)), held[0].dtype, shared)

    def vectors(self, x: LaneValue, shared: bool) -> VectorWriter:
        for name, count in (*INTRINSICS.items(), ("fma", 3)):
            of, suffix = self.type_of(x.dtype, shared), self.suffix_of(x.dtype, shared)
            self.f.declare(f"declare {of} @llvm.{name}.{suffix}({', '.join([of] * count)})")
        return VectorWriter(self.f, x.element, 1 if shared else self.width)

    # ---- masks

    def both(self, a: LaneValue | None, b: LaneValue) -> LaneValue:
        """Lanes of two masks; None is all of them."""
        return b if a is None else self.instruction("and", a, b)

    def negated(self, mask: LaneValue) -> LaneValue:
        return self.instruction("xor", mask, self.constant(True, "bool"))

    def any(self, mask: LaneValue) -> str:
        """Is there a lane in a mask? An `i1`."""
        if mask.shared or self.width == 1:
            return mask.text
        text, width = mask.text, self.width
        if mask.vector is not None:  # one register of them
            text, width = self.joined(mask.vector)
        bits = self.f.let(f"bitcast <{width} x i1> {text} to i{width}")
        return self.f.let(f"icmp ne i{width} {bits}, 0")

    def joined(self, vector: str) -> tuple[str, int]:
        """Which lanes of a register are in a mask, in one of the registers that it consists of."""
        width, least = self.width, machine_code.host().target.lanes
        while width > least:
            half = width // 2
            cuts = []
            for first in (0, half):
                lanes, of = ", ".join(f"i32 {k}" for k in range(first, first + half)), f"<{width} x i32>"
                cuts.append(self.f.let(f"shufflevector {of} {vector}, {of} poison, <{half} x i32> <{lanes}>"))
            vector, width = self.f.let(f"or <{half} x i32> {cuts[0]}, {cuts[1]}"), half
        return self.f.let(f"icmp slt <{width} x i32> {vector}, zeroinitializer"), width

    def first(self, x: LaneValue, mask: LaneValue | None) -> LaneValue:
        """What the lanes of a mask share, as a single number: that of the first of them."""
        if x.shared or self.width == 1:
            return replace(x, shared=True)
        lane = "0"
        if mask is not None:
            of = f"i{self.width}"
            bits = self.f.let(f"bitcast {self.vector('i1')} {self.spread(mask).text} to {of}")
            self.f.declare(f"declare {of} @llvm.cttz.{of}({of}, i1)")
            zeros = self.f.let(f"call {of} @llvm.cttz.{of}({of} {bits}, i1 false)")
            lane = self.f.let(f"and {of} {zeros}, {self.width - 1}")
        place = lane if mask is None else self.f.let(f"zext i{self.width} {lane} to i64")
        return LaneValue(self.f.let(f"extractelement {self.type_of(x.dtype)} {x.text}, i64 {place}"), x.dtype, True)

    @property
    def holds_masks_in_vectors(self) -> bool:
        """Has the processor no registers for masks? Then one that blocks pass on is a vector of 32 bits for each lane:
        LLVM packs single bits at the end of a block, and unpacks them at the begin of the next."""
        return self.width > 1 and machine_code.host().target.bits < 512

    def in_vectors(self, a: LaneValue, b: LaneValue, shared: bool) -> bool:
        """Is an operation on masks one on vectors? One of them is already, or there are several registers, whose bits
        LLVM would pack into one."""
        if a.dtype != "bool" or shared or not self.holds_masks_in_vectors:
            return False
        return a.vector is not None or b.vector is not None or self.width > machine_code.host().target.lanes

    def between_blocks(self, mask: LaneValue) -> LaneValue:
        """A mask that other blocks read."""
        if mask.shared or not self.holds_masks_in_vectors:
            return mask
        return self.mask_of(self.vector_of(mask))

    def vector_of(self, mask: LaneValue) -> str:
        """A mask as numbers of which LLVM knows nothing, so that it keeps them as they are. (It moves comparisons to
        the blocks that read them.)"""
        if mask.vector is not None:
            return mask.vector
        if mask.text.removeprefix("splat (i1 ").removesuffix(")") in ("true", "false"):
            return f"splat (i32 {-1 if 'true' in mask.text else 0})"
        of = f"<{self.width} x i32>"
        whole = self.f.let(f"sext {self.vector('i1')} {self.spread(mask).text} to {of}")
        target = machine_code.host().target
        many = min(self.width, target.lanes)
        part, constraint = f"<{many} x i32>", "w" if target.triple.startswith("aarch64") else "x"
        parts = []
        for first in range(0, self.width, many):
            lanes = ", ".join(f"i32 {k}" for k in range(first, first + many))
            cut = self.f.let(f"shufflevector {of} {whole}, {of} poison, <{many} x i32> <{lanes}>")
            parts.append(self.f.let(f'call {part} asm "", "={constraint},0"({part} {cut})'))
        while len(parts) > 1:
            many *= 2
            half, lanes = f"<{many // 2} x i32>", ", ".join(f"i32 {k}" for k in range(many))
            parts = [
                self.f.let(f"shufflevector {half} {a}, {half} {b}, <{many} x i32> <{lanes}>")
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def mask_of(self, vector: str) -> LaneValue:
        found = self.f.let(f"icmp slt <{self.width} x i32> {vector}, zeroinitializer")
        return LaneValue(found, "bool", vector=vector)

    # ---- variables

    def bytes_of(self, dtype: str) -> int:
        """Of one number in memory."""
        return BYTES[stored(dtype)]

    def slot(self, dtype: str, shared: bool = False, as_bits: bool = False) -> StackSlot:
        """A variable. `as_bits`: a mask that no other block reads."""
        if dtype == "bool" and not shared and not as_bits and self.holds_masks_in_vectors:
            return StackSlot(self, self.f.vector_slot(f"<{self.width} x i32>"), dtype, shared, as_vector=True)
        return StackSlot(self, self.f.vector_slot(self.type_of(dtype, shared)), dtype, shared)

    def reserve(self, dtype: str, count: int) -> str:
        """Memory for so many numbers of each lane, for as long as the function runs."""
        bytes = BYTES[stored(dtype)] * count * self.width
        fits = [place for place in self.released if self.sizes[place] >= bytes]
        if fits:
            place = min(fits, key=self.sizes.__getitem__)
            self.released.remove(place)
            return place
        if self.outside is not None and self.reserved + bytes > STACK:
            place = self.outside(bytes)
        else:
            self.reserved += bytes
            place = self.f.array_slot(stored(dtype), count * self.width)
        self.sizes[place] = bytes
        return place

    def release(self, place: str) -> None:
        """Memory that was reserved is not needed any more: who reserves next gets it."""
        self.released.append(place)

    def loop(self, count: int | str, parallel: bool = False) -> AbstractContextManager[str]:
        """A loop over the numbers of an array, of which LLVM makes vectors where there is one lane. `parallel`: no turn
        reads what another one writes. (Its end has no mask: a load behind a masked store waits for memory.)"""
        hints = [in_vectors(machine_code.host().target.lanes)] if self.width == 1 and self.vectorizes else []
        if hints and parallel:
            hints.append(f'!"llvm.loop.parallel_accesses", {self.f.access_group()}')
        return self.f.loop(0, count, 1, hints)

    def as_vector(self, count: int) -> AbstractContextManager[str]:
        """A parallel loop over so many numbers, a power of two, of which LLVM makes one vector, where there is one
        lane. (Without the last hint it is unrolled before that.)"""
        if not self.vectorizes:
            return self.f.loop(0, count, 1)
        group = f'!"llvm.loop.parallel_accesses", {self.f.access_group()}'
        once = '!"llvm.loop.interleave.count", i32 1'
        return self.f.loop(0, count, 1, [in_vectors(count), once, group, '!"llvm.loop.unroll.disable"'])


@dataclass(frozen=True)
class StackSlot:
    """A variable, which LLVM's pass `sroa` makes a register of."""

    w: LaneWriter
    place: str
    dtype: str
    shared: bool
    as_vector: bool = False
    """A mask, which is held as one."""

    def set(self, x: LaneValue) -> None:
        held = x if self.shared else self.w.spread(x)
        assert held.dtype == self.dtype, (held.dtype, self.dtype)
        if self.as_vector:
            self.w.f.do(f"store <{self.w.width} x i32> {self.w.vector_of(held)}, ptr {self.place}")
            return
        self.w.f.do(f"store {self.w.type_of(self.dtype, self.shared)} {held.text}, ptr {self.place}")

    def get(self) -> LaneValue:
        if self.as_vector:
            return self.w.mask_of(self.w.f.let(f"load <{self.w.width} x i32>, ptr {self.place}"))
        found = self.w.f.let(f"load {self.w.type_of(self.dtype, self.shared)}, ptr {self.place}")
        return LaneValue(found, self.dtype, self.shared)


def rounded(x: LaneValue) -> LaneValue:
    """A number that is not part of a sum."""
    return x if x.factors is None else replace(x, factors=None)


def stored(dtype: str) -> str:
    """LLVM's type of a number in memory: a bool is a byte."""
    return "i8" if dtype == "bool" else ELEMENTS[dtype]


# ---- floats
#
# Functions of floats that work number by number: one table of formulas, for each dtype.


Written = Callable[..., str]
"""`written(vectors, *xs)`."""


def of_floats(name: str, written: Mapping[str, Written]) -> Callable[..., LaneValue]:
    """A function of floats of one dtype, by the dtype."""

    def make(w: LaneWriter, op: Op, *xs: LaneValue) -> LaneValue:
        if jax_compat.has_tolerance(op):
            raise RefusedError(f"{name} of a given accuracy")
        if xs[0].dtype not in written or any(x.dtype != xs[0].dtype for x in xs):
            raise RefusedError(f"{name} of {' and '.join(x.dtype for x in xs)}")
        return w.function(written[xs[0].dtype], *xs)

    return make


def _once(name: str, formula: Formula) -> Written:
    """A function that gangs call. One lane has it in place, where LLVM can make vectors of the loop around it."""
    in_gangs, alone = called(f"ab_{name}", formula), inline(formula)
    return lambda v, *xs: alone(v, *xs) if v.lanes == 1 else in_gangs(v, *xs)


def _both(name: str, single: Formula, double: Formula) -> Callable[..., LaneValue]:
    return of_floats(name, {"float32": _once(name, single), "float64": _once(name, double)})


def _short(name: str, single: Formula, double: Formula) -> Callable[..., LaneValue]:
    """A formula of floats that is short enough to stand wherever it is used; in a function that is long already it is
    called, for there the compiler's time is what counts."""
    in_place, once = inline(single), _once(name, single)
    written = lambda v, *xs: (once if v.f.is_long else in_place)(v, *xs)
    return of_floats(name, {"float32": written, "float64": _once(name, double)})


def _rounded(name: str, double: Formula) -> Callable[..., LaneValue]:
    """The double, rounded."""
    return _both(name, in_double(double), double)


def whole_power(w: LaneWriter, x: LaneValue, n: int) -> LaneValue:
    """Products of doubles are exact enough for float32."""
    if x.dtype == "float32":
        return w.function(inline(in_double(lambda x: float64.power_by_squares(x, n))), x)
    return w.function(inline(lambda x: float64.whole_power(x, n)), x)


FLOATS: Mapping[str, Callable[..., LaneValue]] = {
    "acos": _both("acos", float32.acos, float64.acos),
    "acosh": _both("acosh", float32.acosh, float64.acosh),
    "asin": _both("asin", float32.asin, float64.asin),
    "asinh": _both("asinh", float32.asinh, float64.asinh),
    "atan": _both("atan", float32.atan, float64.atan),
    "atan2": _both("atan2", float32.atan2, float64.atan2),
    "atanh": _both("atanh", float32.atanh, float64.atanh),
    "cbrt": _rounded("cbrt", float64.cbrt),
    "cos": _short("cos", float32.cos, float64.cos),
    "cosh": _both("cosh", float32.cosh, float64.cosh),
    "digamma": _both("digamma", float32.digamma, float64_special.digamma),
    "erf": _both("erf", float32.erf, float64_special.erf),
    "erf_inv": _both("erf_inv", float32.erf_inv, float64_special.inverse_of_erf),
    "erfc": _both("erfc", float32.erfc, float64_special.erfc),
    "exp": _short("exp", float32.exp, float64.exp),
    "exp2": _both("exp2", float32.exp2, float64.exp2),
    "expm1": _both("expm1", float32.expm1, float64.expm1),
    "lgamma": _both("lgamma", float32.lgamma, float64_special.lgamma),
    "log": _short("log", float32.log, float64.log),
    "log1p": _both("log1p", float32.log1p, float64.log1p),
    "logistic": _both("logistic", float32.logistic, float64.logistic),
    "nextafter": _both("nextafter", float64.neighbour, float64.neighbour),
    "pow": _both("pow", float32.pow, float64.pow),
    "rem": _both("rem", float64.remainder, float64.remainder),
    "sin": _short("sin", float32.sin, float64.sin),
    "sinh": _both("sinh", float32.sinh, float64.sinh),
    "tan": _both("tan", float32.tan, float64.tan),
    "tanh": _short("tanh", float32.tanh, float64.tanh),
}
"""By the name of JAX's primitive."""
