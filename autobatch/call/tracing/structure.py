"""What is known of the structure of a function for some types of its arguments: classes, compounds, the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from autobatch.call.batches.batch import Batch
from autobatch.call.batches.groups import Group
from autobatch.call.batches.packing import pack_fresh
from autobatch.call.tracing.asked import ASKED, AskedError
from autobatch.call.tracing.classes import Instances, OperationClasses
from autobatch.call.tracing.compounds import Compounds
from autobatch.call.tracing.free import FreeVariables, LeakWatch
from autobatch.call.tracing.intercepted import found as functions_found
from autobatch.call.tracing.log import Kinds, TooLongError, TracedRun, span_of_place
from autobatch.call.tracing.outline import Outline, span_of
from autobatch.call.tracing.repeat import check
from autobatch.call.tracing.returned import TracedResults
from autobatch.call.tracing.rows import OtherTypesError, columns, examples
from autobatch.call.tracing.source import TracedRow, TraceSource, TraceWriter
from autobatch.common.collecting import collecting_later
from autobatch.data.columns import Columns
from autobatch.errors import ExampleError, Failure, PlanError, UnsupportedError
from autobatch.source import NOWHERE, Span

Make = Callable[[Callable[..., Any]], Any]
TOGETHER = 1024
"""Examples that are run before Python may look for garbage again: what the user's function leaves in cycles is the
garbage of so many runs at most."""


class TracedStructure:
    """What is known of the structure of a function for some types of its arguments, and the program over it."""

    def __init__(self, name: str, made_for: Any, make: Make) -> None:
        self.name, self.made_for, self._make = name, made_for, make
        self.classes, self.compounds, self.kinds, self.returned = (
            OperationClasses(),
            Compounds(),
            Kinds(),
            TracedResults(),
        )
        self._roots: dict[int, None] = {}
        self._state: Any = None
        self.source: TraceSource | None = None
        self._function: Any = None
        self._samples: list[TracedRun] = []
        self._schema: Any = None

    def function(self) -> Any:
        """The program, batched. It knows the types of all rows that there have been, so that a batch which shows less
        runs on the program that is there."""
        assert self.source is not None
        if self._function is None:
            self._function = self._make(self.source.main)
            failed = [self.source.failed()] if self.source.fails else []
            self._schema = pack_fresh([*self._objects(self._samples), *failed]).schema
            self._function.learn(self._schema)
        return self._function

    @collecting_later
    def rows(self, runs: Sequence[TracedRun | None]) -> Columns:
        """Runs as rows of the program, which is made again where they show more than was known."""
        known = [r for r in runs if r is not None]
        if self.returned.add(known):  # results have another form now
            self.classes, self.compounds, self._roots = OperationClasses(), Compounds(), {}
            self._learn(self._samples)
        found = self._learn(known)
        self._samples += [known[k] for k in sorted(found.new)]
        fails = len(known) < len(runs) or (self.source is not None and self.source.fails)
        state = (self.classes.version, tuple(self._roots), self.compounds.state, fails, len(self.kinds.failures))
        if self.source is None or self._state != state:
            self.source = TraceWriter(
                self.classes,
                self.compounds,
                list(self._roots),
                self.name,
                fails,
                self.returned.constants,
                self.kinds.failures,
            ).write()
            self._state, self._function = state, None
        function = self.function()
        try:
            failed = [r is None for r in runs]
            return columns(self.classes, self.compounds, self.source, found, self._schema, failed)
        except OtherTypesError:  # strings, say
            made = iter(examples(self.classes, self.compounds, self.source, found))
            packed: Batch = function.pack([self.source.failed() if r is None else next(made) for r in runs])
            return packed.group().columns

    def _objects(self, runs: Sequence[TracedRun]) -> list[TracedRow]:
        """Runs that showed nothing new as rows."""
        assert self.source is not None
        return examples(self.classes, self.compounds, self.source, self._met(runs))

    def _met(self, runs: Sequence[TracedRun]) -> Instances:
        return self.classes.add([self.returned.formed(r) for r in runs], self.kinds)

    def _learn(self, runs: Sequence[TracedRun]) -> Instances:
        """Meet what runs have done."""
        general = self.classes.general
        found = self._met(runs)
        if self.classes.general > general:  # what was known of classes is known of others now
            self.compounds.add(self.classes, self._met(self._samples))
        self.compounds.add(self.classes, found)
        self._roots.update(dict.fromkeys(np.unique(found.classes[found.roots]).tolist()))
        return found


@dataclass(frozen=True)
class Tracing:
    """How a call is traced. `refused`: what the compiler said, for the first one, raised again where not structure
    alone decides. `masks`: examples may fail. `most`: so many operations one example may have."""

    outline: Outline
    structure: TracedStructure
    refused: Exception | None
    masks: bool
    most: int

    def rows(self, examples: Sequence[Sequence[Any]], free: FreeVariables) -> tuple[Columns, tuple[Failure, ...]]:
        """The traces of examples as rows of the program, and the examples that failed. `examples[k]`: its values, for
        each batched leaf."""
        runs, failures = self.runs(examples, free)
        return self.structure.rows(runs), failures

    def runs(
        self, examples: Sequence[Sequence[Any]], free: FreeVariables
    ) -> tuple[list[TracedRun | None], tuple[Failure, ...]]:
        """A run for each example, and the examples that failed, which have none."""
        watch = LeakWatch(free)
        try:
            with functions_found():
                return self._runs(examples, free)
        finally:
            if (variable := watch.leaked(self.outline.free())) is not None:
                raise _left(self.outline, variable, self.refused)

    def _runs(
        self, examples: Sequence[Sequence[Any]], free: FreeVariables
    ) -> tuple[list[TracedRun | None], tuple[Failure, ...]]:
        found = _RunsSoFar()
        for begin in range(0, len(examples), TOGETHER):
            self._run(examples[begin : begin + TOGETHER], begin, free, found)
        runs, failures, refused = found.runs, found.failures, self.refused
        unknown = failures and len(failures) == len(runs) and self.structure.source is None
        if unknown and refused is not None:
            refused.add_note(f"As plain Python, {failures[0]}")
            raise refused from found.first
        if failures and (unknown or not self.masks):  # of what the function returns nothing is known, or all is asked
            raise ExampleError(failures) from found.first
        return runs, tuple(failures)

    @collecting_later
    def _run(self, examples: Sequence[Sequence[Any]], begin: int, free: FreeVariables, found: _RunsSoFar) -> None:
        """Run some examples, the first of which is example `begin`."""
        name, refused = self.outline.name, self.refused
        for k, values in enumerate(examples, begin):
            try:
                made = self.outline.run(values, free, self.structure.kinds, self.most)
                if k == 0 and self.structure.source is None:
                    again = partial(self.outline.run, values, free, self.structure.kinds, self.most)
                    check(name, made, again, self.structure.returned)
                found.runs.append(made)
            except TooLongError as error:
                raise _too_long(name, k, self.most, error) from None
            except (*ASKED, AskedError) as error:
                raise _asked(name, refused, error) from error
            except UnsupportedError as error:
                if refused is None:
                    raise
                refused.add_note(f"Its structure cannot be traced either: {error}")
                raise refused from error
            except Exception as error:
                found.failures.append(Failure(k, type(error).__name__, _in_words(error), span_of(error)))
                found.runs.append(None)
                found.first = found.first or error


@dataclass
class _RunsSoFar:
    """What runs have given so far. `first`: the error of the first example that failed."""

    runs: list[TracedRun | None] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    first: Exception | None = None


def _left(outline: Outline, variable: str, refused: Exception | None) -> Exception:
    """A run has left a computed number outside of the function."""
    what = f"it leaves a computed number in {variable}, which is made outside of it"
    if refused is not None:
        refused.add_note(f"Its structure cannot be traced either: {what}")
        return refused
    code = getattr(outline.function, "__code__", None)
    span = Span(code.co_filename, code.co_firstlineno) if code is not None else NOWHERE
    return UnsupportedError(
        f"{outline.name}: its structure is traced, which runs it once for all calls, and {what}", span,
        "return what it computes",
    )  # fmt: skip


def _too_long(name: str, example: int, most: int, error: TooLongError) -> PlanError:
    return PlanError(
        f"{name}: example {example} is traced, and has more than {most:,} operations, which is what memory or "
        f"ab.options(max_rows=...) allows; the last one is at {span_of_place(error.place)}: look for a loop that never "
        "ends there"
    )


def _asked(name: str, refused: Exception | None, error: Exception) -> Exception:
    """Python has asked for the value of a number: the compiler has to take the function, and says why it does not."""
    span = span_of(error)
    if refused is None:
        return UnsupportedError(
            f"{name}: its structure is traced, and here Python asks for a number that is computed", span,
            "decide by integers and other structure, or select with jnp.where",
        )  # fmt: skip
    refused.add_note(f"Its structure cannot be traced either: Python asks for a computed number at {span}")
    return refused


@dataclass(frozen=True)
class Kept:
    """The traces of examples. `free`, `decided`: what else they depend on. `function`: the program over them, for which
    they are planned."""

    free: FreeVariables
    decided: Any
    function: Any
    rows: Batch
    failures: tuple[Failure, ...]

    def still_holds(self, decided: Any, free: FreeVariables) -> bool:
        return self.decided == decided and self.free.is_same(free)

    @property
    def group(self) -> Group:
        return self.rows.group()


def _in_words(error: Exception) -> str:
    """What Python says, of numbers where symbols stand for them."""
    return re.sub(r"(['\"])(Symbol|\w*Tracer)\1", r"\1float\1", str(error))
