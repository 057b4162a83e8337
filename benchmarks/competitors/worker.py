"""The protocol of a competitor: a process that answers one line of JSON with one line of JSON.

    {"warm": 64}                    ->   {"loss": 29968.3}                   every batch of 64 once: all is compiled
    {"batch": 64, "seconds": 0.4}   ->   {"rate": 5180.2}                    batches of neighbours, one by one
    {"batch": 64, "seconds": 0.4, "of": "forward"}  ->  {"rate": 9210.0}     something else that it measures beside
    {"details": 64}                 ->   {...}                               what it knows about batches of 64

The rate is that of examples of mean size: parts per second over the mean number of parts, where a part is what an
example has many of (a node, a token). One that trains begins anew when it is warmed: the answer has the loss of the
first weights, and `loss_after` one epoch of updates. Python 3.8 and later.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


class Worker:
    """`run(indices)` returns the loss of some examples, and is done when it returns; `sizes` are their parts.

    `beside[name](size, seconds)` is the rate of something else, None where that is not measured, and `details(size)`
    what is known about a batch size.
    """

    def __init__(self, sizes: Sequence[int], run: Callable[[range], float]):
        self.sizes, self.run = sizes, run
        self.beside: dict[str, Callable[[int, float], float | None]] = {}
        self.details: Callable[[int], dict[str, Any]] = lambda size: {}
        self.position: dict[Any, int] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "warm" in asked:
            return self.warm(asked["warm"])
        if "details" in asked:
            return self.details(asked["details"])
        rate = self.beside[asked["of"]] if "of" in asked else self.rate
        return {"rate": rate(asked["batch"], asked["seconds"])}

    def warm(self, size: int) -> dict[str, Any]:
        return {"loss": self.total(self.run, size)}

    def total(self, run: Callable[[range], float], size: int) -> float:
        return sum(run(indices) for indices in self.batches(size))

    def batches(self, size: int) -> list[range]:
        return [range(at, at + size) for at in range(0, len(self.sizes) - size + 1, size)]

    def rate(self, size: int, seconds: float) -> float:
        return self.rate_of(self.run, size, seconds)

    def rate_of(self, run: Callable[[range], float], size: int, seconds: float) -> float:
        """Goes on with the batch behind the last one that was measured, so that every batch has its turn."""
        batches, work = self.batches(size), 0
        begin = time.perf_counter()
        while True:
            at = self.position.get((run, size), 0)
            self.position[run, size] = at + 1
            indices = batches[at % len(batches)]
            run(indices)
            work += sum(self.sizes[indices.start : indices.stop])
            spent = time.perf_counter() - begin
            if spent >= seconds:
                return work / spent / (sum(self.sizes) / len(self.sizes))

    def serve(self, info: dict[str, Any]) -> None:
        """Answers until the questions end. `info` goes first: names, versions, what was measured while starting."""
        print(json.dumps(info), flush=True)
        for line in sys.stdin:
            gc.collect()
            gc.disable()  # a collection in the middle of a batch would hit whoever happens to run
            answer = self.answer(json.loads(line))
            gc.enable()
            print(json.dumps(answer), flush=True)


def serve(sizes: Sequence[int], run: Callable[[range], float], info: dict[str, Any]) -> None:
    """Answers for one that only computes losses."""
    Worker(sizes, run).serve(info)


@dataclass
class Training:
    """A model that is trained: `reset` gives it the first weights, `step` updates them and returns the loss before."""

    reset: Callable[[], None]
    loss: Callable[[range], float]
    step: Callable[[range], float]


class TrainingWorker(Worker):
    """What is measured is the step: forward, backward, update."""

    def __init__(self, sizes: Sequence[int], training: Training):
        super().__init__(sizes, self.checked_step)
        self.training = training

    def checked_step(self, chosen: range) -> float:
        """Hundreds of steps follow one another while it is measured; if they diverged, the rates would be of NaN."""
        loss = self.training.step(chosen)
        if not math.isfinite(loss):
            raise FloatingPointError("training diverged: the learning rate is too large")
        return loss

    def warm(self, size: int) -> dict[str, Any]:
        self.training.reset()
        before = self.total(self.training.loss, size)
        self.total(self.run, size)
        return {"loss": before, "loss_after": self.total(self.training.loss, size)}
