"""Control flow: what is data-dependent becomes operations, what is structural stays.

    arenas -> masks -> statuses -> uniform loops -> loops to functions -> indices -> structure -> stack,
    and again from masks

`masked` is the first two alone: all that a back end needs which runs whole functions, where nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from autobatch.backends.llvm.whole.region import of_kernels
from autobatch.compiler import pass_manager as pm
from autobatch.compiler.choice import WHOLE
from autobatch.compiler.pass_manager import PassManager
from autobatch.data.schema import Schema
from autobatch.errors import Span, UnsupportedError
from autobatch.frontend.memory.heap import CompilesInMemory
from autobatch.ir.core import Call, For, Integers, Module, Value, While, regions, walk
from autobatch.ir.leaf import Site
from autobatch.ir.regions import Allowed
from autobatch.options import Options
from autobatch.passes.analysis.fallible import device_values, fallible_reads
from autobatch.passes.analysis.structure import StructureFacts
from autobatch.passes.control.loops import Turns, numbers_of
from autobatch.passes.control.masks import Masked, Obstacle
from autobatch.passes.control.refuse import (
    TracedDecidesError,
    refuse_made_strings,
    refuse_numeric_control,
    refuse_wide_constants,
    refuse_wide_constants_alone,
)
from autobatch.passes.control.stack import Limits, Repeats
from autobatch.passes.memory.arenas import decided_by_device, left_to_traces
from autobatch.passes.simplify import recursive_functions


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
                rows = asked.passes.run(pm.CHOSEN_ROWS, module, asked.schema, device, wide)
                if rows is not None:
                    return _with_memory(asked.passes.run(pm.CSE, rows), asked)
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
    module = asked.passes.run(pm.WORDS, module, partial(_device, module, asked))
    device = partial(known, module, asked)
    if asked.options.trace and (left := left_to_traces(module, device)) is not None:
        raise CompilesInMemory.because(left)
    return asked.passes.run(
        pm.ARENAS, module, asked.schema, device, capacity, alone=False, checked=False, handed=handed
    )


def with_letters(module: Module, asked: PassRequest) -> Module:
    """A module with lists of code points in the place of strings that computed numbers put together."""
    capacity = asked.options.list_capacity
    if not asked.alone:
        module = asked.passes.run(pm.HOIST_STRINGS, module)
    return asked.passes.run(pm.STRINGS, module, partial(_device, module, asked), capacity, asked.alone)


def with_arenas_alone(module: Module, asked: PassRequest, checked: bool) -> Module:
    """A module of which no host looks at any number, with memory for the lists that it makes. `checked`: are reads that
    can fail behind checks already?"""
    numbers, capacity = numbers_of(module), asked.options.list_capacity
    try:
        return asked.passes.run(
            pm.ARENAS, module, asked.schema, lambda _: numbers, capacity, alone=True, checked=checked
        )
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
    module, left = passes.run(pm.GRADIENTS, module, *facts, asked.alone)
    found = passes.run(pm.MASKS, module, *facts, floats, unknown, asked.alone)
    if found.moved and found.ahead:
        return None
    whole, sites = passes.run(pm.STATUSES, found.module)
    if cut := found.ahead or (asked.masks and bool(sites)):
        whole = passes.run(pm.CUT, whole)
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
        module = asked.passes.run(pm.ON_DEVICE, module)
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
            fused, turns = passes.run(pm.UNIFORM_LOOPS, whole.module, asked.integers.known, asked.allowed.counted)
            functions, fallible = passes.run(pm.FUNCTIONS, fused, fallible_reads(fused, schema=asked.schema))
            find = partial(passes.run, pm.STRUCTURE, functions, on_device, known)
            functions = passes.run(pm.INDICES, functions, find, known)
            facts = passes.run(pm.STRUCTURE, functions, on_device, known)
            limits = Limits(asked.options.max_depth, asked.options.max_steps)
            stacked = passes.run(pm.STACK, module, functions, facts, limits, asked.cached, asked.alone)
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
    ready = asked.passes.run(pm.ON_DEVICE, module)
    refuse_wide_constants_alone(ready)
    whole = masked(ready, asked, True) or masked(ready, asked, False)
    assert whole is not None
    return whole, None
