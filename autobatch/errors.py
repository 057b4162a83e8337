"""Everything autobatch raises, and how it is worded: what is wrong, where, and what to write instead.

A place in the user's source text is a `Span`: every instruction and every error carries one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import jax

from autobatch.common.record import record

# ---- places


@record
class Span:
    """A range of the user's source: 1-based lines, 1-based columns, as editors count them."""

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """The source line with a caret under the range, or an empty string when there is no source."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return ""
        stop = self.end_column if self.end_line == self.line else len(text) + 1
        carets = "^" * max(1, stop - self.column)
        return f"    {text}\n    {' ' * (self.column - 1)}{carets}"


NOWHERE = Span("<no source>", 0, 0)


# ---- errors


P = ParamSpec("P")
R = TypeVar("R")
_PACKAGE = os.path.dirname(__file__) + os.sep


class Error(Exception):
    """The root of all errors of autobatch. They pickle, as other processes raise them."""

    def __reduce__(self) -> Any:
        return _remade, (type(self), self.args), self.__dict__


def show(error: Exception) -> None:
    """Make an error as its user sees it: of a public class, and of our frames the outermost alone, where the call came
    in. `jax.config.update("jax_traceback_filtering", "off")` shows all, as it does of JAX's."""
    if isinstance(error, Error):
        public = (c for c in type(error).__mro__ if c.__module__ == __name__ and c is not Error)
        error.__class__ = next(public, type(error))
        error.__suppress_context__ = True
    filtering: str = jax.config.jax_traceback_filtering  # type: ignore[attr-defined]
    if filtering != "off":
        held: BaseException | None = error
        while held is not None:
            held.__traceback__ = _without_ours(held.__traceback__)
            held = held.__cause__


def _without_ours(found: TracebackType | None) -> TracebackType | None:
    """A traceback in which of our frames there is the first alone."""
    kept: list[TracebackType] = []
    while found is not None:
        if not kept or not found.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(found)
        found = found.tb_next
    made: TracebackType | None = None
    for frame in reversed(kept):
        made = TracebackType(made, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return made


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A function that users call: its errors are as `show` makes them, and a keyword that it does not have is named
    with the nearest that it has."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if kwargs and isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None:
                names = list(inspect.signature(function).parameters)
                for name in (n for n in kwargs if n not in names):
                    raise TypeError(f"{function.__name__}() has no argument {name!r}{nearest(name, names)}") from None
            show(error)
            raise

    return call


def nearest(name: Any, names: Iterable[str]) -> str:
    """A question after the name that was meant, where one is near."""
    close = difflib.get_close_matches(str(name), list(names), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _remade(cls: type[Error], args: tuple[Any, ...]) -> Error:
    """An error that is worded already."""
    return cls.__new__(cls, *args)


class SourceError(Error):
    """An error with a place in the user's source: `file:line:col`, the line with a caret, and a cure."""

    def __init__(
        self, message: str, span: Span = NOWHERE, cure: str = "", also: Sequence[tuple[str, Span]] = ()
    ) -> None:
        self.message, self.span, self.cure, self.also = message, span, cure, tuple(also)
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"{self.span}: {self.message}" if self.span != NOWHERE else self.message]
        if excerpt := self.span.excerpt():
            lines.append(excerpt)
        for note, span in self.also:
            lines.append(f"  {span}: {note}")
            if excerpt := span.excerpt():
                lines.append(excerpt)
        if self.cure:
            lines.append(f"  {self.cure}")
        return "\n".join(lines)


class UnsupportedError(SourceError):
    """Python that autobatch does not compile, found while compiling."""


class TypeConflictError(SourceError):
    """Two places disagree on the type of one value: both branches of an `if`, two turns of a loop, two results."""


class BatchError(Error):
    """A call whose arguments are not a batch: sizes differ, one example was given, element types are unknown."""


class FileError(BatchError):
    """A file that is not what it should be, or is damaged: what is wrong in which part, and what to do."""


def of_empty_lists(what: str) -> BatchError:
    """Lists are read whose elements nobody has seen."""
    return BatchError(
        f"{what} are empty in all examples, so the type of their elements is unknown; annotate the parameter or the "
        "field (list[int]), or pack with ab.pack(examples, like=...)"
    )


class PlanError(Error):
    """A batch without a plan where one is needed, with a plan that its columns no longer fit, or too large to run."""


class TargetError(Error):
    """A machine to compile for that is not known, or for which nothing here compiles; a program of another machine that
    is called here."""


class DeviceError(Error):
    """A GPU that is not there, or that refuses something: what was tried, what its driver says, and what helps."""


@dataclass(frozen=True)
class Failure:
    """What went wrong in one example: `kind` is the name of Python's exception, `index` the example in the batch."""

    index: int
    kind: str
    message: str
    span: Span = NOWHERE

    @property
    def line(self) -> int:
        return self.span.line

    def __str__(self) -> str:
        where = f" at {self.span}" if self.span != NOWHERE else ""
        return f"example {self.index}{where}: {self.kind}: {self.message}"


DESCRIBED = 100
"""Failures of a batch that are described; the others are counted."""


class ExampleError(Error):
    """Some examples of a batch failed. `failures` describes the first hundred, `count` counts all of them. `note`: what
    is to be said of the others."""

    def __init__(self, failures: Sequence[Failure], count: int | None = None, note: str = "") -> None:
        self.failures = tuple(failures[:DESCRIBED])
        self.count = len(failures) if count is None else count
        shown = [str(f) for f in self.failures[:5]]
        if excerpt := self.failures[0].span.excerpt():
            shown.insert(1, excerpt)
        if self.count > 5:
            where = "see .failures" if self.count <= DESCRIBED else f"the first {DESCRIBED} are in .failures"
            shown.append(f"... and {self.count - 5} more ({where})")
        if note:
            shown.append(note)
        super().__init__(f"{self.count} of the batch's examples failed\n" + "\n".join(shown))


class StructureWarning(UserWarning):
    """A function does not compile, and runs as plain Python once for each example to find out what it does: that takes
    longer to plan. `ab.options(trace=False)` raises what the compiler says instead."""


class PerformanceWarning(UserWarning):
    """A function, or its derivative, runs by a back end that takes long for it, as the fast one has no code for a line
    of it: that line. Once for each program that is compiled."""


def warn(message: str, category: type[Warning]) -> None:
    """A warning that shows the line of the user's call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, level)


def warn_of_xla(what: str, refused: SourceError) -> None:
    """Machine code has refused what XLA runs step by step."""
    reason = str(refused).splitlines()[0]
    warn(f"{what} runs by xla, step by step, as machine code has none for it: {reason}", PerformanceWarning)
