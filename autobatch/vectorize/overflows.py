"""Checks that Python's integers fit into those of the device, where machine code computes them.

    %3 = mul(%1, %2)     ->     %3 = mul(%1, %2)
                                %4, ... = the product in floats, and whether it is small
                                check[kind='OverflowError', message='an int needs more bits ...'](%4)

Where the host computes them it has 64 bits, and sees for itself what leaves those. No check stands where intervals tell
that none is needed (`analysis/ranges.py`). A sum over a list becomes a loop that adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autobatch.analysis.ranges import Ranges, is_python_integer
from autobatch.ir.capacity import TOO_LARGE
from autobatch.ir.core import Apply, For, Instruction, Literal, Module, Operand, Region, Value, walk
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import Array, Type
from autobatch.source import Span
from autobatch.vectorize.indices import in_place

NEAR = 2.0**-10
"""Products of floats are less than this off, relatively."""

_FOLDS: Mapping[str, tuple[Callable[..., Any], int]] = {"sum": (lax.add, 0), "prod": (lax.mul, 1)}


def check_integers(module: Module) -> tuple[Module, tuple[tuple[Span, str], ...]]:
    """The module with checks; and where integers are computed, and by what, that none is written for."""
    wide = bool(jax.config.read("jax_enable_x64"))
    if not any(is_python_integer(r.type) for f in module.functions for i in walk(f.region) for r in _results(i)):
        return module, ()
    checks = _Checks(module, Ranges(module, 64 if wide else 32))
    made = replace(module, functions=tuple(replace(f, region=checks.region(f.region)) for f in module.functions))
    return made, tuple(checks.left)


def _results(i: Instruction) -> Sequence[Value]:
    return i.results if isinstance(i, Apply) else ()


class _Checks:
    def __init__(self, module: Module, ranges: Ranges) -> None:
        self.ranges, self.fresh = ranges, Fresh(module)
        self.left: list[tuple[Span, str]] = []

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            new = with_regions(i, self.region)
            if not isinstance(new, Apply) or not self.ranges.may_overflow(new):
                body.append(new)
            elif new.op.name == "reduce":
                self.added_up(new, body)
            elif new.op.name in (*_ABOUT, "integer_pow") and _are_integers(new):
                body.append(new)
                self.check(new, body)
            else:
                self.left.append((new.span, f"{new.op.name} makes an integer of Python"))
                body.append(new)
        return replace(region, body=tuple(body))

    def check(self, i: Apply, body: list[Instruction]) -> None:
        """Let the example fail where an operation has left the bits of its result."""
        (result,) = i.results
        (fine,) = in_place(lambda *xs: _fits(i.op, *xs), (*i.operands, result), self.fresh, body.append, i.span)
        body.append(Apply((), own("check", kind=TOO_LARGE[0], message=TOO_LARGE[1]), (fine,), i.span))

    def added_up(self, i: Apply, body: list[Instruction]) -> None:
        """The sum or product of a list as a loop, each turn of which is checked."""
        (xs,), (result,) = i.operands, i.results
        step, first = _FOLDS[i.op["kind"]]
        count, turn = self.fresh.value(_scalar(result.type)), self.fresh.value(_scalar(result.type))
        before, element = self.fresh.value(result.type), self.fresh.value(result.type)
        inside: list[Instruction] = [Apply((element,), own("item"), (xs, turn), i.span)]
        (after,) = in_place(step, (before, element), self.fresh, inside.append, i.span)
        made = inside[-1]
        assert isinstance(made, Apply)
        self.check(made, inside)
        body.append(Apply((count,), own("length"), (xs,), i.span))
        init: tuple[Operand, ...] = (Literal(first, result.type),)
        body.append(For((result,), count, init, Region((turn, before), tuple(inside), (after,)), i.span))


def _scalar(type: Type) -> Type:
    assert isinstance(type, Array)
    return replace(type, shape=())


def _are_integers(i: Apply) -> bool:
    return all(isinstance(x.type, Array) and (x.type.is_integer or x.type.is_bool) for x in i.operands)


_ABOUT: Mapping[str, Callable[..., Any]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "neg": lax.neg,
    "abs": lax.abs,
    "square": lax.square,
    "pow": jnp.power,
    "shift_left": lambda x, y: x * jnp.exp2(y),
}
"""What operations on integers give in floats."""


def _fits(op: Op, *xs: Any) -> Any:
    """Is a result what Python has? In floats it is nearly that; what has wrapped around has another sign near the
    limits."""
    *operands, result = xs
    bits = 8 * result.dtype.itemsize
    wide = jnp.float64 if bits == 64 else jnp.float32
    given = [jnp.asarray(x).astype(wide) for x in operands]
    about = lax.integer_pow(given[0], op["y"]) if op.name == "integer_pow" else _ABOUT[op.name](*given)
    size, most = jnp.abs(about), 2.0 ** (bits - 1)
    inside = size < most * (1 - NEAR)
    near = (size < most * (1 + NEAR)) & ((about < 0) == (result < 0))
    return jnp.all(inside | near)
