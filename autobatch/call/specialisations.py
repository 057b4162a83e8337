"""The programs of one batched function: found by their key, compiled once, kept as long as they are used.

A shared Python integer is a run-time value of a program until the compiler says that it needs the number itself
(`specialisation.py`). Then it becomes static: the function is compiled again with its value in the key. Which integers
are static is remembered by their names, so only the first call of a function pays for finding out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from autobatch.call import packed
from autobatch.call.arguments import COLUMNS, BoundArguments, Order, PackedArgument, Sharing, has_columns, order_of
from autobatch.call.examples import Component, Examples
from autobatch.call.packed import Group, Planner
from autobatch.call.prepared import KnownCapacities, widen
from autobatch.call.specialise import SpecialisedProgram, parameters
from autobatch.call.warm import Matcher, pattern_of
from autobatch.common.cache import Bounded, CacheInfo, Key, differences, logger
from autobatch.common.runtime import Timings, collecting_later, compiling
from autobatch.compiler.choice import (
    ALIKE,
    WHOLE,
    CostsMoreError,
    DeclinedError,
    Use,
    compiles_functions,
    declines,
    is_use,
)
from autobatch.compiler.pipeline import compile as compile_program
from autobatch.data.walk import Snapshot
from autobatch.errors import PlanError, SourceError, warn_of_xla
from autobatch.frontend.types.specialisation import Needed, read_again
from autobatch.frontend.types.statics import same_static
from autobatch.ir.core import Array
from autobatch.options import Options
from autobatch.passes.failures import WideConstantError

TRIED_ONE_BY_ONE = 8
"""So many integers at most are tried one by one, where the compiler cannot say which of them it needs."""
MOST_NUMBERS = 256
"""Shared numbers up to which a program has each as an input of its own, if it can. (Of a tree of 6,000 spheres the
first result takes 0.4 s as columns, 1.25 where it is tried without.)"""

RECENT = 4
"""So many calls are remembered by how they looked."""


@dataclass(frozen=True)
class Request:
    """A call as the compiler sees it: `args` and `kwargs` hold the `Input` leaves that `sharing` has collected.
    `numpy`: which of the inputs are arrays of NumPy. `orders`: of the keys of dicts that have batched leaves."""

    key: Key
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    sharing: Sharing
    numpy: tuple[bool, ...] = ()
    orders: Mapping[str, Order] = field(default_factory=dict)

    def order(self, name: str) -> Order | None:
        """The order of the keys of a dict among the arguments."""
        held = self.sharing.dicts.get(name)
        return order_of(held) if held is not None else self.orders.get(name)

    @property
    def integers(self) -> frozenset[str]:
        """The names of the integers that are run-time values."""
        return frozenset(self.sharing.names[k] for k in self.sharing.integers.known)


_only_known: ContextVar[bool] = ContextVar("only known programs", default=False)


@contextmanager
def compiling_nothing() -> Iterator[None]:
    """Inside, a call for which there is no program raises PlanError: executables are for what they were made for."""
    token = _only_known.set(True)
    try:
        yield
    finally:
        _only_known.reset(token)


Way = tuple[str, str]
"""A back end, and what `on_error` is: functions that differ in them share their programs."""

Requests = Callable[[Way, frozenset[str]], Request]
"""A call, by its way and the names of the shared integers that are static in it."""


@dataclass(frozen=True)
class _Seen:
    """A call that found a program, by a back end and a way with errors. `form` and `shared` say how its arguments
    looked."""

    way: Way
    form: Any
    examples: tuple[Any, ...]
    options: Options
    x64: int
    shared: Matcher
    program: SpecialisedProgram


class Specialisations:
    """The programs of one batched function. Safe under threads: a program is compiled once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._programs: Bounded[Key, list[SpecialisedProgram]] = Bounded(128)
        self._taken: Bounded[Key, Key] = Bounded(128)
        """The keys of programs that calls take whose own key is another: calls for which nobody asked a back end."""
        self._static: frozenset[str] = frozenset()
        self._columns: dict[str, frozenset[str]] = {}
        """The arguments that programs of a back end have as columns."""
        self.columns: Bounded[int, tuple[Snapshot, Group]] = Bounded(4)
        """Objects that all examples share, as columns, by identity."""
        self._declined: Bounded[Key, str] = Bounded(128)
        """Why programs of XLA run where machine code might have."""
        self._seen: tuple[_Seen, ...] = ()
        self._lock = threading.RLock()
        self.room = KnownCapacities()
        self.timings = Timings(name)
        """Of the program that was compiled last."""

    @property
    def static(self) -> frozenset[str]:
        """The names of the shared integers that programs have to know."""
        return self._static

    def _again(
        self, way: Way, bound: BoundArguments, examples: Examples, options: Options
    ) -> tuple[SpecialisedProgram, list[Any]] | None:
        """The program for a call that looks like one before it, and the call's shared leaves; made without a key."""
        form, held, x64 = bound.key, examples.looks, packed.widths()
        for seen in self._seen:
            same = seen.options is options and seen.x64 == x64 and seen.way == way
            if same and seen.form == form and seen.examples == held:
                leaves = seen.shared.match([raw.value for raw in bound.shared])
                if leaves is not None and seen.program.is_current() and _same_orders(seen.program, bound):
                    return seen.program, leaves
        return None

    def _remember(
        self,
        way: Way,
        bound: BoundArguments,
        examples: Examples,
        options: Options,
        found: SpecialisedProgram,
        leaves: int,
    ) -> None:
        """Let calls that look like this one, which has so many shared leaves, find their program `again`."""
        shared = [None if raw.static else pattern_of(raw.value, raw.name, found.orders) for raw in bound.shared]
        known = tuple(p for p in shared if p is not None)
        if len(known) < len(shared) or found.deciding or len((matcher := Matcher(known)).numbers) != leaves:
            return  # more than numbers, a container that stands twice, or integers that decide structure
        self._seen = (
            _Seen(way, bound.key, examples.looks, options, packed.widths(), matcher, found),
            *self._seen[: RECENT - 1],
        )

    def _forget(self) -> None:
        """Before a program is added: those that calls found again are the ones used last."""
        for seen in reversed(self._seen):
            self._programs.get(seen.program.key)
        self._seen = ()

    def find(
        self, way: Way, request: Requests, bound: BoundArguments, planner: Planner, examples: Examples, options: Options
    ) -> tuple[SpecialisedProgram, list[Any], Sequence[PackedArgument]]:
        """The program for a call, for the values of its integers that decide structure; and the call's shared leaves,
        with the arguments that are columns among them.
        Where there is none, it is compiled, and the log says why. One of "auto" that is no machine code is that of XLA,
        for both."""
        if (found := self._again(way, bound, examples, options)) is not None:
            return *found, ()
        with self._lock:
            self._programs.size = options.cache_size
            asked = request(way, self._static_in(way))
            program = self._held(asked)
            if program is None:
                make = self._chosen if is_use(way[0]) else self._made
                compiler = _Compiler(self.name, planner, examples, options, Timings(self.name))
                asked, program = make(way, request, compiler, bound)
            leaves = asked.sharing.leaves
            if not asked.sharing.packed:
                self._remember(way, bound, examples, options, program, len(leaves))
            return program.at(leaves), leaves, asked.sharing.packed

    def _of_another_use(self, way: Way, request: Requests) -> tuple[SpecialisedProgram | None, str]:
        """The machine code that was made for another use, and why it is not for this one ("": it is)."""
        for use in ALIKE if way[0] in ALIKE else ():
            program = self._held(request((use, way[1]), self._static_in(way)))
            if program is not None and (code := program.compiled.native) is not None and code.on_host:
                return program, declines(Use(way[0]), code.work)
        return None, ""

    def _static_in(self, way: Way) -> frozenset[str]:
        """The names of what is static in programs of a back end, or columns."""
        return self._static | self._columns.get(way[0], frozenset())

    def _made(
        self, way: Way, request: Requests, compiler: _Compiler, bound: BoundArguments
    ) -> tuple[Request, SpecialisedProgram]:
        """A program that is compiled now."""
        if _only_known.get():
            raise PlanError(self._unlike(request(way, self._static_in(way))))
        self._log(request(way, self._static_in(way)))
        asked, program = self._settled(way, request, compiler, bound)
        self._keep(asked, program)
        return asked, program

    def _keep(self, asked: Request, program: SpecialisedProgram) -> None:
        self.timings = program.timings
        if asked.key != program.key:
            self._taken.put(asked.key, program.key)
            return
        self._forget()
        self._programs.put(asked.key, [program, *(self._programs.get(asked.key) or [])[:7]])

    def _chosen(
        self, way: Way, request: Requests, compiler: _Compiler, bound: BoundArguments
    ) -> tuple[Request, SpecialisedProgram]:
        """Machine code for the whole function, where there is any and it pays, or XLA has no form for it; else the
        program of XLA."""
        other, why = self._of_another_use(way, request)
        if other is not None and not why:
            asked = request(way, self._static_in(way))
            self._keep(asked, other)
            return asked, other
        slow: SourceError | None = None
        costs_more = bool(why)
        if not why:
            try:
                return self._made(way, request, compiler, bound)
            except (DeclinedError, SourceError) as error:
                if isinstance(error, WideConstantError):
                    widen(error)
                why, costs_more = str(error).splitlines()[0], isinstance(error, CostsMoreError)
                slow = error if isinstance(error, SourceError) else None
        by_xla = ("xla", way[1])
        logger.info("%s runs by xla: %s", self.name, why)
        try:
            asked, program = self._found(by_xla, request, compiler, bound)
        except SourceError:
            if not costs_more:
                raise
            asked, program = self._found((compiles_functions(way[0]).name, way[1]), request, compiler, bound)
            self._keep(request(way, self._static_in(way)), program)
            return asked, program
        if slow is not None and program.compiled.may_run_long and way[0] != Use.ON_GPU:
            warn_of_xla(self.name, slow)
        self._declined.put(program.key, why)
        self._columns[way[0]] = self._columns.get(by_xla[0], frozenset())
        self._keep(request(way, self._static_in(way)), program)
        return asked, program

    def _found(
        self, way: Way, request: Requests, compiler: _Compiler, bound: BoundArguments
    ) -> tuple[Request, SpecialisedProgram]:
        """The program of a back end, which is compiled where there is none."""
        asked = request(way, self._static_in(way))
        program = self._held(asked)
        return self._made(way, request, compiler, bound) if program is None else (asked, program)

    def _held(self, asked: Request) -> SpecialisedProgram | None:
        """A program with this key whose free variables are as they were, whose structure the host can know, which has
        room for the turns of its loops, takes arrays of NumPy for what they are where it indexes them, and meets the
        keys of dicts in the order in which it runs over them."""
        known = asked.sharing.integers.known
        for program in self._programs.get(self._taken.get(asked.key) or asked.key) or []:
            fits = known.keys() >= set(program.deciding) and program.compiled.has_room(known)
            fits = fits and all(asked.order(name) == order for name, order in program.orders.items())
            if fits and program.fits_numpy(asked.numpy) and program.is_current():
                return program
        return None

    def _settled(
        self, way: Way, request: Requests, compiler: _Compiler, bound: BoundArguments
    ) -> tuple[Request, SpecialisedProgram]:
        """A program with as few static integers as the function can do with; where no other compiles, or objects that
        all examples share hold many numbers, with these as columns."""
        static = self._static_in(way)

        def by_columns(columns: frozenset[str]) -> tuple[Request, SpecialisedProgram]:
            asked = request(way, static | columns)
            made = self._held(asked) or compiler.compile(asked)
            self._columns[way[0]] = self._columns.get(way[0], frozenset()) | columns
            return asked, made

        many = sum(t.is_scalar for t in request(way, static).sharing.types) > MOST_NUMBERS
        if many and (columns := _columns_of(bound) - static):
            with suppress(SourceError, Needed):
                return by_columns(columns)
        while True:
            asked = request(way, static)
            try:
                made = self._held(asked) or compiler.compile(asked)
                break
            except Needed as needed:
                static |= {asked.sharing.names[k] for k in needed.numbers}
            except SourceError as error:
                if columns := _columns_of(bound) - static:
                    try:
                        asked, made = by_columns(columns)
                        break
                    except SourceError as another:
                        error.add_note(f"With its objects as rows of arrays: {another.message}")
                integers = request(way, static | columns).integers
                if not integers or is_use(way[0]):
                    raise
                asked, made = _fewest(lambda s: request(way, s), compiler, static, integers)
                static |= asked.sharing.static
                break
        if more := static - self._static_in(way):
            logger.info("static in %s from now on: %s", self.name, ", ".join(sorted(more)))
            self._static |= more
        return asked, made

    def why_xla(self, program: SpecialisedProgram, examples: Examples) -> str:
        """Why machine code does not run a call for which no back end was asked."""
        return self._declined.get(program.key) or examples.unfit or examples.structure or ""

    def for_group(self, group: Group) -> tuple[SpecialisedProgram, ...]:
        """The programs, at most four, that take such packed examples, and beside them nothing that the host reads."""
        with self._lock:
            programs = [planned for p in self._all() if (planned := self._with_plans(p)) is not None]
        fit = [
            planned
            for p in programs
            if p.key.schema == group.schema
            and p.key.x64 == packed.widths()
            and sum(not c.array for c in p.components) == group.width
            and not any(p.components[k].array for k in p.on_host)
            and p.is_current()
            for planned in _planned(p, group)
        ]
        return tuple(sorted(fit[:4], key=lambda p: p.fingerprint))

    def _with_plans(self, program: SpecialisedProgram) -> SpecialisedProgram | None:
        """A program as XLA runs it, which packed examples are planned for and calls with them find; None where such
        one is held beside it, or XLA has none."""
        if program.compiled.by_xla is None:
            return program
        key = replace(program.key, backend="xla")
        held = self._programs.get(key)
        if new := held is None:
            try:
                held = [program.by_xla]
            except SourceError:
                held = []  # asked once
            self._programs.put(key, held)
        if held and program.given is not None:
            held[0].at(program.given)  # plans are for what the integers of the last call decide
        return held[0] if new and held else None

    def info(self) -> CacheInfo:
        """What is kept, and how many plans were made."""
        with self._lock:
            programs = self._all()
        executables = sum(p.executables for p in programs)
        return CacheInfo(len(programs), executables, sum(p.made.plans for p in programs))

    def _all(self) -> list[SpecialisedProgram]:
        """Every program once, that used last first."""
        return list({p.fingerprint: p for _, held in self._programs.items() for p in held}.values())

    def _unlike(self, asked: Request) -> str:
        """What an executable says of a call that it is not for."""
        known = sorted((differences(k, asked.key) for k, _ in self._programs.items()), key=len)
        words = "; ".join(known[0]) if known else "no program is kept"
        return f"this executable is for other calls ({words or 'free variables changed'}); call the function itself"

    def _log(self, asked: Request) -> None:
        if candidates := self._programs.get(asked.key):
            changed = [g for g in candidates[0].guards if not same_static(read_again(g, g.value), g.value)]
            words = "; ".join(f"{'.'.join([g.name, *(str(s) for s in g.path)])} changed" for g in changed[:3])
            words = words or (
                "an array has another shape or is one of NumPy, or an integer is traced or counts more turns"
            )
            moved = [name for name, order in candidates[0].orders.items() if asked.order(name) != order]
            if moved:
                logger.info("recompiling %s: the keys of %s have another order", self.name, ", ".join(moved[:3]))
                return
            logger.info("recompiling %s: free variables: %s", self.name, words)
            return
        known = [k for k, _ in self._programs.items()]
        if known:
            nearest = min((differences(k, asked.key) for k in known), key=len)
            logger.info("recompiling %s: %s", self.name, "; ".join(nearest))
        else:
            logger.info("compiling %s", self.name)


@dataclass(frozen=True)
class _Compiler:
    """What all attempts to compile one call have in common."""

    name: str
    planner: Planner
    examples: Examples
    options: Options
    timings: Timings

    def compile(self, asked: Request) -> SpecialisedProgram:
        """Raises SourceError where the function does not compile, and Needed where an integer has to be static."""
        with compiling(self.name, "passes", self.options.progress, self.timings):
            return self._compiled(asked)

    @collecting_later
    def _compiled(self, asked: Request) -> SpecialisedProgram:
        fun = self.planner.__wrapped__
        components, sharing = self.examples.components, asked.sharing
        named = zip(parameters(components), self.examples.names, strict=True)
        traced = {k: name for (k, component), name in named if component.traced or self._is_number(component, asked)}
        compiled = compile_program(
            fun,
            asked.args,
            asked.kwargs,
            self.examples.schema,
            sharing.types,
            replace(self.options, backend=asked.key.backend),
            traced,
            sharing.integers,
            sharing.dicts,
            asked.key.on_error == "mask",
            [p.columns for p in sharing.packed],
        )
        size, lowered = self.options.cache_size, compiled.facts
        ordered = [*lowered.ordered, *(asked.orders if lowered.orders_batched else ())]
        orders = {name: order for name in ordered if (order := asked.order(name)) is not None}
        held = (self.name, self.planner, asked.key, compiled, components, size, self.timings)
        return SpecialisedProgram(*held, asked.numpy, orders)

    def _is_number(self, component: Component, asked: Request) -> bool:
        """Is it a number that no host looks at, as the back end wants it?"""
        return asked.key.backend in WHOLE and isinstance(component.type, Array) and not component.optional


def _columns_of(bound: BoundArguments) -> frozenset[str]:
    """The shared arguments that may be columns, as `Sharing.static` names them."""
    return frozenset(COLUMNS + raw.name for raw in bound.shared if not raw.static and has_columns(raw.value))


def _fewest(
    request: Callable[[frozenset[str]], Request], compiler: _Compiler, static: frozenset[str], integers: frozenset[str]
) -> tuple[Request, SpecialisedProgram]:
    """The program where all integers are static that have to be, when the compiler refuses the function without saying
    which. Raises what it says where all of them are."""
    static |= integers
    asked = request(static)
    made = compiler.compile(asked)
    for name in sorted(integers) if len(integers) <= TRIED_ONE_BY_ONE else ():
        fewer = request(static - {name})
        try:
            asked, made, static = fewer, compiler.compile(fewer), static - {name}
        except (SourceError, Needed):
            continue
    return asked, made


def _same_orders(program: SpecialisedProgram, bound: BoundArguments) -> bool:
    """Have the dicts with batched leaves, over whose keys a program runs, these in the order that it knows?"""
    if not program.orders:
        return True
    given = bound.orders
    return all(given.get(name, order) == order for name, order in program.orders.items())


def _planned(program: SpecialisedProgram, group: Group) -> Sequence[SpecialisedProgram]:
    """A program for the values of its integers that plans of these examples are for; where there is none, for those of
    the last call."""
    if not program.deciding:
        return [program]
    used = program.in_use()
    return [p for p in used if group.has_plan(p)] or used[:1]
