"""From functions whose control is known to equations over rows, and the order in which these run: passes 9 to 16."""

from __future__ import annotations

from typing import NamedTuple

from autobatch.compiler.control import ControlledFunctions, PassRequest
from autobatch.data.spec import PlanSpec
from autobatch.ir.core import Module
from autobatch.ir.system import System, print_system
from autobatch.passes.analysis.structure import analyse
from autobatch.passes.control.uniform_loops import Turns
from autobatch.passes.control.unread import check_unread
from autobatch.passes.frames.frames import build_system
from autobatch.passes.frames.specialise import in_recurrences, specialise
from autobatch.passes.schedule.contractions import merge_contractions
from autobatch.passes.schedule.fission import Schedule, fission, print_schedule
from autobatch.passes.schedule.narrow import narrow_joins
from autobatch.passes.schedule.path_sums import sum_over_paths
from autobatch.passes.schedule.sharing import share_rows


class Scheduled(NamedTuple):
    """A program as equations over rows, and in which order they run. `turns`: room for the turns of loops that shared
    integers count."""

    functions: Module
    system: System
    spec: PlanSpec
    schedule: Schedule
    turns: Turns


def scheduled(found: ControlledFunctions, asked: PassRequest) -> Scheduled:
    """Passes 9 to 16: equations over spaces of rows, and the order in which they run."""
    passes, schema, known, on_device = asked.passes, asked.schema, asked.known, asked.on_device
    functions, facts, fallible, turns, _ = found
    functions = passes.after("unread", check_unread(functions, facts, fallible, schema))
    facts = analyse(functions, on_device, known)
    system, spec, values = build_system(functions, facts, schema)
    schedule = fission(share_rows(system))
    while (moved := specialise(functions, in_recurrences(schedule, values))) is not None:
        functions = passes.after("specialise", moved)
        system, spec, values = build_system(functions, analyse(functions, on_device, known), schema)
        schedule = fission(share_rows(system))
    for improve in (sum_over_paths, merge_contractions, narrow_joins):
        if (better := improve(schedule)) is not None:
            schedule = fission(better)
    passes.write("system", lambda: print_system(system))
    passes.write("fission", lambda: print_schedule(schedule))
    return Scheduled(functions, system, spec, schedule, turns)
