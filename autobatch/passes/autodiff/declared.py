"""Cotangents are declared before they are defined, since cycles read them. Here equations that read what was declared
come to read what defines it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autobatch.ir.system import Collect, Compute, Contract, Equation, Follow, Scatter, Taken, Variable


def resolve(variable: Variable, same: Mapping[Variable, Variable]) -> Variable:
    """The variable that defines a declared one; any other is itself."""
    while variable in same:
        variable = same[variable]
    return variable


def substitute(equation: Equation, same: Mapping[Variable, Variable]) -> Equation:
    """An equation that reads the variables that stand for cotangents."""

    def put(x: Any) -> Any:
        return resolve(x, same) if isinstance(x, Variable) else x

    match equation:
        case Compute(operands=xs):
            return replace(equation, operands=tuple(map(put, xs)))
        case Contract(operands=xs, cotangents=cts):
            return replace(equation, operands=tuple(map(put, xs)), cotangents=tuple(map(put, cts)))
        case Scatter(rows=rows, into=into):
            return replace(equation, rows=tuple(replace(r, cotangent=put(r.cotangent)) for r in rows), into=put(into))
        case Collect(readers=readers):
            return replace(equation, readers=tuple(replace(r, cotangent=put(r.cotangent)) for r in readers))
        case Taken(reader=reader):
            return replace(equation, reader=replace(reader, cotangent=put(reader.cotangent)))
        case Follow(source=source):
            return replace(equation, source=put(source))
        case _:
            return equation
