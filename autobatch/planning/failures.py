"""Which failure of an example comes first: the example alone, in program order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autobatch.data.columns import Columns
from autobatch.data.spec import PlanSpec
from autobatch.errors import Failure
from autobatch.ir.core import Module, Operand, walk
from autobatch.ir.types import Tag
from autobatch.planning.scalar import ScalarProgram
from autobatch.source import NOWHERE, Span

MOST_CALLS = 2_000_000
"""So many calls are run to describe failures in program order: seconds. What examples that never end fail with behind
them is what inspection has found, at the place where it has found it."""


def first_failures(
    spec: PlanSpec,
    columns: Columns,
    roots: Sequence[Any],
    examples: Iterable[int],
    of_device: Mapping[int, Failure] = MappingProxyType({}),
) -> list[Failure]:
    """The first failure of each of the examples, as Python would raise it. `of_device`: what examples fail with that
    Python could run, because the device cannot hold their numbers, or that never end."""
    program = ScalarProgram(spec.failing, columns, spec.numbers, spec.limits)
    name = spec.failing.functions[0].name
    found = []
    for example in examples:
        if program.calls > MOST_CALLS and example in of_device:
            found.append(of_device[example])
            continue
        args = arguments_of(spec, columns, roots, example)
        found.append(program.first_failure(name, args, example, of_device.get(example)))
    return found


def arguments_of(spec: PlanSpec, columns: Columns, roots: Sequence[Any], example: int) -> tuple[Any, ...]:
    """What the entry of the slice with all that can fail takes, for one example."""
    entry, whole = spec.failing.functions[0], spec.module.functions[0].region.args
    args = []
    for k in (whole.index(a) for a in entry.region.args):
        value = roots[k][example]
        type = whole[k].type
        if isinstance(type, Tag):
            value = columns.vocabularies[type.vocabulary][value]
        args.append(value.item() if getattr(value, "ndim", None) == 0 else value)
    return tuple(args)


def place_of(module: Module, value: Operand) -> Span:
    """Where a value is computed."""
    for function in module.functions:
        if value in function.region.args:
            return function.span
        for instruction in walk(function.region):
            if value in instruction.results:
                return instruction.span
    return NOWHERE
