"""Training with autobatch: value, gradient and update in one executable. `python -m ... train_autobatch WORKLOAD`."""

from __future__ import annotations

import sys

from benchmarks.competitors import packed, workloads
from examples.language.parser import loss

from . import workload
from .with_autobatch import example, parameters


def main() -> None:
    sentences, weights = workload.read(sys.argv[1])
    examples, sizes = [example(*s) for s in sentences], [workload.size(s) for s in sentences]
    packed.train(loss, lambda: parameters(weights), examples, sizes, workloads.learning_rate(sys.argv[1]))


if __name__ == "__main__":
    main()
