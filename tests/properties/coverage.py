"""What a compiled program contains: instructions, operations of our own, and where its equations were placed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autobatch.ir.core import Apply, Map, Module, walk
from autobatch.ir.system import Compute, Fold, Gather, Spread, space_of
from autobatch.passes.fission import Recurrence, Schedule, ScheduleStage

INSTRUCTIONS = {"Apply", "If", "While", "For", "Map", "Call", "filtered Map"}

OPERATIONS = {
    "load", "is_none", "length", "item", "tag", "tag_equal", "tag_index", "check", "reduce",
    "floordiv", "mod", "truediv", "pow", "round", "int",
}  # fmt: skip
"""Operations of our own that random programs use; the others have tests of their own in `tests/frontend`."""

PLACEMENTS = {
    "once in a stage",
    "rows of examples in a stage",
    "rows of activations in a stage",
    "rows of distinct keys in a stage",
    "recurrence of one task",
    "recurrence of several tasks",
    "several segments of one space",
    "gather in a stage",
    "gather in a loop",
    "fold in a stage",
    "fold in a loop",
    "permutation between orders",
}

CONTROL = {"masked If", "masked While", "masked For", "failure under a mask", "program of blocks"}
"""How control on computed numbers runs: under masks, or on a stack."""

EVERYTHING = INSTRUCTIONS | OPERATIONS | PLACEMENTS


def reached(program: Any) -> set[str]:
    """All of that in one program of the pipeline."""
    in_text = {*in_module(program.lowered.module), *in_schedule(program.schedule), *in_tables(program)}
    return in_text | set(in_operations(program.schedule))


def in_module(module: Module) -> Iterator[str]:
    for function in module.functions:
        for instruction in walk(function.region):
            yield type(instruction).__name__
            if isinstance(instruction, Apply) and not instruction.op.is_jax:
                yield instruction.op.name
            if isinstance(instruction, Map) and instruction.filtered:
                yield "filtered Map"


def in_operations(schedule: Schedule) -> Iterator[str]:
    """Of `CONTROL`, what the operations of a schedule hold."""
    for equation in schedule.system.equations:
        if isinstance(equation, Compute) and equation.op.name == "blocks":
            yield "program of blocks"
        if isinstance(equation, Compute) and equation.op.name == "masked":
            yield from (f"masked {type(i).__name__}" for i in walk(equation.op["region"]) if not isinstance(i, Apply))
            if any(site.kind != "RuntimeError" for site in equation.op["sites"]):
                yield "failure under a mask"


def in_schedule(schedule: Schedule) -> Iterator[str]:
    for step in schedule.steps:
        if isinstance(step, ScheduleStage):
            yield from (in_stage(e) for e in step.equations)
        else:
            yield from in_loop(step)


def in_stage(equation: Any) -> str:
    space = space_of(equation)
    if isinstance(equation, (Gather, Fold)):
        return f"{type(equation).__name__.lower()} in a stage"
    if isinstance(equation, Spread):
        return "rows of distinct keys in a stage"
    if space is None:
        return "once in a stage"
    return "rows of examples in a stage" if space.name in ("main", "example") else "rows of activations in a stage"


def in_loop(loop: Recurrence) -> Iterator[str]:
    yield "recurrence of one task" if len(loop.tasks) == 1 else "recurrence of several tasks"
    spaces = [task.order.space for task in loop.tasks]
    if len(set(spaces)) < len(spaces):
        yield "several segments of one space"
    for task in loop.tasks:
        for equation in task.equations:
            if not isinstance(equation, Compute):
                yield f"{type(equation).__name__.lower()} in a loop"


def in_tables(program: Any) -> Iterator[str]:
    if program._request.permutations:
        yield "permutation between orders"
