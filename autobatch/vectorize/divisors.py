"""Divisions of Python numbers by an integer that the host knows: the example fails where that is zero, as in Python.

                                                %7 = ne(%3, 0)
    %5 = truediv(%4, %3)               ->       check[kind='ZeroDivisionError', message='division by zero'](%7)
                                                %5 = truediv(%4, %3)

`total / len(words)` is arithmetic of the device, where a zero gives infinity or NaN; the length is structure. Floats,
and integers that only the device computes, divide as IEEE 754 says: to look at them would make them structure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

from jax import lax

from autobatch.analysis.structure import Structure, decided
from autobatch.ir.core import Apply, Instruction, Literal, Module, Operand, Region, Value
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import BOOL, Array

_DIVISIONS: dict[str, Callable[[float, float], object]] = {
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
        if division.op.is_jax or division.op.name not in _DIVISIONS or division.results[0] in self.facts.on_host:
            return False
        x, y = division.operands
        known = isinstance(y, Value) and (y in self.facts.direct or y in self.told)
        return known and _is_python(x) and _is_python(y) and not _is_float(y)

    def check(self, division: Apply) -> list[Instruction]:
        self.made += 1
        x, y = division.operands
        nonzero = self.fresh.value(BOOL)
        zero = Literal(False if y.type == BOOL else 0, y.type)
        words = _words(division.op.name, 1.0 if _is_float(x) else 1)
        failing = own("check", kind="ZeroDivisionError", message=words)
        return [
            Apply((nonzero,), Op("ne", (), lax.ne_p), (y, zero), division.span),
            Apply((), failing, (nonzero,), division.span),
        ]


def _is_python(x: Operand) -> bool:
    return isinstance(x.type, Array) and x.type.is_scalar and (x.type.weak or x.type.is_bool)


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and not (x.type.is_integer or x.type.is_bool)


def _words(name: str, numerator: float) -> str:
    """What this Python says."""
    try:
        _DIVISIONS[name](numerator, 0)
    except ZeroDivisionError as error:
        return str(error)
    raise AssertionError(f"{name} by zero")
