"""One line on stderr while something compiles for long: what, at which stage, since when.

    compiling similarity: XLA [00:07]

Shown after two seconds, on a terminal; `ab.options(progress=True)` shows it anywhere, False nowhere. It goes when the
compilation ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

DELAY = 2.0
"""Seconds before there is a line."""

STEP = 0.5
"""Seconds after which it is written anew."""


class _Line(threading.Thread):
    """The line of one compilation: a thread that waits for its end, and writes meanwhile."""

    def __init__(self, name: str) -> None:
        super().__init__(name="autobatch progress", daemon=True)
        self.words, self.stage, self._ended = name, "", threading.Event()

    def run(self) -> None:
        if self._ended.wait(DELAY):
            return
        with tqdm(desc=self.text, bar_format="{desc} [{elapsed}]", file=sys.stderr, leave=False) as shown:
            while not self._ended.wait(STEP):
                shown.set_description_str(self.text)

    @property
    def text(self) -> str:
        return f"compiling {self.words}: {self.stage}"

    def end(self) -> None:
        self._ended.set()
        self.join()


class _Now(threading.local):
    line: _Line | None = None


_now = _Now()


@contextmanager
def compiling(name: str, stage: str, wanted: str | bool) -> Iterator[None]:
    """Inside, something is compiled. `wanted`: the option `progress`. Within another compilation, a stage of that."""
    if _now.line is not None:
        before, _now.line.stage = _now.line.stage, stage
        try:
            yield
        finally:
            _now.line.stage = before
        return
    if wanted is False or (wanted == "auto" and not (sys.stderr and sys.stderr.isatty())):
        yield
        return
    line = _now.line = _Line(name)
    line.stage = stage
    line.start()
    try:
        yield
    finally:
        _now.line = None
        line.end()


def at(stage: str) -> None:
    """What this thread compiles is at a stage from now on."""
    if _now.line is not None:
        _now.line.stage = stage
