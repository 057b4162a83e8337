"""Which failure of an example comes first: the example alone, in program order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autobatch.errors import Failure
from autobatch.ir.types import Tag
from autobatch.runtime.columns import Columns
from autobatch.runtime.scalar import ScalarProgram
from autobatch.runtime.spec import PlanSpec


def first_failures(
    spec: PlanSpec,
    columns: Columns,
    roots: Sequence[Any],
    examples: Iterable[int],
    of_device: Mapping[int, Failure] = MappingProxyType({}),
) -> list[Failure]:
    """The first failure of each of the examples, as Python would raise it. `of_device`: what examples fail with that
    Python could run, because the device cannot hold their numbers."""
    program = ScalarProgram(spec.failing, columns, spec.numbers, spec.turns)
    entry = spec.failing.functions[0]
    whole = spec.module.functions[0].region.args
    kept = [whole.index(a) for a in entry.region.args]
    found = []
    for example in examples:
        args = []
        for k in kept:
            value = roots[k][example]
            type = whole[k].type
            if isinstance(type, Tag):
                value = columns.vocabularies[type.vocabulary][value]
            args.append(value.item() if getattr(value, "ndim", None) == 0 else value)
        found.append(program.first_failure(entry.name, tuple(args), example, of_device.get(example)))
    return found
