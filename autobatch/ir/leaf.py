"""What leaf operations compute, on the values of one lane: the meaning that every back end batches.

JAX primitives are bound; our own numeric operations are rows of `NUMERIC`, written in `jax.numpy`. Structure
(`OWN` operations with `host=True`) has no value on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Call, For, If, Instruction, Literal, Map, Operand, Region, Value, While
from autobatch.ir.masked import limit_of
from autobatch.ir.ops import Op
from autobatch.ir.run_blocks import run_blocks
from autobatch.ir.types import Array


def extreme(kind: str, even: bool, so_far: Any, x: Any) -> Any:
    """What a fold by max or min holds after one more element, as in Python: the first of equal elements, whose the
    derivative is, and NaN only where it is the first of all. Or (`even`) as in arrays: NaN stays, wherever it is, and
    equal elements share the derivative."""
    if even:
        return (jnp.maximum if kind == "max" else jnp.minimum)(so_far, x)
    return jnp.where(x > so_far if kind == "max" else x < so_far, x, so_far)


def shared_extreme(kind: str, so_far: Any, count: Any, x: Any) -> tuple[Any, Any]:
    """The same with the number of elements that are equal to it so far: all of these have one derivative."""
    found, equal = extreme(kind, True, so_far, x), so_far - x == 0
    even = so_far - (so_far - x) / (count + 1)  # the number itself, and the mean of the derivatives
    return jnp.where(equal, even, found), jnp.where(equal, count + 1, jnp.where(found == x, 1, count))


@dataclass(frozen=True)
class DerivativeRule:
    """What the derivative of an operation depends on: types, the Python numbers among the operands, which results have
    cotangents, and the operands `wrt` whose cotangents are wanted."""

    op: Op
    operands: tuple[Array, ...]
    numbers: tuple[Any, ...]
    results: tuple[Array, ...]
    cotangents: tuple[bool, ...]
    wrt: tuple[int, ...]


def pull_back(rule: DerivativeRule, given: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """The cotangents of the operands `rule.wrt`. `given`: the operands that are no numbers."""
    rest = iter(given)
    xs = [
        next(rest) if number is None else jax_compat.literal(number, type)
        for type, number in zip(rule.operands, rule.numbers, strict=True)
    ]

    moving = moved_together(rule.op, xs, rule.wrt)

    def primal(*moved: Any) -> list[Any]:
        held = list(xs)
        for k, x in zip(moving, moved, strict=True):
            held[k] = x
        outputs = evaluate(rule.op, rule.results, *held)
        return [y for y, has in zip(outputs, rule.cotangents, strict=True) if has]

    _, pull = jax.vjp(primal, *(jnp.asarray(xs[k]) for k in moving))
    found: Sequence[Any] = pull(list(cotangents))
    return found[: len(rule.wrt)]


def moved_together(op: Op, xs: Sequence[Any], wrt: Sequence[int]) -> list[int]:
    """The operands to differentiate by for the cotangents of `wrt`, which come first. JAX's rule of a linear solve
    fails where only some of the operands move that hold the one matrix: there all do."""
    while op.name == "pullback":
        op = op["rule"].op
    if op.name != "custom_linear_solve":
        return list(wrt)
    others = [k for k, x in enumerate(xs) if k not in wrt and jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return [*wrt, *others]


def _pullback(op: Op, *xs: Any) -> Any:
    rule: DerivativeRule = op["rule"]
    given = sum(number is None for number in rule.numbers)
    (found,) = pull_back(rule, xs[:given], xs[given:])
    return found


def _floordiv(x: Any, y: Any) -> Any:
    """JAX's, with the sign of a zero that Python and NumPy give it."""
    found = jnp.floor_divide(x, y)
    if not jnp.issubdtype(found.dtype, jnp.floating):
        return found
    return jax.lax.stop_gradient(jnp.where(found == 0, x / y * 0, found))


def _mod(x: Any, y: Any) -> Any:
    """As `_floordiv`: a zero has the sign of the divisor."""
    found = jnp.remainder(x, y)
    return _zero_of_sign(found, y) if jnp.issubdtype(found.dtype, jnp.floating) else found


@jax.custom_jvp
def _zero_of_sign(x: Any, y: Any) -> Any:
    return jnp.where((x == 0) & (jnp.signbit(x) != jnp.signbit(y)), -x, x)


_zero_of_sign.defjvps(lambda moved, value, x, y: moved, None)


def _round(x: Any, ndigits: int | None) -> Any:
    if ndigits is not None and ndigits < 0 and jnp.issubdtype(jnp.result_type(x), jnp.integer):
        return _round_to(x, 10**-ndigits)
    rounded = jnp.round(x, ndigits or 0)
    return rounded.astype(int) if ndigits is None else rounded


def _round_to(x: Any, unit: int) -> Any:
    """The multiple of `unit` that is nearest, the even one of two."""
    below = jnp.floor_divide(x, unit)
    over = 2 * (x - below * unit)
    return (below + ((over > unit) | ((over == unit) & (below % 2 == 1)))) * unit


def _int(x: Any) -> Any:
    x = jnp.asarray(x)
    return jnp.trunc(x).astype(int) if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(int)


NUMERIC: dict[str, Callable[..., Any]] = {
    "floordiv": lambda op, x, y: _floordiv(x, y),
    "mod": lambda op, x, y: _mod(x, y),
    "truediv": lambda op, x, y: jnp.true_divide(x, y),
    "pow": lambda op, x, y: jnp.power(x, y),
    "round": lambda op, x: _round(x, op["ndigits"]),
    "int": lambda op, x: _int(x),
    "convert": lambda op, x: jnp.asarray(x).astype(op["dtype"]),
    "pullback": _pullback,
    "within": lambda op, x: x,
    "seed": lambda op, x: jnp.asarray(x),
    "take_row": lambda op, column, row: jnp.asarray(column)[row],
    "unknown": lambda op, x: jnp.asarray(x),
    "undefined": lambda op: jnp.zeros(op["type"].shape, jax_compat.device_dtype(op["type"])),
}
"""One row for each operation of our own with `host=False` that works on arrays (not on lists)."""


def evaluate(op: Op, results: Sequence[Array], *xs: Any) -> Sequence[Any]:
    """The results of a leaf operation on arrays or tracers. `results` are its result types."""
    if op.name == "blocks":
        return _finished(op, run_blocks(op, evaluate, xs))  # one example: a back end runs the rows of a batch together
    if op.is_jax:
        return jax_compat.bind(op, results, *xs)
    if op.name == "masked":
        return masked(op["region"], xs)
    if op.name == "gradient_of":
        return gradient_of(op, xs)
    return [NUMERIC[op.name](op, *xs)]


def _finished(op: Op, made: Sequence[Any]) -> list[Any]:
    """The results of a program, whose status is one among those of the whole program."""
    *found, status = made
    return [*found, jnp.where(status > 0, status + op["base"], status)]


def masked(
    region: Region, xs: Sequence[Any], apply: Callable[[Apply, Sequence[Any]], Sequence[Any]] | None = None
) -> Sequence[Any]:
    """A region on the values of one lane, whose decisions are known: branches and loops are Python's own. `apply`: what
    an operation gives, in the place of `evaluate`.

    The meaning of the operation `masked`; JAX may trace it for a derivative, but not compile it."""
    env: dict[Value, Any] = {}

    def read(operands: Sequence[Operand]) -> list[Any]:
        return [literal_value(x) if isinstance(x, Literal) else env[x] for x in operands]

    def cast(values: Sequence[Any], like: Sequence[Operand]) -> list[Any]:
        return [jax_compat.conform(x, y.type) for x, y in zip(values, like, strict=True)]

    def run(region: Region, args: Sequence[Any]) -> list[Any]:
        env.update(zip(region.args, args, strict=True))
        for instruction in region.body:
            env.update(zip(instruction.results, step(instruction), strict=True))
        return cast(read(region.results), region.results)

    def step(instruction: Instruction) -> Sequence[Any]:
        match instruction:
            case Apply():
                return (apply or applied)(instruction, read(instruction.operands))
            case If(condition=condition, then=then, orelse=orelse):
                return run(then if bool(read([condition])[0]) else orelse, ())
            case While(init=init, condition=condition_region, body=body):
                carried, turns, limit = cast(read(init), init), 0, limit_of(instruction)
                while bool(run(condition_region, carried)[0]):
                    if limit is not None and turns == limit.turns.most:
                        return [*carried[:-1], jnp.asarray(limit.site, carried[-1].dtype)]
                    carried, turns = run(body, carried), turns + 1
                return carried
            case For(count=count, init=init, body=body):
                carried = cast(read(init), init)
                for turn in range(int(read([count])[0])):
                    carried = run(body, (jnp.asarray(turn, int), *carried))
                return carried
            case Map() | Call():
                raise AssertionError("no calls and no lists in a masked region")
            case _:
                assert_never(instruction)

    return run(region, xs)


def applied(i: Apply, xs: Sequence[Any]) -> Sequence[Any]:
    """What an operation gives."""
    return evaluate(i.op, [r.type for r in i.results if isinstance(r.type, Array)], *xs)


def gradient_of(op: Op, xs: Sequence[Any]) -> Sequence[Any]:
    """The derivatives of the number that a region yields, on the values of one lane, as `masked` has it."""
    wrt: Sequence[int] = op["wrt"]

    def of(*moved: Any) -> Any:
        whole = list(xs)
        for k, x in zip(wrt, moved, strict=True):
            whole[k] = x
        return masked(op["region"], whole)[0]

    found: Sequence[Any] = jax.grad(of, tuple(range(len(wrt))))(*(jnp.asarray(xs[k]) for k in wrt))
    return found


def literal_value(x: Literal) -> Any:
    """A literal of a region that an operation holds: its arrays are operands of the operation."""
    assert isinstance(x.type, Array) and x.constant < 0
    return jax_compat.literal(x.value, x.type)


def result_type(op: Op, operands: Sequence[Array], literals: Sequence[Any]) -> Array:
    """The type of the result of one of our own numeric operations. `literals[k]` is the Python scalar that operand k
    is, or None where it is a value. Of Python numbers alone it is a Python number, and so is what `int()` gives."""
    held = tuple((type(c), c) for c in literals)  # 1, 1.0 and True are equal, and not the same
    try:
        return _result_type(op, tuple(operands), held, jax.config.read("jax_enable_x64"))
    except TypeError:  # of an operand that the operation does not take: JAX's words, or params that cannot be hashed
        return _evaluated_type(op, operands, held)


@lru_cache(maxsize=4096)
def _result_type(op: Op, operands: tuple[Array, ...], held: tuple[tuple[type, Any], ...], x64: bool) -> Array:
    return _evaluated_type(op, operands, held)


def _evaluated_type(op: Op, operands: Sequence[Array], held: Sequence[tuple[type, Any]]) -> Array:
    def apply(*values: Any) -> Any:
        rest = iter(values)
        return NUMERIC[op.name](op, *(next(rest) if c is None else c for _, c in held))

    avals = [jax_compat.aval_of(t) for t, (_, c) in zip(operands, held, strict=True) if c is None]
    result = jax.eval_shape(apply, *avals)
    python = result.dtype != bool and all(t.is_scalar and (t.weak or t.is_bool) for t in operands)
    python |= op.name == "int" and result.shape == ()  # of an array's number too
    return jax_compat.type_of(jax.ShapeDtypeStruct(result.shape, result.dtype, weak_type=python or result.weak_type))
