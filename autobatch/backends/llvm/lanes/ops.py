"""What leaf operations are in machine code: one table, and how what is not in it is expanded."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm.lanes.elementwise import BITS, BY_NUMBER, COMPLEX_RULES, COSTLY, convert, in_single
from autobatch.backends.llvm.lanes.gathers import INDEXING, taken
from autobatch.backends.llvm.lanes.reductions import (
    COMPLEX_REDUCTIONS,
    KINDS,
    LARGEST_PRODUCT,
    REDUCTIONS,
    SORTING,
    product,
    total,
)
from autobatch.backends.llvm.lanes.special import MATRICES, REFUSED, SPECIAL, random_gamma
from autobatch.backends.llvm.lanes.tensors import (
    KEY,
    MOVES,
    Element,
    Index,
    Indices,
    Shapes,
    Tensor,
    TensorVariable,
    add,
    apart,
    constant,
    copied,
    element,
    flat,
    fresh,
    in_registers,
    kept,
    multiply,
    of_index,
    over,
    pad,
    registers,
    scalar,
    select,
    set_all,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import COMPLEX, ELEMENTS, HALVES, LaneValue, LaneWriter, rounded
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import is_checking
from autobatch.errors import NOWHERE
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Apply, Array, Instruction, Literal, Operand, Type, Value
from autobatch.ir.ops import Op

# ---- expand
#
# Operations written with others: what JAX makes of an operation of our own, of a derivative, of a function with rules.
#
# floordiv(%0, %1)          ->  div, sign, ne, rem, ... : the jaxpr of `jnp.floor_divide`
# pullback[mul](%0, %1, %2) ->  mul(%2, %1)
# custom_jvp_call[f](%0)    ->  the equations of f
# cholesky(%0)              ->  what `special.py`, `special.py`, `special.py` write with others


_HOLDERS = ("custom_jvp_call", "custom_vjp_call", "call_hi_primitive")


def _log2(op: Op, x: jax.Array) -> jax.Array:
    return jax.lax.log(x) * jnp.asarray(1.4426950408889634, x.dtype)


def _one_minus_square(op: Op, x: jax.Array) -> jax.Array:
    """A difference of numbers near 1 is exact, one of their squares is not."""
    return (1 + x) * (1 - x)


def _polynomial(op: Op, x: jax.Array, *coefficients: jax.Array) -> jax.Array:
    """By Horner's rule, the constant term first."""
    found = jnp.broadcast_to(coefficients[-1], jnp.broadcast_shapes(x.shape, *(c.shape for c in coefficients)))
    for c in coefficients[-2::-1]:
        found = found * x + c
    return found


WRITTEN: Mapping[str, Callable[..., Any]] = {
    **MATRICES,
    **SPECIAL,
    "log2": _log2,
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "random_gamma": random_gamma,
}
"""By the name of JAX's primitive: `written(op, *operands)`, to be traced."""


class Equations(NamedTuple):
    """Straight-line code: `results` of `inputs`, and the arrays that its literals name."""

    inputs: tuple[Value, ...]
    body: tuple[Apply, ...]
    results: tuple[Operand, ...]
    constants: tuple[Any, ...]


def expanded(op: Op, operands: Sequence[Array], results: Sequence[Array]) -> Equations:
    """What an operation consists of. RefusedError where it is one that consists of nothing else."""
    try:
        return _expanded(op, tuple(operands), tuple(results), jax_compat.settings())
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _expand(op, operands, results)


@lru_cache(maxsize=4096)
def _expanded(op: Op, operands: tuple[Array, ...], results: tuple[Array, ...], settings: Hashable) -> Equations:
    """`settings`: the width of Python's numbers among them, which types do not tell."""
    return _expand(op, operands, results)


def _expand(op: Op, operands: Sequence[Array], results: Sequence[Array]) -> Equations:
    if op.is_jax and op.name not in (*_HOLDERS, *WRITTEN):
        raise RefusedError(f"it has no {REFUSED[op.name]}" if op.name in REFUSED else f"{op.name} is not known to it")
    if op.name in WRITTEN:
        closed, _ = jax_compat.trace(lambda *xs: WRITTEN[op.name](op, *xs), *operands)
    elif op.is_jax:
        closed = jax_compat.held_program(op, operands)
    else:
        closed, _ = jax_compat.trace(lambda *xs: leaf.evaluate(op, results, *xs), *operands)
    return of_jaxpr(closed, operands)


def of_jaxpr(closed: Any, operands: Sequence[Array]) -> Equations:
    """A jaxpr as equations."""
    ids = count()
    constants: list[Any] = []
    body: list[Apply] = []

    def fresh(type: Array) -> Value:
        return Value(next(ids), type)

    def constant(value: Any) -> Literal:
        constants.append(value)
        return Literal(None, jax_compat.type_of(value), len(constants) - 1)

    inputs = tuple(fresh(t) for t in operands)
    found = jax_compat.inline(closed, inputs, fresh, constant, body.append, NOWHERE)
    return _needed(Equations(inputs, tuple(body), tuple(found), tuple(constants)))


def _needed(whole: Equations) -> Equations:
    """Without what no result depends on."""
    live = {x for x in whole.results if isinstance(x, Value)}
    body = []
    for i in reversed(whole.body):
        if not live.isdisjoint(i.results):
            body.append(i)
            live.update(x for x in i.operands if isinstance(x, Value))
    return whole._replace(body=tuple(reversed(body)))


# ---- inner
#
# Control flow that a leaf operation brings with it: `jax.lax.scan`, `while_loop`, `cond`, `switch`, `reduce`.
#
# What they hold is straight-line code; what the lanes of a gang disagree on is a mask, as in `control.py`.


UNROLLED = 64
"""Operations of all turns of a loop up to which they are written one after another."""

GUARDED = 10
"""Operations from which on a branch stands behind `any` of its mask."""

Rule = Callable[["LeafOperations", Op, Sequence[Tensor], Shapes], list[Tensor]]


def _equations(closed: Any) -> Equations:
    types = [jax_compat.type_of(v.aval) for v in closed.jaxpr.invars]
    return of_jaxpr(closed, [t for t in types if isinstance(t, Array)])


def _variables(leaves: LeafOperations, of: Sequence[Tensor]) -> list[TensorVariable]:
    found = [TensorVariable(leaves.w, x.dtype, x.shape) for x in of]
    set_all(leaves.w, found, of)
    return found


def _now(variables: Sequence[TensorVariable]) -> list[Tensor]:
    return [v.get() for v in variables]


def scan(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    w, length = leaves.w, op["length"]
    consts, carries = jax_compat.carried(op)
    inner = _equations(op["jaxpr"])
    held = [kept(w, x) for x in xs]
    given, sliced = held[:consts], held[consts + carries :]
    carried = _variables(leaves, held[consts : consts + carries])
    rows = [fresh(w, dtype, shape) for dtype, shape in results[carries:]]

    def turn(number: Index) -> None:
        place = add(w, length - 1, multiply(w, number, -1)) if op["reverse"] else number

        def row(x: Tensor) -> Tensor:
            return Tensor(x.dtype, x.shape[1:], lambda index: x.at((place, *index)), x.held)

        found = leaves.expansion(inner, [*given, *_now(carried), *map(row, sliced)])
        for memory, x in zip(rows, found[carries:], strict=True):
            over(w, x.shape, lambda i, memory=memory, x=x: memory.write((place, *i), x.at(i)))  # type: ignore[misc]
        set_all(w, carried, found[:carries])

    if length * len(inner.body) <= UNROLLED:
        for number in range(length):
            turn(number)
    else:
        with w.f.loop(0, length, 1) as index:
            turn(index)
    return [*(copied(w, v.get()) for v in carried), *(m.final for m in rows)]


def conditional(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """`while_loop`. Lanes that take no part do not keep the others waiting: theirs are never active."""
    w, mask = leaves.w, leaves.mask
    of_test, of_body = op["cond_nconsts"], op["body_nconsts"]
    test, body = _equations(op["cond_jaxpr"]), _equations(op["body_jaxpr"])
    held = [kept(w, x) for x in xs]
    for_test, for_body = held[:of_test], held[of_test : of_test + of_body]
    carried = _variables(leaves, held[of_test + of_body :])
    goes_on = w.slot("bool")

    def more() -> str:
        (found,) = leaves.expansion(test, [*for_test, *_now(carried)])
        goes_on.set(found.one() if mask is None else w.both(mask, found.one()))
        return w.any(goes_on.get())

    with w.f.whilst(more):
        active = None if w.width == 1 else goes_on.get()
        leaves.mask = mask if active is None else active
        found = leaves.expansion(body, [*for_body, *_now(carried)])
        if active is not None:
            found = [select(w, active, x, v.get()) for x, v in zip(found, carried, strict=True)]
        set_all(w, carried, found)
        leaves.mask = mask
    return [copied(w, v.get()) for v in carried]


def branches(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """`cond` and `switch`. JAX has brought the number of the branch into range."""
    w, mask = leaves.w, leaves.mask
    which, held = xs[0].one(), [kept(w, x) for x in xs[1:]]
    arms = [_equations(closed) for closed in op["branches"]]
    if which.text.isdigit():  # it is known
        return leaves.expansion(arms[int(which.text)], held)
    number = w.cast("zext", which, "int32") if which.dtype == "bool" else which
    one_for_all = number.shared or w.width == 1
    found: list[Tensor] | None = None
    for k, arm in enumerate(arms):
        here = w.instruction("icmp eq", number, w.constant(k, number.dtype), "bool")
        if not one_for_all:
            leaves.mask = w.both(mask, here)
        if not one_for_all and _cost(arm) < GUARDED:
            made = leaves.expansion(arm, held)
        else:
            variables = [TensorVariable(w, dtype, shape) for dtype, shape in results]
            set_all(w, variables, [zeros(w, dtype, shape) for dtype, shape in results])
            taken = here.text if one_for_all or leaves.mask is None else w.any(leaves.mask)
            with w.f.when(taken):
                set_all(w, variables, leaves.expansion(arm, held))
            made = [copied(w, v.get()) for v in variables]
        leaves.mask = mask
        made = made if found is None else [select(w, here, x, y) for x, y in zip(made, found, strict=True)]
        found = [kept(w, x) for x in made]
    assert found is not None
    return found


def _cost(arm: Equations) -> int:
    return sum(GUARDED if i.op.name in INNER else 1 for i in arm.body)


def reduce(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """By a function of the user's, one number after another."""
    w, axes, inner = leaves.w, op["dimensions"], _equations(op["jaxpr"])
    held = [kept(w, x) for x in xs]
    arrays, starts = held[: len(results)], held[len(results) :]
    shape = arrays[0].shape
    memory = [fresh(w, dtype, s) for dtype, s in results]

    def one(outer: Indices) -> None:
        variables = _variables(leaves, starts)

        def term(along: Indices) -> None:
            rest, inside = iter(outer), iter(along)
            index = tuple(next(inside) if k in axes else next(rest) for k in range(len(shape)))

            def number(x: Tensor) -> Tensor:
                found: Element = x.at(index)
                return Tensor(x.dtype, (), lambda _: found, held=True, fixed=True)

            set_all(w, variables, leaves.expansion(inner, [*_now(variables), *map(number, arrays)]))

        over(w, [n for k, n in enumerate(shape) if k in axes], term, vectors=False)
        for m, v in zip(memory, variables, strict=True):
            m.write(outer, v.get().at(()))

    over(w, [n for k, n in enumerate(shape) if k not in axes], one, vectors=False)
    return [m.final for m in memory]


INNER: Mapping[str, Rule] = {"cond": branches, "reduce": reduce, "scan": scan, "while": conditional}
"""By the name of JAX's primitive."""


# ---- random
#
# Random bits: the generator threefry of two words, as JAX counts with it.
#
# Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011:
# Threefry-2x32 with 20 rounds. How `jax.random` makes counts of a shape is that of its option
# `jax_threefry_partitionable`; the older way is refused.


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


# ---- windows
#
# Sums and extremes over windows, and convolutions, of small arrays: as sums over what each result reads.


def padded(
    w: LaneWriter, x: Tensor, filling: float | int, around: Sequence[tuple[int, int]], dilation: Sequence[int]
) -> Tensor:
    """An array with more around it, and between its numbers."""
    config = tuple((low, high, apart - 1) for (low, high), apart in zip(around, dilation, strict=True))
    if all(c == (0, 0, 0) for c in config):
        return kept(w, x)
    shape = tuple(
        max(low + high + n + max(n - 1, 0) * more, 0) for (low, high, more), n in zip(config, x.shape, strict=True)
    )
    op = Op("pad", (("padding_config", config),))
    return pad(w, op, [kept(w, x), constant(w, filling, x.dtype)], [(x.dtype, shape)])[0]


def over_windows(kind: str) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        (x,), (dtype, shape) = xs, results[0]
        size = op["window_dimensions"]
        if math.prod(shape) * math.prod(size) > LARGEST_PRODUCT:
            raise RefusedError("windows of that size")
        held = padded(w, x, KINDS[kind][1](dtype), op["padding"], op["base_dilation"])

        def at(index: Indices) -> Element:
            def number(inner: Indices) -> LaneValue:
                places: list[Index] = [
                    add(w, multiply(w, i, stride), multiply(w, k, apart))
                    for i, stride, k, apart in zip(
                        index, op["window_strides"], inner, op["window_dilation"], strict=True
                    )
                ]
                return held.one(tuple(places))

            return (total(w, kind, dtype, size, number),)

        return [Tensor(dtype, shape, at)]

    return rule


def convolution(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x, kernel), (dtype, shape) = xs, results[0]
    if {x.dtype, kernel.dtype} != {dtype} or not dtype.startswith("float"):
        raise RefusedError(f"a convolution of {x.dtype} and {kernel.dtype}")
    if op["batch_group_count"] != 1 or op["feature_group_count"] != 1:
        raise RefusedError("a convolution in groups")
    of_x, of_kernel, of_out = op["dimension_numbers"]
    window = [kernel.shape[k] for k in of_kernel[2:]]
    channels = x.shape[of_x[1]]
    if math.prod(shape) * math.prod(window) * channels > LARGEST_PRODUCT:
        raise RefusedError("a convolution of that size")
    around, apart = [(0, 0)] * len(x.shape), [1] * len(x.shape)
    for axis, space, between in zip(of_x[2:], op["padding"], op["lhs_dilation"], strict=True):
        around[axis], apart[axis] = tuple(space), between
    held, kernel = padded(w, x, 0.0, around, apart), kept(w, kernel)

    def at(index: Indices) -> Element:
        def term(inner: Indices) -> LaneValue:
            a: list[Index] = [0] * len(x.shape)
            b: list[Index] = [0] * len(x.shape)
            a[of_x[0]], a[of_x[1]] = index[of_out[0]], inner[0]
            b[of_kernel[0]], b[of_kernel[1]] = index[of_out[1]], inner[0]
            for k, i in enumerate(inner[1:]):
                step, between = op["window_strides"][k], op["rhs_dilation"][k]
                a[of_x[2 + k]] = add(w, multiply(w, index[of_out[2 + k]], step), multiply(w, i, between))
                b[of_kernel[2 + k]] = i
            return w.product(held.one(tuple(a)), kernel.one(tuple(b)))

        return (total(w, "sum", dtype, [channels, *window], term),)

    return [Tensor(dtype, shape, at)]


WINDOWS: Mapping[str, Callable[..., list[Tensor]]] = {
    "conv_general_dilated": convolution,
    "reduce_window_max": over_windows("max"),
    "reduce_window_min": over_windows("min"),
    "reduce_window_sum": over_windows("sum"),
}


Environment = dict[Value, Tensor]


def shape_of(type: Type) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape of a type, as the device has it."""
    return _shape_of(type, _CONFIG.jax_enable_x64 + jax_compat.integers_are_wide())


_CONFIG: Any = jax.config


@lru_cache(maxsize=4096)
def _shape_of(type: Type, settings: Hashable) -> tuple[str, tuple[int, ...]]:
    if not isinstance(type, Array):
        raise RefusedError(f"a value of type {type}")
    dtype = type.dtype
    if not dtype.startswith("key<"):  # without x64 an array of 64 bits has 32 on the device
        dtype = str(jax.dtypes.canonicalize_dtype(jax_compat.device_dtype(type)))
    if dtype != KEY and dtype not in ELEMENTS and dtype not in COMPLEX:
        raise RefusedError(f"numbers of {dtype}")
    return dtype, type.shape


def by_number(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """An operation on the numbers at each index; a single number, and an axis of one, stands for all."""
    dtype, shape = results[0]
    make, wheres = BY_NUMBER[op.name], [_where(x, shape) for x in xs]

    def at(index: Indices) -> Element:
        found = make(w, op, *(x.one(where(index)) for x, where in zip(xs, wheres, strict=True)))
        return (convert(w, found, dtype),)

    return [Tensor(dtype, shape, at)]


def _where(x: Tensor, shape: tuple[int, ...]) -> Callable[[Indices], Indices]:
    """Where the number of an operand stands that belongs to an index of the result."""
    if x.shape == shape:
        return lambda index: index
    if not x.shape:
        return lambda index: ()
    if len(x.shape) != len(shape) or any(n not in (1, m) for n, m in zip(x.shape, shape, strict=True)):
        raise RefusedError(f"operands of shapes {x.shape} and {shape}")
    return lambda index: tuple(0 if n == 1 else i for n, i in zip(x.shape, index, strict=True))


def select_n(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Of two cases by a bool, of more by an integer; beyond the last it is the last."""
    which, *cases = xs
    dtype, shape = results[0]

    def at(index: Indices) -> Element:
        chosen = which.one(index if which.shape else ())
        found, *others = (x.at(index if x.shape else ()) for x in cases)
        for k, other in enumerate(others, 1):
            here = chosen
            if which.dtype != "bool":
                least = "icmp sge" if chosen.is_signed else "icmp uge"
                here = w.instruction(least, chosen, w.constant(k, chosen.dtype), "bool")
            found = tuple(w.select(here, a, b) for a, b in zip(other, found, strict=True))
        return found

    return [Tensor(dtype, shape, at)]


def undefined(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    dtype, shape = results[0]
    return [zeros(w, dtype, shape)]


def within(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    return [xs[0]]


def same(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    return list(xs)


Lower = Callable[[LaneWriter, Op, Sequence[Tensor], Shapes], list[Tensor]]

LOWER: Mapping[str, Lower] = {
    **dict.fromkeys(BY_NUMBER, by_number),
    **MOVES,
    **REDUCTIONS,
    "dot_general": product,
    **INDEXING,
    **RANDOM,
    **BITS,
    **SORTING,
    **WINDOWS,
    "complex": COMPLEX_RULES["complex"],
    "conj": COMPLEX_RULES["conj"],
    "device_put": same,
    "imag": COMPLEX_RULES["imag"],
    "name": same,
    "optimization_barrier": same,
    "real": COMPLEX_RULES["real"],
    "select_n": select_n,
    "undefined": undefined,
    "unknown": same,
    "within": within,
}
"""By the name of the operation. What is none of these brings code of its own, consists of some of them,
or is refused."""

AS_PYTHON = frozenset(("pow", "round"))
"""What Python means by a name that a primitive of JAX has as well: it is traced, and then consists of primitives."""

MOVED = frozenset(
    {*MOVES, *INDEXING, "bitcast_convert_type", "convert_element_type", "copy", "stop_gradient", "select_n"}
    | {"device_put", "name", "optimization_barrier", "undefined", "unknown", "within"}
) - {"iota", "scatter-max", "scatter-min", "scatter-mul"}
"""Operations that look at no number: they are the same for elements of any kind. (A sum of complex numbers is that of
their parts.)"""


def rule_of(name: str, dtypes: set[str]) -> Lower:
    """The rule for an operation on numbers of some dtypes."""
    if not dtypes.isdisjoint(COMPLEX):
        found = COMPLEX_RULES.get(name) or COMPLEX_REDUCTIONS.get(name) or (LOWER[name] if name in MOVED else None)
        if found is None:
            raise RefusedError(f"{name} of complex numbers")
        return found
    if not dtypes.isdisjoint(HALVES) and (name not in MOVED or name == "scatter-add"):
        if name in BITS:
            raise RefusedError(f"{name} of floats of 16 bits")
        return in_single(LOWER[name], convert)
    return LOWER[name]


PLAIN = frozenset(ELEMENTS) - frozenset(HALVES)
"""Dtypes whose numbers are one number each, which instructions take as they are."""


class LeafOperations:
    """Leaf operations one after another. `uses`: how often a value is read; what is read once and costs little is
    computed where it is read. `mask`: the lanes that what is written next is for; None: all."""

    def __init__(self, w: LaneWriter, constants: Callable[[Any], Tensor]) -> None:
        self.w, self.constants = w, constants
        self.mask: LaneValue | None = None

    def read(self, x: Operand, env: Environment, arrays: Sequence[Any] = ()) -> Tensor:
        if isinstance(x, Value):
            return env[x]
        if x.constant >= 0:
            return self.array(arrays[x.constant], shape_of(x.type)[0])
        dtype, shape = shape_of(x.type)
        return constant(self.w, x.value, dtype, shape)

    def array(self, value: Any, dtype: str) -> Tensor:
        """A constant of the program: few numbers stand in it, many are an operand of the call."""
        held = np.asarray(value, dtype)  # NumPy's floats have 64 bits where the program's have 32
        if held.size and held.tobytes() == held.flat[0].tobytes() * held.size:
            return constant(self.w, held.flat[0].item(), str(held.dtype), held.shape)
        if in_registers(held.size):
            numbers = [element(self.w, x.item(), str(held.dtype)) for x in held.flat]
            return registers(self.w, str(held.dtype), held.shape, numbers)
        return self.constants(held)

    def run(
        self, body: Sequence[Apply], env: Environment, wanted: Sequence[Operand], arrays: Sequence[Any] = ()
    ) -> None:
        """Straight-line code. `wanted`: what is read behind it."""
        uses = uses_of(body, wanted)
        for i in body:
            self.apply(i, env, uses, arrays)

    def apply(self, i: Apply, env: Environment, uses: dict[Value, int], arrays: Sequence[Any] = ()) -> None:
        if not any(uses.get(r) for r in i.results):
            return
        if is_checking():
            self.w.f.note = f" ; {i.span}: {i.op.name}"
        xs = self.operands(i, env, arrays)
        try:
            if (number := self.number(i, xs)) is not None:
                env[i.results[0]] = scalar(rounded(number) if uses.get(i.results[0], 0) > 1 else number)
                return
            found = self.lowered(i.op, xs, [x.type for x in i.operands], [r.type for r in i.results])
        except RefusedError as error:
            located(error, i)
            raise
        for r, x in zip(i.results, found, strict=True):
            again = uses.get(r, 0) > 1 or i.op.name in COSTLY
            env[r] = kept(self.w, x) if (again and x.size > 1) or x.size == 1 else x
            if uses.get(r, 0) > 1:
                env[r] = apart(env[r])

    def number(self, i: Apply, xs: Sequence[Tensor]) -> LaneValue | None:
        """The result of an operation on single numbers, which are most of them; None for others."""
        make = BY_NUMBER.get(i.op.name)
        if make is None or is_traced(i.op) or len(i.results) != 1 or any(x.shape or x.dtype not in PLAIN for x in xs):
            return None
        dtype, shape = shape_of(i.results[0].type)
        if shape or dtype not in PLAIN:
            return None
        return convert(self.w, make(self.w, i.op, *[x.one() for x in xs]), dtype)

    def operands(self, i: Apply, env: Environment, arrays: Sequence[Any]) -> list[Tensor]:
        return [self.read(x, env, arrays) for x in i.operands]

    def lowered(self, op: Op, xs: Sequence[Tensor], operands: Sequence[Type], results: Sequence[Type]) -> list[Tensor]:
        shapes = [shape_of(t) for t in results]
        if op.name == "take_row" and not op.is_jax:
            column, row = xs
            assert column.memory is not None
            return [kept(self.w, taken(self.w, column.memory, row.one(), self.mask))]
        if op.name in INNER:
            return INNER[op.name](self, op, xs, shapes)
        if op.name in LOWER and not is_traced(op):
            dtypes = {*(x.dtype for x in xs), *(dtype for dtype, _ in shapes)}
            return rule_of(op.name, dtypes)(self.w, op, xs, shapes)
        arrays = [t for t in operands if isinstance(t, Array)]
        return self.expansion(expanded(op, arrays, [t for t in results if isinstance(t, Array)]), xs)

    def expansion(self, equations: Equations, xs: Sequence[Tensor]) -> list[Tensor]:
        """The results of equations on tensors."""
        uses = uses_of(equations.body, equations.results)
        pairs = zip(equations.inputs, xs, strict=True)
        env: Environment = {v: apart(kept(self.w, x)) if uses.get(v, 0) > 1 else x for v, x in pairs}
        self.run(equations.body, env, equations.results, equations.constants)
        return [self.read(x, env, equations.constants) for x in equations.results]


def is_traced(op: Op) -> bool:
    return op.name in AS_PYTHON and not op.is_jax


def located(error: RefusedError, i: Instruction) -> None:
    """The same, with the innermost operation, and the line of the innermost that has one."""
    if error.operation is None and isinstance(i, Apply):
        error.operation = f"{i.op.name}({', '.join(str(x.type) for x in i.operands)})"
    if error.span is None and i.span != NOWHERE:
        error.span = i.span


def uses_of(body: Sequence[Apply], wanted: Sequence[Operand]) -> dict[Value, int]:
    uses: dict[Value, int] = {}
    for x in (*(x for i in body for x in i.operands), *wanted):
        if isinstance(x, Value):
            uses[x] = uses.get(x, 0) + 1
    return uses
