"""What failed examples failed with, in Python's words: machine code and XLA say at which line an example has failed and
with which exception, but not with which numbers. The plain function, run for such an example, does.

    KeyError: <...>        ->        KeyError: 7
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from autobatch.errors import ExampleError, Failure
from autobatch.passes.control.indices import UNKNOWN

DESCRIBED, SECONDS = 5, 1.0
"""How many examples of an error are run at most, and for how long in all: as many as its text shows."""


def in_words(run: Callable[[], Any], plainly: Callable[[int], Any]) -> Any:
    """`run()`; an ExampleError of it has Python's words where an example, run `plainly`, fails alike soon enough."""
    try:
        return run()
    except ExampleError as error:
        if not any(UNKNOWN in f.message for f in error.failures):
            raise
        told, until = list(error.failures), time.monotonic() + SECONDS
        for k, failure in enumerate(told[:DESCRIBED]):
            if UNKNOWN in failure.message:
                told[k] = _told(plainly, failure, until)
        raise ExampleError(told, error.count) from error.__cause__


def _told(plainly: Callable[[int], Any], failure: Failure, until: float) -> Failure:
    """A failure with the words of the exception that plain Python raises, where it is this one."""
    form = ".*".join(map(re.escape, failure.message.split(UNKNOWN)))
    try:
        with _until(until), contextlib.redirect_stdout(io.StringIO()):
            plainly(failure.index)
    except Exception as raised:
        if type(raised).__name__ == failure.kind and re.fullmatch(form, str(raised), re.DOTALL):
            return replace(failure, message=str(raised))
    except _TooLate:
        pass
    return failure


class _TooLate(BaseException):
    """Python would take too long. No `except Exception` of the function's own stops it."""


@contextmanager
def _until(moment: float) -> Iterator[None]:
    """Inside, `_TooLate` is raised behind some moment. Nothing runs where a debugger has its own way to follow it."""

    def follow(frame: FrameType, event: str, held: Any) -> Any:
        if time.monotonic() > moment:
            raise _TooLate
        return follow

    if sys.gettrace() is not None:
        raise _TooLate
    sys.settrace(follow)
    try:
        yield
    finally:
        sys.settrace(None)
