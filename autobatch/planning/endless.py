"""Programs that never end on the host: found before memory is full, and named with their example and line.

Inspection runs all examples together, turn by turn: that takes long for one of many turns, and much memory for a
recursion that calls itself twice a time (`f(n + 1, m) + f(n, m + 1)`), which has many activations long before it is
deep. So an example that has gone far is run alone, depth first, for so many calls that one which never ends is too deep
by then (`HostLimits`); what it fails with is what it is reported with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from autobatch.data.columns import Columns, Ints
from autobatch.data.scopes import FunctionActivations
from autobatch.data.spec import HostLimits, PlanSpec
from autobatch.errors import Failure, PlanError
from autobatch.ir.core import Module, Operand, walk
from autobatch.ir.types import Tag
from autobatch.options import Options
from autobatch.planning.scalar import FailedError, ScalarProgram, TooManyCallsError
from autobatch.source import NOWHERE, Span

# ---- failures
#
# Which failure of an example comes first: the example alone, in program order.


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


HOPELESS = "examples that go as far were not run to their end, because each takes seconds"
"""What is said of the others where several examples never end."""

ROW_BYTES = 400
"""What an activation takes in inspection, and in the plan: its arguments, which are interned, and its tables."""

FEW = 10_000
"""Activations that any machine holds."""

LONG, WIDE = 4_096, 1_000_000
"""An example with more turns of a loop, or calls that wait, is run alone, and one with more activations; then with four
times as many, and so on."""

AT_ONCE = 4
"""So many examples at most are run alone each time."""


def host_limits(options: Options, max_rows: int | None, data: Columns, memory: int) -> HostLimits:
    """How far the host goes for these examples, with `memory` bytes for arrays, of which plans may take half."""
    entries = sum(len(column) for column in data.arrays.values())
    ahead = options.max_host_turns + entries
    rows = options.max_rows if max_rows is None else max_rows
    because = f"ab.options(max_rows=...) is {rows:,}"
    fitting = max(memory // 2 // ROW_BYTES, FEW)
    if fitting < rows:
        rows = fitting
        because = f"half of the memory of {memory / 1e9:.1f} GB would not hold them"
    return HostLimits(options.max_iterations, min(options.max_iterations, ahead), ahead, rows, because)


class EndlessWatch:
    """What is known of examples that may never end. `failures`: of those that do not, run alone. Unless `patient`,
    several of them are enough."""

    def __init__(self, spec: PlanSpec, columns: Columns, roots: Sequence[Any], patient: bool) -> None:
        self.spec, self.columns, self.roots, self.patient = spec, columns, roots, patient
        self.wide, self.long = WIDE, LONG
        self.ends: set[int] = set()
        self.failures: dict[int, Failure] = {}

    @property
    def hopeless(self) -> bool:
        """Do several examples never end, so that nobody wants to hear of the others?"""
        return not self.patient and len(self.failures) >= AT_ONCE

    def grown(self, kind: FunctionActivations, call: Span, fail: Callable[[Ints], None]) -> None:
        """More activations of `kind` wait, because of `call`. Raises PlanError where they are too many."""
        if kind.count > self.spec.limits.rows:
            raise self.too_many(kind, call)
        if kind.count > self.wide:
            self.wide *= 4
            self.look_into([most_of(kind)[0]], fail)

    def gone(self, steps: Ints, example: Ints, fail: Callable[[Ints], None]) -> None:
        """So many turns, or calls that wait, lie behind activations of these examples."""
        if int(steps.max(initial=0)) > self.long:
            far = example[steps > self.long]
            self.long *= 4
            self.look_into(np.unique(far).tolist(), fail)

    def look_into(self, examples: Sequence[int], fail: Callable[[Ints], None]) -> None:
        """Run examples alone, up to the first one that ends; not many, where all of them never end."""
        new = [e for e in examples if e not in self.ends and e not in self.failures]
        for example in new[:AT_ONCE]:
            failure = self.run(example)
            if failure is None:
                self.ends.add(example)
                return
            self.failures[example] = failure
            fail(np.array([example]))

    def run(self, example: int) -> Failure | None:
        """What the example fails with, within so many calls that a recursion that never ends is too deep."""
        limits = replace(self.spec.limits, rows=4 * self.spec.limits.depth)
        program = ScalarProgram(self.spec.failing, self.columns, self.spec.numbers, limits)
        args = arguments_of(self.spec, self.columns, self.roots, example)
        try:
            program.call(self.spec.failing.functions[0].name, args)
        except TooManyCallsError:
            return None
        except FailedError as error:
            return error.failure(example)
        return None

    def too_many(self, kind: FunctionActivations, call: Span) -> PlanError:
        """The error for a batch with more activations than the limit: whose they are, and where they are called."""
        limits = self.spec.limits
        example, count = most_of(kind)
        text = (
            f"{kind.function.name} has more than {limits.rows:,} activations in this batch, and {limits.because}; "
            f"example {example} has most of those that wait, {count:,}, called at {call}; raise "
            "ab.options(max_rows=...) if it is meant to be so large, else look for a recursion that never ends there"
        )
        return PlanError("\n".join(filter(None, (text, call.excerpt()))))


def most_of(kind: FunctionActivations) -> tuple[int, int]:
    """The example with most of the activations that wait, and how many these are."""
    counts = np.bincount(np.concatenate([example for example, *_ in kind.pending]))
    return int(counts.argmax()), int(counts.max())
