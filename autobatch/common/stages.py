"""What is compiled, at which stage, since when, and how long each stage has taken.

    compiling similarity: XLA [00:07]

This line is on stderr after two seconds, on a terminal; `ab.options(progress=True)` shows it anywhere, False nowhere.
It goes when the compilation ends. The seconds are kept in any case: `f.timings()`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
from tqdm import tqdm

DELAY = 2.0
"""Seconds before there is a line."""

STEP = 0.5
"""Seconds after which it is written anew."""

OTHER = "everything else"
"""What a compilation spends outside of its stages."""

OF_JAX = {
    "/jax/core/compile/jaxpr_trace_duration": "JAX: trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "JAX: lower to MLIR",
    "/jax/core/compile/backend_compile_duration": "XLA: compile",
}
"""Stages that JAX measures itself: its events (`jax.monitoring`)."""


@dataclass
class StageTime:
    """How often a stage ran, and for how many seconds in all, those of stages inside it left out."""

    seconds: float = 0.0
    count: int = 0


@dataclass
class Timings:
    """What compiling a function has taken, by stage, in the order in which these first ended.

    `stages`: the seconds of each, without those of stages inside it, and how often it ran. `str` shows a table.
    """

    name: str
    stages: dict[str, StageTime] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of all stages together."""
        return sum(s.seconds for s in self.stages.values())

    @property
    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        stages = {name: {"seconds": s.seconds, "count": s.count} for name, s in self.stages.items()}
        return {"function": self.name, "seconds": self.seconds, "stages": stages}

    def __str__(self) -> str:
        total = self.seconds
        lines = [f"compiling {self.name}: {total:.3f} s"]
        for name, stage in self.stages.items():
            part = stage.seconds / total if total else 0.0
            times = f"  {stage.count} times" if stage.count > 1 else ""
            lines.append(f"  {name:<32}{stage.seconds:9.4f} s {part:6.1%}{times}")
        return "\n".join(lines)

    def add(self, name: str, seconds: float) -> None:
        held = self.stages.setdefault(name, StageTime())
        held.seconds += seconds
        held.count += 1


class _Clock:
    """Adds what ends to the timings of a compilation: each moment belongs to the innermost stage."""

    def __init__(self, timings: Timings) -> None:
        self.timings = timings
        self._ended: list[tuple[float, float]] = []
        """When stages began that ended, and how long each was: those that no later one contains."""

    def end(self, name: str, begin: float, seconds: float) -> None:
        inside = 0.0
        while self._ended and self._ended[-1][0] >= begin:
            inside += self._ended.pop()[1]
        self._ended.append((begin, seconds))
        self.timings.add(name, max(seconds - inside, 0.0))


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
    clock: _Clock | None = None


_now = _Now()


@contextmanager
def compiling(name: str, first: str, wanted: str | bool, timings: Timings) -> Iterator[None]:
    """Inside, something is compiled, at the stage `first`. `wanted`: the option `progress`. Within another compilation,
    a stage of that."""
    if _now.clock is not None:
        with stage(first):
            yield
        return
    _listen()
    _now.clock = _Clock(timings)
    silent = wanted is False or (wanted == "auto" and not (sys.stderr and sys.stderr.isatty()))
    line = _now.line = None if silent else _Line(name)
    if line is not None:
        line.start()
    begin = time.perf_counter()
    try:
        with stage(first):
            yield
    finally:
        _now.clock.end(OTHER, begin, time.perf_counter() - begin)
        _now.clock = _now.line = None
        if line is not None:
            line.end()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Inside, what this thread compiles is at a stage."""
    line, clock = _now.line, _now.clock
    before = line.stage if line is not None else ""
    if line is not None:
        line.stage = name
    begin = time.perf_counter()
    try:
        yield
    finally:
        if clock is not None:
            clock.end(name, begin, time.perf_counter() - begin)
        if line is not None:
            line.stage = before


@cache
def _listen() -> None:
    """Stages of JAX are those of the compilation during which they end."""
    jax.monitoring.register_event_duration_secs_listener(_ended_in_jax)


def _ended_in_jax(event: str, duration_secs: float, **_: str | int) -> None:
    if _now.clock is not None and event in OF_JAX:
        _now.clock.end(OF_JAX[event], time.perf_counter() - duration_secs, duration_secs)
