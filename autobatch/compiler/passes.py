"""The list of passes, the wrapper that runs each, and the order in which control flow goes through them.

A pass is a function, which is timed, verified, and written to a file. What it makes is a module, a system of equations
or a schedule, alone or first in a tuple; None where it has nothing to do.

Control flow: what is data-dependent becomes operations, what is structural stays.

    arenas -> masks -> statuses -> uniform loops -> loops to functions -> indices -> structure -> stack,
    and again from masks

`masked` is the first two alone: all that a back end needs which runs whole functions, where nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from autobatch.backends.llvm.region import of_kernels
from autobatch.common.runtime import stage
from autobatch.compiler.choice import WHOLE
from autobatch.data.columns import Schema
from autobatch.errors import Span, UnsupportedError
from autobatch.frontend import LoweredModule, lower
from autobatch.frontend.memory.heap import CompilesInMemory
from autobatch.ir.core import Call, For, Integers, Module, Value, While, regions, walk
from autobatch.ir.leaf import Site
from autobatch.ir.printer import print_module
from autobatch.ir.regions import Allowed
from autobatch.ir.system import System, print_system
from autobatch.ir.verifier import verify
from autobatch.options import Options
from autobatch.passes.arenas import decided_by_device, left_to_traces, lists_in_arenas
from autobatch.passes.chosen_rows import objects_as_rows, shared_as_rows
from autobatch.passes.code_points import strings_as_letters, texts_in_front
from autobatch.passes.equations import merge_contractions, narrow_joins, share_rows, sum_over_paths
from autobatch.passes.failures import (
    TracedDecidesError,
    check_unread,
    cut_off,
    hand_up_statuses,
    refuse_made_strings,
    refuse_numeric_control,
    refuse_wide_constants,
    refuse_wide_constants_alone,
)
from autobatch.passes.fallible import device_values, fallible_reads
from autobatch.passes.fission import Schedule, fission, print_schedule
from autobatch.passes.frames import build_system, specialise
from autobatch.passes.interning import words_as_numbers
from autobatch.passes.loops import Turns, fuse_uniform_loops, loops_to_functions, numbers_of, run_on_device
from autobatch.passes.masks import Masked, Obstacle, mask_numeric_control, take_gradients
from autobatch.passes.object_rows import structure_as_rows
from autobatch.passes.overflows import add_up_by_loops, keep_known_bounds, mark_integers
from autobatch.passes.simplify import eliminate_common, inline, recursive_functions, without_made_lists
from autobatch.passes.stack import Limits, Repeats, use_stack
from autobatch.passes.structure import StructureFacts, analyse

# ---- the list


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Pass(Generic[P, R]):
    """A pass: its name in dumps and timings, its function, and for which programs it runs."""

    name: str
    run: Callable[P, R]
    when: str = "always"


PLANNED, WHOLE_FUNCTIONS = "rows that the host plans", "whole functions"

LOWER = Pass("lower", lower)
MARK_INTEGERS = Pass("mark-integers", mark_integers)
ADD_UP = Pass("sums-to-loops", add_up_by_loops, WHOLE_FUNCTIONS)
SHARED_ROWS = Pass("shared-rows", shared_as_rows)
INLINE = Pass("inline", inline)
CSE = Pass("cse", eliminate_common)
CHOSEN_ROWS = Pass("chosen-rows", objects_as_rows, f"{PLANNED}, where they are refused without it")
MADE_LISTS = Pass("made-lists", without_made_lists, WHOLE_FUNCTIONS)
HOIST_STRINGS = Pass("hoist-strings", texts_in_front, PLANNED)
STRINGS = Pass("strings", strings_as_letters)
WORDS = Pass("words", words_as_numbers, PLANNED)
ROWS = Pass("rows", structure_as_rows, f"{WHOLE_FUNCTIONS} that read objects or lists")
ARENAS = Pass("arenas", lists_in_arenas)
ON_DEVICE = Pass("on-device", run_on_device, WHOLE_FUNCTIONS)
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
"""All passes, in the order in which they run. `pipeline.py` and what follows give them what they read."""


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


# ---- control flow


@dataclass(frozen=True)
class PassRequest:
    """What passes are told about a program. `traced`: parameters of the entry whose values only the device knows, and
    their names; `masks`: what examples that fail have computed reaches no derivative; `cached`: the places of functions
    whose decorator `functools.cache` was left out."""

    passes: PassManager
    schema: Schema
    options: Options
    traced: Mapping[int, str]
    integers: Integers
    masks: bool
    cached: frozenset[Span] = frozenset()

    @property
    def known(self) -> frozenset[int]:
        """The shared inputs that the host may be told."""
        return frozenset(self.integers.known)

    @property
    def on_device(self) -> frozenset[int]:
        """The parameters that only the device knows."""
        return frozenset(self.traced)

    @property
    def alone(self) -> bool:
        """Does the host know no number at all?"""
        return self.options.backend in WHOLE

    @property
    def allowed(self) -> Allowed:
        options = self.options
        refill = None if options.refill == "auto" else bool(options.refill)
        return Allowed(options.max_iterations, options.states, options.counted_turns, refill)


Made = TypeVar("Made")


def remembering(run: Callable[[frozenset[Span]], Made]) -> Made:
    """What passes make of a function, which is lowered with dicts of the results of functions under `functools.cache`
    where these would run as often as they are called: the places of those are given."""
    remembered = frozenset[Span]()
    while True:
        try:
            return run(remembered)
        except Repeats as more:
            remembered |= more.places


def planned(module: Module, asked: PassRequest) -> ControlledFunctions:
    """Passes 5 to 10. Where they refuse data-dependent control flow, the lists that recursions pass on get memory too,
    then objects that numbers choose are numbers of rows, and then all objects under such control."""
    try:
        return _with_memory(module, asked)
    except TracedDecidesError:  # that it is known is better than any program for all its values
        raise
    except UnsupportedError as refusal:
        for wide in (False, True):
            try:
                device = partial(_device, module, asked)
                rows = asked.passes.run(CHOSEN_ROWS, module, asked.schema, device, wide)
                if rows is not None:
                    return _with_memory(asked.passes.run(CSE, rows), asked)
            except UnsupportedError:
                pass
        raise refusal from None


def _with_memory(module: Module, asked: PassRequest) -> ControlledFunctions:
    try:
        return control(with_arenas(module, asked), asked)
    except UnsupportedError as refusal:
        handed = bool(recursive_functions(module))
        for device in (_device, _device_of_loops) if handed else (_device_of_loops,):
            with suppress(UnsupportedError):
                return control(with_arenas(module, asked, handed, device), asked)
        raise refusal from None


def _device(module: Module, asked: PassRequest, left: frozenset[Value]) -> frozenset[Value]:
    """The values that only the device knows, where those given are such."""
    return device_values(module, asked.on_device, asked.known, left)


def _device_of_loops(module: Module, asked: PassRequest, left: frozenset[Value]) -> frozenset[Value]:
    """The same where all that loops with data-dependent control flow give is such: such a loop may become one
    operation (`masks.py`), with the integers of memory that it carries."""
    loops = [i for f in module.functions for i in walk(f.region) if isinstance(i, For | While)]
    while True:
        found = _device(module, asked, left)
        given = {
            r for i in loops if any(decided_by_device(j, found) for r in regions(i) for j in walk(r)) for r in i.results
        }
        if given <= found:
            return found
        left = left | given


Device = Callable[[Module, PassRequest, frozenset[Value]], frozenset[Value]]


def with_arenas(module: Module, asked: PassRequest, handed: bool = False, known: Device = _device) -> Module:
    """A module with memory for the data-dependent lists. `handed`: as in `lists_of_numbers`; `known`:
    which values only the device knows."""
    capacity = asked.options.list_capacity
    module = with_letters(module, asked)
    module = asked.passes.run(WORDS, module, partial(_device, module, asked))
    device = partial(known, module, asked)
    if asked.options.trace and (left := left_to_traces(module, device)) is not None:
        raise CompilesInMemory.because(left)
    return asked.passes.run(ARENAS, module, asked.schema, device, capacity, alone=False, checked=False, handed=handed)


def with_letters(module: Module, asked: PassRequest) -> Module:
    """A module with lists of code points in the place of strings that computed numbers put together."""
    capacity = asked.options.list_capacity
    if not asked.alone:
        module = asked.passes.run(HOIST_STRINGS, module)
    return asked.passes.run(STRINGS, module, partial(_device, module, asked), capacity, asked.alone)


def with_arenas_alone(module: Module, asked: PassRequest, checked: bool) -> Module:
    """A module of which no host looks at any number, with memory for the lists that it makes. `checked`: are reads that
    can fail behind checks already?"""
    numbers, capacity = numbers_of(module), asked.options.list_capacity
    try:
        return asked.passes.run(ARENAS, module, asked.schema, lambda _: numbers, capacity, alone=True, checked=checked)
    except UnsupportedError as error:
        raise (of_kernels(error) if asked.options.backend == "cuda" else error) from error


class MaskedFunctions(NamedTuple):
    """Functions whose control on computed numbers is operations, and whose loops still are loops. `sites`: what the
    last result of the entry says that an example has failed with, where there is one; `cut`: are rows that fail cut
    off from the others?"""

    module: Module
    sites: tuple[Site, ...]
    cut: bool
    found: Masked
    before: Module
    """The functions when control still was control, derivatives that they take of it one operation each."""
    obstacles: Mapping[Span, Obstacle]


def masked(module: Module, asked: PassRequest, floats: bool) -> MaskedFunctions | None:
    """Control on computed numbers as operations under masks. `floats`: as in `_control`; None: those stay there."""
    passes, reads = asked.passes, partial(fallible_reads, schema=asked.schema)
    unknown = asked.integers.unknown
    facts = (reads, asked.on_device, asked.known, asked.allowed, asked.schema)
    module, left = passes.run(GRADIENTS, module, *facts, asked.alone)
    found = passes.run(MASKS, module, *facts, floats, unknown, asked.alone)
    if found.moved and found.ahead:
        return None
    whole, sites = passes.run(STATUSES, found.module)
    if cut := found.ahead or (asked.masks and bool(sites)):
        whole = passes.run(CUT, whole)
    return MaskedFunctions(whole, sites, cut, found, module, {**found.obstacles, **left})


class ControlledFunctions(NamedTuple):
    """Functions whose control is known to the host, but for what is one operation under a mask, or a program of blocks;
    facts about them, and the reads that can fail."""

    functions: Module
    facts: StructureFacts
    fallible: frozenset[Value]
    turns: Turns
    whole: MaskedFunctions


def control(module: Module, asked: PassRequest) -> ControlledFunctions:
    """Passes 6 to 10. Loops that floats of the examples end run on the device, where the rest of the program can do
    without what the host would know of them."""
    if asked.alone:
        module = asked.passes.run(ON_DEVICE, module)
    found = _control(module, asked, floats=True) or _control(module, asked, floats=False)
    assert found is not None
    return found


def _control(module: Module, asked: PassRequest, floats: bool) -> ControlledFunctions | None:
    """`floats`: loops that only these end run on the device. None where something else depends on what these decide, so
    that they stay on the host."""
    passes, known, on_device = asked.passes, asked.known, asked.on_device
    moved = False
    try:
        while True:
            whole = masked(module, asked, floats)
            if whole is None:
                return None
            module, moved = whole.before, whole.found.moved
            fused, turns = passes.run(UNIFORM_LOOPS, whole.module, asked.integers.known, asked.allowed.counted)
            functions, fallible = passes.run(FUNCTIONS, fused, fallible_reads(fused, schema=asked.schema))
            find = partial(passes.run, STRUCTURE, functions, on_device, known)
            functions = passes.run(INDICES, functions, find, known)
            facts = passes.run(STRUCTURE, functions, on_device, known)
            limits = Limits(asked.options.max_depth, asked.options.max_steps)
            stacked = passes.run(STACK, module, functions, facts, limits, asked.cached, asked.alone)
            if stacked is None:
                break
            if moved:
                return None
            module = stacked
        refuse_made_strings(functions)
        refuse_numeric_control(functions, facts, asked.integers.unknown, asked.traced, whole.obstacles)
        refuse_wide_constants(functions, facts)
    except UnsupportedError:
        if moved:
            return None
        raise
    return ControlledFunctions(functions, facts, fallible, turns, whole)


def whole_of(module: Module, asked: PassRequest) -> tuple[MaskedFunctions, ControlledFunctions | None]:
    """What a back end runs that runs whole functions; and all of `control`, where that was needed to find out."""
    if any(isinstance(i, Call) for f in module.functions for i in walk(f.region)):
        refuse_wide_constants_alone(module)
        found = control(module, asked)
        return found.whole, found
    ready = asked.passes.run(ON_DEVICE, module)
    refuse_wide_constants_alone(ready)
    whole = masked(ready, asked, True) or masked(ready, asked, False)
    assert whole is not None
    return whole, None
