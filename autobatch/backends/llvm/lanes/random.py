"""Random bits: the generator threefry of two words, as JAX counts with it.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011:
Threefry-2x32 with 20 rounds. How `jax.random` makes counts of a shape is that of its option
`jax_threefry_partitionable`; the older way is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import jax

from autobatch.backends.llvm.lanes.by_number import convert
from autobatch.backends.llvm.lanes.moves import Shapes, of_index
from autobatch.backends.llvm.lanes.tensors import KEY, Element, Indices, Tensor, flat, kept
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(w: LaneWriter, key: Sequence[LaneValue], count: Sequence[LaneValue]) -> tuple[LaneValue, LaneValue]:
    """Two words of bits from the two words of a key and of a count."""
    third = w.instruction("xor", w.instruction("xor", key[0], key[1]), w.constant(PARITY, "uint32"))
    keys = [key[0], key[1], third]
    a, b = (w.instruction("add", c, k) for c, k in zip(count, key, strict=True))
    for turn in range(5):
        for by in ROTATIONS[turn % 2]:
            a = w.instruction("add", a, b)
            left = w.instruction("shl", b, w.constant(by, "uint32"))
            right = w.instruction("lshr", b, w.constant(32 - by, "uint32"))
            b = w.instruction("xor", a, w.instruction("or", left, right))
        a = w.instruction("add", a, keys[(turn + 1) % 3])
        more = w.instruction("add", keys[(turn + 2) % 3], w.constant(turn + 1, "uint32"))
        b = w.instruction("add", b, more)
    return a, b


def _refuse_older(shape: Sequence[int]) -> None:
    if not jax.config.values["jax_threefry_partitionable"]:
        raise RefusedError("random numbers with jax_threefry_partitionable off")
    if math.prod(shape) >= 1 << 32:
        raise RefusedError("that many random numbers")


def _counted(w: LaneWriter, index: Indices, shape: Sequence[int]) -> list[LaneValue]:
    return [w.constant(0, "uint32"), of_index(w, flat(w, index, shape), "uint32")]


def bits(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (key,), (dtype, shape) = xs, results[0]
    own = tuple(op["shape"])
    if key.dtype != KEY or op["bit_width"] not in (8, 16, 32):
        raise RefusedError("random bits of that kind")
    _refuse_older(own)

    def at(index: Indices) -> Element:
        outer, inner = index[: len(key.shape)], index[len(key.shape) :]
        a, b = threefry(w, key.at(outer), _counted(w, inner, own))
        found = w.instruction("xor", a, b)
        return (found if dtype == "uint32" else w.cast("trunc", found, dtype),)

    return [Tensor(dtype, shape, at)]


def split(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (key,), (dtype, shape), own = xs, results[0], tuple(op["shape"])
    if key.dtype != KEY:
        raise RefusedError("random keys of that kind")
    _refuse_older(own)

    def at(index: Indices) -> Element:
        outer, inner = index[: len(key.shape)], index[len(key.shape) :]
        return threefry(w, key.at(outer), _counted(w, inner, own))

    return [Tensor(dtype, shape, at)]


def fold_in(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    key, data = xs
    if key.dtype != KEY or data.dtype != "uint32":
        raise RefusedError("random keys of that kind")

    def at(index: Indices) -> Element:
        inner = data.one(index[len(index) - len(data.shape) :])
        count = threefry_seed(w, inner)
        return threefry(w, key.at(index[: len(key.shape)]), count)

    return [Tensor(KEY, results[0][1], at)]


def threefry_seed(w: LaneWriter, seed: LaneValue) -> list[LaneValue]:
    """The words of the key of a seed of 32 bits."""
    return [w.constant(0, "uint32"), seed]


def seed(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The key of a whole number: its upper 32 bits, and the lower ones."""
    (x,), (dtype, shape) = xs, results[0]
    if dtype != KEY or not x.dtype.startswith(("int", "uint")):
        raise RefusedError(f"a random key of {x.dtype}")

    def at(index: Indices) -> Element:
        number = x.one(index)
        low = convert(w, number, "uint32")
        if number.bits < 64:
            return w.constant(0, "uint32"), low
        return convert(w, w.instruction("lshr", number, w.constant(32, number.dtype)), "uint32"), low

    return [Tensor(KEY, shape, at)]


def words_of_bits(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The generator itself: two words of a key and two of a count."""

    def at(index: Indices) -> tuple[LaneValue, LaneValue]:
        key, other, high, low = (x.one(index if x.shape else ()) for x in xs)
        return threefry(w, (key, other), (high, low))

    dtype, shape = results[0]
    both = kept(w, Tensor(KEY, shape, at))

    def word(k: int) -> Tensor:
        return Tensor(dtype, shape, lambda index: (both.at(index)[k],), both.held, both.fixed)

    return [word(0), word(1)]


def wrap(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), (dtype, shape) = xs, results[0]
    if dtype != KEY:
        raise RefusedError("random keys of that kind")
    return [Tensor(KEY, shape, lambda index: (x.one((*index, 0)), x.one((*index, 1))), x.held, x.fixed)]


def unwrap(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (key,), (dtype, shape) = xs, results[0]

    def at(index: Indices) -> Element:
        pair, which = key.at(index[:-1]), index[-1]
        if isinstance(which, int):
            return (pair[which],)
        second = LaneValue(w.f.let(f"icmp ne i64 {which}, 0"), "bool", True)
        return (w.select(second, pair[1], pair[0]),)

    return [Tensor(dtype, shape, at, key.held, key.fixed)]


RANDOM: Mapping[str, Callable[..., list[Tensor]]] = {
    "random_bits": bits,
    "random_fold_in": fold_in,
    "random_seed": seed,
    "random_split": split,
    "random_unwrap": unwrap,
    "random_wrap": wrap,
    "threefry2x32": words_of_bits,
}
