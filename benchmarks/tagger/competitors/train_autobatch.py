"""Training with autobatch: one executable for values, gradients and update. `python -m ... train_autobatch WORKLOAD`.

Cutting the batch from the data set, binding and transfer are timed.
"""

from __future__ import annotations

import sys

from benchmarks.competitors import packed, workloads
from examples.language.tagger import loss

from . import workload
from .with_autobatch import parameters, sentence


def main() -> None:
    sentences, weights, _ = workload.read(sys.argv[1])
    examples, sizes = [sentence(*s) for s in sentences], [workload.size(s) for s in sentences]
    packed.train(loss, lambda: parameters(weights), examples, sizes, workloads.learning_rate(sys.argv[1]))


if __name__ == "__main__":
    main()
