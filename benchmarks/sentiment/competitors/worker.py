"""The protocol of a competitor: a process that answers one line of JSON with one line of JSON.

    {"loss": true}                  ->   {"loss": 29968.3}                 over all trees, in batches of 64
    {"warm": 64}                    ->   {"batches": 8}                    every batch of 64 once: all is compiled
    {"batch": 64, "seconds": 0.4}   ->   {"trees_per_second": 5180.2}      batches of consecutive trees, one by one

The rate is that of trees of mean size: nodes per second over the mean number of nodes. Python 3.8 and later.
"""

import gc
import json
import os
import sys
import time

import workload


def serve(trees, run, info):
    """`run(indices)` returns the loss of some trees, and is done when it returns."""
    core = os.environ.get("BENCHMARK_CORE")
    if core:
        os.sched_setaffinity(0, {int(core)})
    sizes = [workload.size(t) for t in trees]
    mean = sum(sizes) / len(sizes)
    position = {}
    print(json.dumps(info), flush=True)

    def starts(batch):
        return range(0, len(trees) - batch + 1, batch)

    def warm(batch):
        for at in starts(batch):
            run(range(at, at + batch))
        return len(starts(batch))

    def rate(batch, seconds):
        work, begin = 0, time.perf_counter()
        while True:
            at = starts(batch)[position.get(batch, 0) % len(starts(batch))]
            position[batch] = position.get(batch, 0) + 1
            run(range(at, at + batch))
            work += sum(sizes[at : at + batch])
            spent = time.perf_counter() - begin
            if spent >= seconds:
                return work / spent / mean

    for line in sys.stdin:
        asked = json.loads(line)
        gc.collect()
        gc.disable()  # a collection in the middle of a batch would hit whoever happens to run
        if "loss" in asked:
            answer = {"loss": sum(run(range(k, min(k + 64, len(trees)))) for k in range(0, len(trees), 64))}
        elif "warm" in asked:
            answer = {"batches": warm(asked["warm"])}
        else:
            answer = {"trees_per_second": rate(asked["batch"], asked["seconds"])}
        gc.enable()
        print(json.dumps(answer), flush=True)
