"""Divisions of Python numbers by an integer that the host knows: the example fails where that is zero, as in Python.

                                                %7 = ne(%3, 0)
    %5 = truediv(%4, %3)               ->       check[kind='ZeroDivisionError', message='division by zero'](%7)
                                                %5 = truediv(%4, %3)

`total / len(words)` is arithmetic of the device, where a zero gives infinity or NaN; the length is structure. Integers
that only the device computes are looked at by checks of it (`masks.py` puts control under masks then). Floats divide as
IEEE 754 says, on the host too: 1.0 / 0.0 is infinity.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.analysis.structure import Structure, decided
from autobatch.ir.core import Apply, Instruction, Literal, Module, Operand, Region, Value, walk
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import BOOL, Array
from autobatch.vectorize.indices import in_place

DIVISIONS: dict[str, Callable[[float, float], object]] = {
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}


def check_divisors(module: Module, facts: Structure, numbers: frozenset[int]) -> Module:
    """The module with a check before each division that only the device computes, by an integer of the host; the same
    module when there is none. `numbers` are shared integers, by position, that the host may be told."""
    shared = frozenset(module.shared[k] for k in numbers)
    checker = _Checker(module, facts, shared | decided(module, shared))
    functions = tuple(replace(f, region=checker.region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if checker.made else module


class _Checker:
    def __init__(self, module: Module, facts: Structure, told: frozenset[Value]) -> None:
        self.fresh, self.facts, self.told = Fresh(module), facts, told
        self.made = 0

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for instruction in region.body:
            if isinstance(instruction, Apply) and self.is_unchecked(instruction):
                body += self.check(instruction)
            body.append(with_regions(instruction, self.region))
        return replace(region, body=tuple(body))

    def is_unchecked(self, division: Apply) -> bool:
        if not divides_python_numbers(division) or division.results[0] in self.facts.on_host:
            return False
        y = division.operands[1]
        return y in self.facts.host or y in self.told

    def check(self, division: Apply) -> list[Instruction]:
        self.made += 1
        return checks_of(division, self.fresh)


def divides_python_numbers(apply: Apply) -> bool:
    """Is this a division of a Python number by an integer that may be zero?"""
    if apply.op.is_jax or apply.op.name not in DIVISIONS:
        return False
    x, y = apply.operands
    return isinstance(y, Value) and _is_python(x) and _is_python(y) and not _is_float(y)


def checks_of(division: Apply, fresh: Fresh) -> list[Instruction]:
    """What Python checks of the divisor."""
    x, y = division.operands
    nonzero = fresh.value(BOOL)
    zero = Literal(False if y.type == BOOL else 0, y.type)
    failing = own("check", kind="ZeroDivisionError", message=_words(division.op.name, 1.0 if _is_float(x) else 1))
    return [
        Apply((nonzero,), Op("ne", (), lax.ne_p), (y, zero), division.span),
        Apply((), failing, (nonzero,), division.span),
    ]


def device_checks_of(division: Apply, fresh: Fresh) -> list[Instruction]:
    """The same where the device divides, whose integers are short: the least one by -1 is more than it can hold."""
    x, y = division.operands
    made: list[Instruction] = checks_of(division, fresh)
    if division.op.name == "floordiv" and all(isinstance(z.type, Array) and z.type.is_integer for z in (x, y)):
        (fits,) = in_place(_quotient_fits, (x, y), fresh, made.append, division.span)
        made.append(Apply((), own("check", kind="OverflowError", message=TOO_LARGE), (fits,), division.span))
    return made


def _quotient_fits(x: Any, y: Any) -> Any:
    return (y != -1) | (x != np.iinfo(jnp.asarray(x).dtype).min)


TOO_LARGE = "an int needs more bits than the device's integers have"


def check_computed_divisors(module: Module, device: frozenset[Value]) -> Module:
    """The module in which divisors that only the device knows (`device`) are looked at by checks of it."""

    def each(i: Instruction) -> list[Instruction]:
        if isinstance(i, Apply) and is_computed(i, device):
            return [*device_checks_of(i, fresh), i]
        return [with_regions(i, region)]

    def region(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    if not any(is_computed(i, device) for f in module.functions for i in walk(f.region)):
        return module
    fresh = Fresh(module)
    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


def is_computed(i: Instruction, device: frozenset[Value]) -> bool:
    """Does it divide by an integer that only the device knows?"""
    return isinstance(i, Apply) and divides_python_numbers(i) and i.operands[1] in device


def _is_python(x: Operand) -> bool:
    return isinstance(x.type, Array) and x.type.is_scalar and (x.type.weak or x.type.is_bool)


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and not (x.type.is_integer or x.type.is_bool)


def _words(name: str, numerator: float) -> str:
    """What this Python says."""
    try:
        DIVISIONS[name](numerator, 0)
    except ZeroDivisionError as error:
        return str(error)
    raise AssertionError(f"{name} by zero")
