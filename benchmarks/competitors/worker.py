"""The protocol of a competitor: a process that answers one line of JSON with one line of JSON.

    {"warm": 64}                    ->   {"loss": 29968.3}                   every batch of 64 once: all is compiled
    {"batch": 64, "seconds": 0.4}   ->   {"examples_per_second": 5180.2}     batches of neighbours, one by one

The rate is that of examples of mean size: parts per second over the mean number of parts, where a part is what an
example has many of (a node, a token). Python 3.8 and later.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


class Worker:
    """`run(indices)` returns the loss of some examples, and is done when it returns; `sizes` are their parts."""

    def __init__(self, sizes: Sequence[int], run: Callable[[range], float]):
        self.sizes, self.run = sizes, run
        self.position: dict[int, int] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "warm" in asked:
            return {"loss": sum(self.run(indices) for indices in self.batches(asked["warm"]))}
        return {"examples_per_second": self.rate(asked["batch"], asked["seconds"])}

    def batches(self, size: int) -> list[range]:
        return [range(at, at + size) for at in range(0, len(self.sizes) - size + 1, size)]

    def rate(self, size: int, seconds: float) -> float:
        """Goes on with the batch behind the last one that was measured, so that every batch has its turn."""
        batches, work = self.batches(size), 0
        begin = time.perf_counter()
        while True:
            at = self.position.get(size, 0)
            self.position[size] = at + 1
            indices = batches[at % len(batches)]
            self.run(indices)
            work += sum(self.sizes[indices.start : indices.stop])
            spent = time.perf_counter() - begin
            if spent >= seconds:
                return work / spent / (sum(self.sizes) / len(self.sizes))


def serve(sizes: Sequence[int], run: Callable[[range], float], info: dict[str, Any]) -> None:
    """Answers until the questions end. `info` goes first: names, versions, what was measured while starting."""
    worker = Worker(sizes, run)
    print(json.dumps(info), flush=True)
    for line in sys.stdin:
        gc.collect()
        gc.disable()  # a collection in the middle of a batch would hit whoever happens to run
        answer = worker.answer(json.loads(line))
        gc.enable()
        print(json.dumps(answer), flush=True)
