"""The list of passes, and the wrapper that runs each: timed, verified, and written to a file.

A pass is a function. What it makes is a module, a system of equations or a schedule, alone or first in a tuple; None
where it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from autobatch.common.stages import stage
from autobatch.frontend import LoweredModule, lower
from autobatch.ir.core import Module
from autobatch.ir.printer import print_module
from autobatch.ir.system import System, print_system
from autobatch.ir.verifier import verify
from autobatch.options import Options
from autobatch.passes.analysis.structure import analyse
from autobatch.passes.control.loops import fuse_uniform_loops, loops_to_functions, run_on_device
from autobatch.passes.control.masks import mask_numeric_control, take_gradients
from autobatch.passes.control.overflows import add_up_by_loops, keep_known_bounds, mark_integers
from autobatch.passes.control.refuse import check_unread
from autobatch.passes.control.stack import use_stack
from autobatch.passes.control.status import cut_off, hand_up_statuses
from autobatch.passes.equations import merge_contractions, narrow_joins, share_rows, sum_over_paths
from autobatch.passes.fission import Schedule, fission, print_schedule
from autobatch.passes.frames import build_system, specialise
from autobatch.passes.memory.arenas import lists_in_arenas
from autobatch.passes.memory.chosen_rows import objects_as_rows, shared_as_rows
from autobatch.passes.memory.rows import structure_as_rows
from autobatch.passes.simplify import eliminate_common, inline, without_made_lists
from autobatch.passes.strings.spelling import strings_as_letters, texts_in_front
from autobatch.passes.strings.words import words_as_numbers

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Pass(Generic[P, R]):
    """A pass: its name in dumps and timings, its function, and for which programs it runs."""

    name: str
    run: Callable[P, R]
    when: str = "always"


PLANNED, WHOLE = "rows that the host plans", "whole functions"

LOWER = Pass("lower", lower)
MARK_INTEGERS = Pass("mark-integers", mark_integers)
ADD_UP = Pass("sums-to-loops", add_up_by_loops, WHOLE)
SHARED_ROWS = Pass("shared-rows", shared_as_rows)
INLINE = Pass("inline", inline)
CSE = Pass("cse", eliminate_common)
CHOSEN_ROWS = Pass("chosen-rows", objects_as_rows, f"{PLANNED}, where they are refused without it")
MADE_LISTS = Pass("made-lists", without_made_lists, WHOLE)
HOIST_STRINGS = Pass("hoist-strings", texts_in_front, PLANNED)
STRINGS = Pass("strings", strings_as_letters)
WORDS = Pass("words", words_as_numbers, PLANNED)
ROWS = Pass("rows", structure_as_rows, f"{WHOLE} that read objects or lists")
ARENAS = Pass("arenas", lists_in_arenas)
ON_DEVICE = Pass("on-device", run_on_device, WHOLE)
GRADIENTS = Pass("gradients", take_gradients)
MASKS = Pass("masks", mask_numeric_control)
STATUSES = Pass("statuses", hand_up_statuses)
CUT = Pass("cut", cut_off, "where examples that fail have no derivative")
UNIFORM_LOOPS = Pass("uniform-loops", fuse_uniform_loops)
FUNCTIONS = Pass("functions", loops_to_functions)
INDICES = Pass("indices", keep_known_bounds)
STRUCTURE = Pass("structure", analyse)
STACK = Pass("stack", use_stack, "and again from gradients, where it finds a recursion")
UNREAD = Pass("unread", check_unread, PLANNED)
SYSTEM = Pass("system", build_system, PLANNED)
SHARE = Pass("share", share_rows, PLANNED)
FISSION = Pass("fission", fission, PLANNED)
SPECIALISE = Pass("specialise", specialise, f"{PLANNED}; and again from structure, where it moves something")
PATH_SUMS = Pass("path-sums", sum_over_paths, PLANNED)
CONTRACTIONS = Pass("contractions", merge_contractions, PLANNED)
NARROW_JOINS = Pass("narrow-joins", narrow_joins, PLANNED)

PASSES: tuple[Pass[..., Any], ...] = tuple(x for x in list(globals().values()) if isinstance(x, Pass))
"""All passes, in the order in which they run. `pipeline.py` and `control.py` give them what they read."""


class PassManager:
    """Runs passes."""

    def __init__(self, options: Options) -> None:
        self.options, self.number = options, 0

    def run(self, one: Pass[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What a pass makes."""
        with stage(one.name):
            made = one.run(*args, **kwargs)
        if self.options.verify or self.options.dump is not None:
            for found in _programs(made):
                self._checked(one.name, found)
        return made

    def _checked(self, name: str, found: Module | System | Schedule) -> None:
        if self.options.verify and isinstance(found, Module):
            with stage("verify"):
                verify(found)
        if self.options.dump is None:
            return
        self.number += 1
        match found:
            case Module():
                text = print_module(found)
            case System():
                text = print_system(found)
            case _:
                text = print_schedule(found)
        self.options.dump.mkdir(parents=True, exist_ok=True)
        (self.options.dump / f"{self.number:02}-{name}.txt").write_text(text)


def _programs(made: Any) -> Iterator[Module | System | Schedule]:
    """The program that a pass has made, where it has made one."""
    match made:
        case Module() | System() | Schedule():
            yield made
        case LoweredModule(module=module):
            yield module
        case (Module() | System() as first, *_):
            yield first
