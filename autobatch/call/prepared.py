"""A call whose program is known: what it runs on, and from what the program computes to what the call returns.

    ready -> execute -> arrays, rows of structure -> assemble -> arrays, containers, Ragged, Batch

`assemble` computes with JAX alone, so that what runs in between may be a derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.interface import Placement
from autobatch.call import native, packed, results
from autobatch.call.arguments import BoundArguments, PackedArgument
from autobatch.call.assembly import Outcome
from autobatch.call.examples import FAILED, Examples, Ready
from autobatch.call.native import SOMEWHERE, Moved
from autobatch.call.packed import refuse, refuse_failed
from autobatch.call.specialise import SpecialisedProgram
from autobatch.common.cache import logger
from autobatch.compiler.choice import PATIENCE
from autobatch.compiler.executables import ArrayResult, Result, failures_of
from autobatch.errors import Error, ExampleError, Failure, SourceError, warn_of_xla
from autobatch.ir.buffers import NO_ROOM, TOO_LARGE, TOO_LARGE_FOR_HOST, needs_bits, room_of
from autobatch.ir.core import Output
from autobatch.ir.jax_compat import by_numpy, integers_are_wide, is_transformed, wide_integers
from autobatch.ir.leaf import is_endless, is_too_deep
from autobatch.options import Options

# ---- room
#
# What grows beyond what a program has for it: the call is run again by one that has more.
#
#     call -> program with list_capacity=32 -> an example is out of room -> program with list_capacity=128 -> ...
#     call -> a program with integers of 32 bits -> an integer is larger -> machine code with integers of 64 bits
#          -> machine code, a recursion of so many calls -> there are more -> XLA, which computes equal ones once
#
# What a function has needed once it begins with from then on.


T = TypeVar("T")

FACTOR = 4
"""How much more there is the next time. To compile takes longer than to compute."""
LARGEST = 65_536
"""Room up to which it grows by itself."""


class OutOfRoom(ExampleError):
    """Examples whose lists are longer than there is room for, among those that failed."""

    def __init__(self, failures: Sequence[Failure], capacity: int) -> None:
        super().__init__(failures)
        self.capacity = capacity


class NeedsWideIntegers(Exception):
    """The call would do with integers of 64 bits; `error`: what it fails with where it has these."""

    def __init__(self, error: Error) -> None:
        super().__init__(str(error))
        self.error = error


class OtherBackend(ExampleError):
    """Examples that machine code, for which nobody asked, is not the best for, among those that failed; the call is for
    `backend`."""

    def __init__(self, failures: Sequence[Failure], backend: str) -> None:
        super().__init__(failures)
        self.backend = backend


def ask_for_bits(failures: Sequence[Failure]) -> None:
    """NeedsWideIntegers where an example has failed because an integer needs more than 32 bits."""
    if any(needs_bits(f.kind, f.message) for f in failures):
        widen(ExampleError(failures))


def _of_width(failure: Failure) -> Failure:
    """A failure with the words for integers of 64 bits, where the device has these."""
    is_wide = (failure.kind, failure.message) == TOO_LARGE and packed.x64()
    return replace(failure, message=TOO_LARGE_FOR_HOST[1]) if is_wide else failure


WIDER = ("auto", "llvm")
"""What back ends calls ask for that may be run again with integers of 64 bits."""

_widens = ContextVar("widens", default=False)
"""Is the call that runs made again with more bits, where its integers need them?"""


@contextmanager
def _narrow_at_first(again: bool) -> Iterator[None]:
    token = _widens.set(again and not packed.x64() and not is_transformed())
    try:
        yield
    finally:
        _widens.reset(token)


def widen(error: Error) -> None:
    """NeedsWideIntegers, where the call is made again with more bits for its integers."""
    if _widens.get():
        raise NeedsWideIntegers(error)


def narrow(x: Any) -> Any:
    """An array with integers of 32 bits, where all of them fit."""
    if x.dtype != np.int64:
        return x
    made = x.astype(np.int32)
    return made if (made == x).all() else x


def exhausted(failures: Iterable[Failure], steps: int) -> str:
    """Has an example failed because its recursion takes more than so many "steps", or is too "deep"?"""
    found = {"steps" for f in failures if is_endless(f.kind, f.message, steps)}
    found |= {"deep" for f in failures if is_too_deep(f.kind, f.message)}
    return max(found, default="")


def ask_for_room(failures: Iterable[Failure]) -> None:
    """OutOfRoom where an example has failed because of its lists."""
    rooms = [(f, room_of(f.message)) for f in failures if f.kind == NO_ROOM]
    found = [(f, room) for f, room in rooms if room is not None]
    if found:
        raise OutOfRoom([f for f, _ in found], max(room for _, room in found))


class KnownCapacities:
    """What the lists and integers of a function have needed so far."""

    def __init__(self) -> None:
        self.capacity = 0
        self.backend = "auto"
        self.wide, self.may_widen = False, True
        self._last: tuple[Options, Options] | None = None

    def in_options(self, options: Options) -> Options:
        """The options with at least so much room; the same object for the same options."""
        known = "llvm" if integers_are_wide() else self.backend
        if not self.capacity and known == "auto":
            return options
        capacity = max(options.list_capacity, self.capacity)
        backend = known if options.backend == "auto" else options.backend
        if (capacity, backend) == (options.list_capacity, options.backend):
            return options
        last = self._last
        if last is None or last[0] is not options or (last[1].list_capacity, last[1].backend) != (capacity, backend):
            self._last = last = options, replace(options, list_capacity=capacity, backend=backend)
        return last[1]

    def with_capacity(self, count: int, options: Options) -> Options:
        """The options with a capacity of more than so many objects, if it may be as large."""
        capacity = max(options.list_capacity, self.capacity)
        while capacity <= count and FACTOR * capacity <= LARGEST:
            capacity *= FACTOR
        if capacity > options.list_capacity:
            self.capacity = capacity
        return self.in_options(options)

    @property
    def is_wide(self) -> bool:
        """Does a call compute with integers of 64 bits, where JAX does not trace it?"""
        return self.wide and not packed.x64() and not is_transformed()

    def enough_for(self, call: Callable[[], T], backend: str = "xla") -> T:
        """What a call gives, which is made again, with more room, or by machine code with more bits where that may be
        the `backend`, as long as its examples run out of it. ExampleError where that is too much."""
        narrow: Error | None = None
        while True:
            is_wide = self.is_wide and backend in WIDER
            try:
                with wide_integers() if is_wide else _narrow_at_first(self.may_widen and backend in WIDER):
                    return call()
            except (SourceError, TypeError, RuntimeError):
                if not is_wide:
                    raise
                self.wide, self.may_widen = False, False  # there is no machine code for it
                if narrow is not None:
                    raise narrow from None
            except OutOfRoom as full:
                wanted = FACTOR * full.capacity
                if wanted > LARGEST:
                    raise ExampleError(full.failures, full.count) from None
                self.capacity = max(self.capacity, wanted)
            except NeedsWideIntegers as full:
                logger.info("computes integers in 64 bits from now on: %s", full)
                self.wide, narrow = True, full.error
            except OtherBackend as full:
                if self.backend != "auto":
                    raise ExampleError(full.failures, full.count) from None
                logger.info("runs by %s from now on: %s", full.backend, full.failures[0].message)
                self.backend = full.backend


@dataclass
class Prepared:
    """A call of `function` whose program is known. `check_plans`: the host is called where a plan is stale."""

    function: str
    program: SpecialisedProgram
    examples: Examples
    shared: list[Any]
    ready: Ready
    out_axes: Any
    check_plans: bool
    operands: list[Any] | None = None
    """What machine code reads that is the whole function; None where it does not run."""
    place: Placement = SOMEWHERE
    chosen: Callable[[], Prepared] | None = None
    """The same call as XLA runs it, where nobody asked for machine code: from that arrays of JAX come back, too."""
    bound: BoundArguments | None = None
    """The call of the program over traced structure, where the function's own is traced."""
    grows: bool = False
    """Is it run again where lists need more room?"""
    packed: Sequence[PackedArgument] = ()
    """Shared arguments that are columns."""
    concrete: bool = False
    """Is it known that JAX traces nothing of it?"""
    use: str = ""
    """The back end of the call, or its `choice.Use`."""
    called_back: Exception | None = None
    """JAX traces what machine code reads, so that XLA calls it: why the call is not a program of XLA."""

    def on(self, shared: list[Any], examples: Examples, ready: Ready, operands: list[Any] | None) -> Prepared:
        """The same call on other numbers, made without a look at its fields: this is the call whose time counts."""
        made = object.__new__(Prepared)
        made.__dict__.update(self.__dict__, shared=shared, examples=examples, ready=ready, operands=operands)
        return made

    def growing(self) -> Prepared:
        """This call, which raises OutOfRoom where lists need more room, and here what failed while planning."""
        self.grows = True
        self.refuse_failures()
        return self

    def run_or_grow(self) -> Any:
        """`run`; OutOfRoom where lists need more room."""
        self.grows = True
        return self.run()

    def run(self, execute: Callable[..., Any] | None = None) -> Any:
        """Run, and turn what comes out into the result."""
        if self.operands is not None:
            return self.run_native(self.operands)
        self.refuse_failures()
        stale = self.stale()
        return self.assemble(self.compute(self.shared, self.tables, execute), stale)

    def refuse_failures(self) -> None:
        """Raise what failed while planning, where the function does not mask it."""
        if self.grows:
            ask_for_room(self.ready.failures)
            ask_for_bits(self.ready.failures)
        if self.ready.failures and not self.program.masks:
            raise ExampleError(self.ready.failures)

    def run_native(self, operands: Sequence[Any]) -> Any:
        """Run machine code that is the whole function."""
        if self.called_back is not None:
            return self.assemble_called(self._called(operands, self.called_back))
        arrays, wrong = native.program_of(self.program).run(operands, self.examples.count, self.place)
        return self.assemble_native(operands, arrays, wrong)

    def _called(self, operands: Sequence[Any], refused: Exception) -> list[Any]:
        return native.differentiable(self.program, operands, self.examples.count, self.place, refused)

    def assemble_called(self, arrays: Sequence[Any]) -> Any:
        """The result of machine code that XLA calls. That an example has failed is known when the computation ends."""
        program = self.program
        found: list[Result] = [ArrayResult(x) for x in arrays[: len(program.kinds)]]
        if program.compiled.sites:
            failed = refuse_failed(program.compiled.sites, arrays[-1]) != 0
            found = [results.marked(x, failed) for x in found]
        return results.of_arrays(program.result, [x.values for x in found if isinstance(x, ArrayResult)])

    def assemble_native(self, operands: Sequence[Any], arrays: Sequence[Any], wrong: bool) -> Any:
        """The result of the call, of the arrays that machine code has computed. `wrong`: an example has failed."""
        program, examples = self.program, self.examples
        if integers_are_wide():
            arrays = [narrow(x) for x in arrays]
        if not wrong and self.returns_arrays and all(type(x) is np.ndarray for x in arrays):
            found = native.as_arrays(arrays[: len(program.kinds)], operands, self.chosen is not None)
            return results.of_arrays(program.result, found)
        failed, failures = np.zeros(examples.count, bool), tuple[Failure, ...]()
        if wrong:
            status = np.asarray(arrays[-1])
            known = {f.index: f for f in self.ready.failures}  # of a trace, which failed in Python: the code only that
            failures = tuple(_of_width(known.get(f.index, f)) for f in failures_of(program.compiled.sites, status))
            failed = status != 0
            if self.grows:
                ask_for_room(failures)
                ask_for_bits(failures if native.program_of(program).on_host else ())
            if self.grows and (other := self._other(failures)) is not None:
                raise OtherBackend(failures, other)
            if not program.masks:
                raise ExampleError(failures)
        returned = program.returned(native.results(program, arrays, failed if wrong else None))
        outcome = Outcome(
            self.function,
            examples.count,
            returned,
            examples.schema,
            examples.host_or_leaves,
            (*examples.enums, *program.enums),
            native.words(program, examples),
            program.reached,
            heaps=program.compiled.facts.heaps,
            whole=returned,
            placed=True,
        )
        of_jax = self.chosen is not None
        with by_numpy() if all(type(x) is np.ndarray for x in arrays) else nullcontext():
            built = results.build(program.result, outcome, self.out_axes)
        result = native.as_given(built, operands, of_jax)
        if not program.masks:
            return result
        results.leave_failed(failed)
        return result, results.Failures(native.as_given(failed, operands, of_jax), failures)

    def _other(self, failures: Sequence[Failure]) -> str | None:
        """The back end that may do better with examples that have failed, where nobody asked for machine code: XLA
        computes equal calls once, however deep they are."""
        recursion = exhausted(failures, PATIENCE)
        if self.chosen is None or not recursion:
            return None
        longer = "llvm" if recursion == "steps" else None
        try:
            compiled = self.chosen().program.compiled
        except Error:  # it has no such program
            return longer
        return longer if compiled.recurses else "xla"

    def gradient(self, output: int, wrt: Sequence[Moved], alone: bool = False) -> tuple[Any, dict[Moved, Any]] | None:
        """The result, and the derivative of the sum of one of its numbers over the examples that have not failed, by
        machine code. None where there is none for it; columns that the code does not read are left out. `alone`:
        nobody asks for the result, so that it is None where no example has failed and nothing is printed."""
        operands, count = self.operands, self.examples.count
        assert operands is not None
        places = native.places(self.program, self.examples.schema, len(self.shared))
        wrt = [x for x in wrt if x in places]
        where = [places[x] for x in wrt]
        if self.called_back is not None:
            result, found = self._gradient_called(operands, output, where)
            return result, dict(zip(wrt, found, strict=True))
        made = native.gradient_of(self.program, output, where)
        if made is None:
            self._warn()
            return None
        result, code, wrong = None, native.program_of(self.program), True
        if alone and code.on_host and self.returns_a_number:
            weight: Any = native.ones_of(count, code.results[output].dtype)
            found, wrong = made.run([*operands, weight], count, self.place)
        if wrong:
            arrays, wrong = code.run(operands, count, self.place)
            weight = native.weights(operands, arrays[-1], arrays[output].dtype, wrong, self.place)
            result = self.assemble_native(operands, arrays, wrong)
            found, _ = made.run([*operands, weight], count, self.place)
        return result, dict(zip(wrt, native.as_given(found, operands, self.chosen is not None), strict=True))

    def _gradient_called(self, operands: list[Any], output: int, where: list[int]) -> tuple[Any, list[Any]]:
        """The same where XLA calls the code, by some operands."""
        assert self.called_back is not None
        count, arrays = self.examples.count, self._called(operands, self.called_back)
        ones = jnp.ones(count, arrays[output].dtype)
        weight = jnp.where(arrays[-1] == 0, ones, 0) if self.program.compiled.sites else ones
        read, refused = [*operands, weight], self.called_back
        found = native.pulled(self.program, output, where, read, count, self.place, refused)
        return self.assemble_called(arrays), found

    def _warn(self) -> None:
        """Say once why the derivative is slow, where XLA gains nothing from the loops that machine code has refused."""
        refused = None if self.chosen is None else native.program_of(self.program).refusal()
        if refused is not None and self.chosen is not None and self.chosen().program.compiled.code.runs_step_by_step:
            warn_of_xla(f"the derivative of {self.function}", refused)

    @property
    def is_pure(self) -> bool:
        """Is it a computation of arrays by XLA and nothing else: it knows ahead that no example fails, its rows are the
        examples, and nothing but its arguments, as JAX has them, decides what it computes?"""
        program, compiled, ready = self.program, self.program.compiled, self.ready
        if self.operands is not None or self.bound is not None or self.packed or self.called_back is not None:
            return False
        if program.masks or compiled.sites or compiled.native is not None or self.is_interpreted:
            return False
        if program.deciding or program.orders or program.hidden or program.on_host or ready.failures or ready.checks:
            return False
        rows = compiled.gives_rows and getattr(ready.signature, "full", False)
        return rows and self.returns_arrays and not compiled.facts.asks_numpy

    @property
    def returns_arrays(self) -> bool:
        """Is the result arrays as the program computes them?"""
        return type(self.out_axes) is int and self.out_axes == 0 and self.program.returns_arrays

    @property
    def returns_a_number(self) -> bool:
        """Is the result of an example one number, and nothing printed?"""
        return isinstance(self.program.result, Output)

    def with_tables(self) -> Prepared:
        """The same call as XLA runs it."""
        if self.operands is None:
            return self
        if self.chosen is not None:
            made = self.chosen()
            return made.growing() if self.grows else made
        native.refuse_for_xla(self.function, self.operands)
        program = self.program.by_xla.at(self.shared)
        return replace(self, program=program, ready=self.examples.ready(program), operands=None)

    @property
    def tables(self) -> dict[str, Any]:
        """What the executable reads."""
        return {n: t for n, t in self.ready.tables.items() if n != FAILED}

    @property
    def failed(self) -> Any:
        """bool[B]: the examples that failed, for functions that mask them."""
        found = self.ready.tables.get(FAILED)
        return jnp.zeros(self.examples.count, bool) if found is None else jnp.asarray(found)

    def stale(self) -> Any:
        """Raises PlanError where the plan is known to be stale; else bool[], None where it cannot be."""
        return refuse(self.ready.checks, self.check_plans) if self.ready.checks else None

    @property
    def is_interpreted(self) -> bool:
        return self.program.key.backend == "interpret"

    def compute(
        self, shared: Sequence[Any], tables: Mapping[str, Any], execute: Callable[..., Any] | None = None
    ) -> Sequence[Any]:
        """What the program computes."""
        if self.is_interpreted:
            return self.program.interpret(shared, replace(self.ready, tables=dict(tables)), self.examples)
        if execute is None:
            return self.program.execute(shared, dict(tables), self.ready.signature, self.concrete)
        found: Sequence[Any] = execute(shared, dict(tables), self.ready.signature)
        return found

    def assemble(
        self,
        computed: Sequence[Any],
        stale: Any = None,
        columns: Callable[[], dict[str, Any]] | None = None,
        out_axes: Any = ...,
    ) -> Any:
        """The result of the call. `columns` are those of the examples, for results that are nodes of the input."""
        program, examples = self.program, self.examples
        computed = program.compiled.of_examples(computed, examples.count)
        alone = stale is None and out_axes is ... and not program.compiled.sites and program.compiled.native is None
        arrays = [x.values for x in computed if isinstance(x, ArrayResult)] if alone and self.returns_arrays else []
        if arrays and len(arrays) == len(computed):
            return results.of_arrays(program.result, arrays)
        failed, failures = self.failed if program.masks else None, self.ready.failures
        if program.compiled.sites:
            failed, failures = self.failed_on_device(computed)
        returned = program.returned(computed, failed)
        outcome = Outcome(
            self.function,
            examples.count,
            returned,
            examples.schema,
            columns or examples.host_or_leaves,
            (*examples.enums, *program.enums),
            self.ready.words,
            program.reached,
            made=program.objects(computed),
            heaps=program.compiled.facts.heaps,
            whole=returned,
        )
        outcome = results.poisoned(outcome, stale) if stale is not None else outcome
        if program.compiled.sites and not program.masks:
            outcome = results.without_numbers(outcome, failed)
        if program.masks:
            outcome = results.without_failed(outcome, failed, program.result)
        result = results.build(program.result, outcome, self.out_axes if out_axes is ... else out_axes)
        if program.masks:
            results.leave_failed(failed)
        return (result, results.Failures(failed, failures)) if program.masks else result

    def failed_on_device(self, computed: Sequence[Any]) -> tuple[Any, tuple[Failure, ...]]:
        """bool[B]: the examples that failed, while planning or on the device; and what is known of them. Raises
        ExampleError where the function does not mask them: when the computation ends, under a transformation of JAX."""
        program = self.program
        status = program.status(program.compiled.of_examples(computed, self.examples.count))
        status = jnp.where(self.failed, 0, status) if program.masks else status
        found = () if isinstance(status, jax.core.Tracer) else failures_of(program.compiled.sites, status)
        if self.grows:
            ask_for_room(found)
        if not program.masks:
            status = refuse_failed(program.compiled.sites, status)
        failures = sorted((*self.ready.failures, *found), key=lambda f: f.index)
        return (self.failed | (status != 0) if program.masks else status != 0), tuple(failures)
