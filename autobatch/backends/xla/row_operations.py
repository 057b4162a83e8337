"""Operations over rows: leaf operations by batching rules of JAX, masked loops and programs of blocks by machine code.

Machine code of our own (`backends/llvm/lanes/`) runs where a program is lowered for a CPU; XLA's loops run everywhere
else, under `jax.vmap` and in forward derivatives. A turn of a loop of XLA's is a row of small kernels over all rows;
here a gang of as many rows as a vector has numbers runs its own loop in registers, and is done when its last row is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.analysis import widest_of
from autobatch.backends.llvm.lanes.control import RegionWriter
from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import (
    Body,
    CodeOperand,
    CodeSignature,
    EmittedCode,
    Gang,
    OverRows,
    Result,
    program,
)
from autobatch.backends.llvm.lanes.recursion import run_recursion
from autobatch.backends.llvm.lanes.refill import LoopSplit, refilled, why
from autobatch.backends.llvm.lanes.reverse import inner_gradient, pulled_back
from autobatch.backends.llvm.lanes.tensors import KEY, Tensor
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import library
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import BY_NUMBER, FINITE_DERIVATIVE, INFINITE, Array, Value, While, walk
from autobatch.ir.leaf import DerivativeRule
from autobatch.ir.ops import Op
from autobatch.ir.regions import refill_of
from autobatch.options import OptionError
from autobatch.passes.adjoint import in_part
from autobatch.passes.derivative_rules import inner_pullback

RowOperation = Callable[[Op, Sequence[Array], Sequence[Any], Sequence[bool]], Sequence[Any]]

# ---- by JAX


WITH_CONTROL: dict[str, RowOperation] = {}
"""Operations that hold control on numbers and may stand inside of others: `masks.py`, which runs those, enters them."""


def over_rows(op: Op, types: Sequence[Array], xs: Sequence[Any], varying: Sequence[bool]) -> Sequence[Any]:
    """A leaf operation on rows: JAX's batching rule of the one primitive, batch axis 0, uniform operands (those that do
    not vary) unbatched. `types` are those of the results of one row.

    What works number by number is its own batching rule; `jax.vmap` would trace it again for each window width."""
    if op.name in WITH_CONTROL:
        return WITH_CONTROL[op.name](op, types, xs, varying)
    by_number = all(varying) and op.name in BY_NUMBER and len({x.shape for x in xs}) == 1
    if by_number or not any(varying):
        return leaf.evaluate(op, types, *xs)

    def lane(*rows: Any) -> Sequence[Any]:
        rest = iter(rows)
        return leaf.evaluate(op, types, *(next(rest) if v else x for v, x in zip(varying, xs, strict=True)))

    return jax.vmap(lane)(*(x for v, x in zip(varying, xs, strict=True) if v))


def select_rows(mask: Any, x: Any, y: Any) -> Any:
    """`x` in the rows of a mask, `y` in the others."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)


def is_float(x: Any) -> bool:
    """Can it move: is it of floats, or of complex numbers?"""
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.inexact))


# ---- cut
#
# Leaf operations over rows some of which do not use the results, or have failed (`passes/adjoint.py`).


def over_rows_in_part(op: Op, types: Sequence[Array], xs: Sequence[Any], varying: Sequence[bool]) -> Sequence[Any]:
    """As `over_rows`; a row whose cotangents are zero contributes nothing to derivatives where they are not finite."""
    moves = any(is_float(x) and v for x, v in zip(xs, varying, strict=True))
    if op.name in FINITE_DERIVATIVE or not moves:
        return over_rows(op, types, xs, varying)
    if op.name in INFINITE:  # the rows of what all rows share are added up where they are no longer infinite
        rows = next(x.shape[0] for x, v in zip(xs, varying, strict=True) if v)
        xs = [
            x if v or not is_float(x) else jnp.broadcast_to(x, (rows, *jnp.shape(x)))
            for x, v in zip(xs, varying, strict=True)
        ]
        varying = [v or is_float(x) for x, v in zip(xs, varying, strict=True)]
    return in_part(lambda xs: over_rows(op, types, xs, varying), xs, varying)


# ---- by machine code


logger = logging.getLogger("autobatch")

_call = jax_compat.foreign_call("autobatch_rows")

WIDEST = 64
"""Numbers of an array up to which each lane of a gang has its own; larger ones are worth a vector themselves, and rows
come one after another."""

SCRATCH = 1 << 28
"""Bytes that the states of a loop may take, where it is run backward."""


def by_machine_code(
    op: Op, xs: Sequence[Any], varying: Sequence[bool], live: Any, loops: str, plain: Callable[..., list[Any]]
) -> list[Any] | None:
    """The results of a masked operation, a program of blocks or the derivative of one; None where XLA is to run it.
    `plain`: computes the same of `xs` and `live`."""
    if not _is_tried(op, varying, loops):
        return None
    try:
        made, signature, width = _prepared(op, varying, live is not None)
        target = machine_code.registered_text(f"rows_{width}", made.text, library(), vectorize=True)
    except (RefusedError, machine_code.UnavailableError) as error:
        if loops == "native":
            at = getattr(error, "span", None)
            place = f" ({at})" if at is not None else ""
            raise OptionError(f"option 'loops' is 'native', but there is a loop for XLA: {error}{place}") from None
        logger.debug("a loop that numbers end by XLA: %s", error)
        return None
    given = [_words(jnp.asarray(x, d), d) for x, d in zip(xs, _dtypes(signature.operands), strict=True)]
    masks = [] if live is None else [live]
    rows = next(x.shape[0] for x, v in zip(xs, varying, strict=True) if v)

    def by_xla(*operands: Any) -> list[Any]:
        held = [_keys(x, d) for x, d in zip(operands, _dtypes(signature.operands), strict=False)]
        found = plain(held, operands[len(held)] if masks else None)
        return [_words(jnp.asarray(x, d), d) for x, d in zip(found, _dtypes(signature.results), strict=True)]

    shapes = [_shape(r, rows) for r in signature.results]
    constants = [jnp.asarray(x) for x in made.constants]
    found = _call.bind(
        *given,
        *masks,
        *constants,
        plain=by_xla,
        target=target,
        taken=len(given) + len(masks) + len(constants),
        shapes=tuple(shapes),
        scratch=(jax.ShapeDtypeStruct((max(made.scratch, 1),), np.dtype("uint8")),),
    )
    return [_keys(x, d) for x, d in zip(found, _dtypes(signature.results), strict=True)]


def gang(op: Op, varying: Sequence[bool], loops: str) -> int | None:
    """How many rows machine code computes at once; None where XLA runs the operation."""
    if op.name == "gradient_of":
        varying = [*(v or (k in op["wrt"] and any(varying)) for k, v in enumerate(varying)), False]
        op = inner_pullback(op)
    if not _is_tried(op, varying, loops):
        return None
    try:
        return _prepared(op, varying, True)[2]
    except (RefusedError, machine_code.UnavailableError):
        return None


def refills(op: Op, varying: Sequence[bool]) -> bool:
    """Do lanes of a masked operation take the next row when they are done?"""
    return _split(op, varying) is not None


def why_refilled(op: Op, varying: Sequence[bool]) -> str:
    """Why they do, or do not."""
    return why(op["region"], _shared(op, varying), refill_of(op))


def _split(op: Op, varying: Sequence[bool]) -> LoopSplit | None:
    return LoopSplit.of(op["region"], _shared(op, varying), refill_of(op))


def _shared(op: Op, varying: Sequence[bool]) -> list[Value]:
    """The arguments of a masked operation's region that all rows share."""
    return [a for a, varies in zip(op["region"].args, varying, strict=True) if not varies]


def _is_tried(op: Op, varying: Sequence[bool], loops: str) -> bool:
    return loops != "xla" and any(varying) and (loops == "native" or _is_worth_it(op))


def _is_worth_it(op: Op) -> bool:
    """Is there a loop that numbers end? What has none is XLA's to fuse."""
    if op.name == "pullback":
        return bool(op["loops"]) and _is_worth_it(op["rule"].op)
    return op.name == "blocks" or any(isinstance(i, While) for i in walk(op["region"]))


# ---- what goes in and out


def _dtypes(of: Sequence[CodeOperand | Result]) -> list[Any]:
    return [jax_compat.dtype_of(x.dtype) for x in of]


def _is_key(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def _words(x: Any, dtype: Any) -> Any:
    return jax.random.key_data(x) if _is_key(dtype) else x


def _keys(x: Any, dtype: Any) -> Any:
    return jax.random.wrap_key_data(x, impl=jax_compat.key_implementation(str(dtype))) if _is_key(dtype) else x


def _shape(r: Result, rows: int) -> jax.ShapeDtypeStruct:
    shape = (*(() if r.summed else (rows,)), *r.shape)
    if r.dtype == KEY:
        return jax.ShapeDtypeStruct((*shape, 2), np.dtype("uint32"))
    return jax.ShapeDtypeStruct(shape, np.dtype(r.dtype))


# ---- the code


def _prepared(op: Op, varying: Sequence[bool], masked: bool) -> tuple[EmittedCode, CodeSignature, int]:
    """The text, what goes in and comes out, and how many rows it computes at once."""
    signature, body = _signature(op, varying, masked)
    refused: RefusedError | None = None
    for width in _widths(op, varying):
        try:
            made = program(signature, width, body, _refilled(op, signature) if width > 1 else None)
        except RefusedError as error:
            refused = refused or error
            continue
        if made.scratch > SCRATCH:
            raise RefusedError(f"the states of its loops take {made.scratch:,} bytes, more than {SCRATCH:,}")
        return made, signature, width
    assert refused is not None
    raise refused


def _refilled(op: Op, signature: CodeSignature) -> OverRows | None:
    """The loop over rows whose lanes take the next row when they are done; None where gangs go one after another."""
    split = _split(op, [x.varies for x in signature.operands]) if op.name == "masked" else None
    if split is None:
        return None
    return partial(refilled, split, lambda gang: RegionWriter(gang.w, gang.constant, partial(inner_gradient, gang)))


def _widths(op: Op, varying: Sequence[bool]) -> Iterator[int]:
    """Rows of a gang: as many as a vector has numbers of 32 bits, or one."""
    rest = iter(varying)
    while op.name == "pullback":
        given = [number is None and next(rest) for number in op["rule"].numbers]
        op, rest = op["rule"].op, iter(given)
    if widest_of(op, list(rest)) <= WIDEST:
        yield machine_code.host().target.lanes
    yield 1


def _signature(op: Op, varying: Sequence[bool], masked: bool) -> tuple[CodeSignature, Body]:
    if op.name == "pullback":
        return _of_derivative(op["rule"], varying, masked)
    inputs: Sequence[Value]
    if op.name == "blocks":
        held = op["program"]
        inputs, types = (*held.parameters, *held.captured), held.types
    else:
        inputs, types = op["region"].args, [r.type for r in op["region"].results]
    operands = tuple(CodeOperand(*shape_of(x.type), v) for x, v in zip(inputs, varying, strict=True))

    def body(gang: Gang, xs: Sequence[Tensor]) -> Sequence[Tensor]:
        if op.name == "blocks":
            return run_recursion(gang, op, xs, gang.mask)
        return RegionWriter(gang.w, gang.constant, partial(inner_gradient, gang)).region(
            op["region"], xs, {}, gang.mask
        )

    return CodeSignature(operands, tuple(Result(*shape_of(t)) for t in types), masked), body


def _of_derivative(rule: DerivativeRule, varying: Sequence[bool], masked: bool) -> tuple[CodeSignature, Body]:
    if rule.op.name != "masked":
        raise RefusedError(f"the derivative of {rule.op.name}")
    given = [t for t, number in zip(rule.operands, rule.numbers, strict=True) if number is None]
    cotangents = [t for t, has in zip(rule.results, rule.cotangents, strict=True) if has]
    operands = tuple(CodeOperand(*shape_of(t), v) for t, v in zip((*given, *cotangents), varying, strict=True))
    rest = iter(varying)
    of = [number is None and next(rest) for number in rule.numbers]
    results = tuple(Result(*shape_of(rule.operands[k]), summed=not of[k]) for k in rule.wrt)

    def body(gang: Gang, xs: Sequence[Tensor]) -> Sequence[Tensor | None]:
        return pulled_back(gang, rule, xs, totals=gang.totals)

    return CodeSignature(operands, results, masked), body
