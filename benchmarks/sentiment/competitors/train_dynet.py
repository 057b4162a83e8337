"""Training with DyNet: its SGD, which updates the rows of a lookup parameter that were read, and no others.

`python -m ... train_dynet WORKLOAD batched|single`; Python 3.8.
"""

import sys

from benchmarks.competitors import dynet_start, workloads

from . import workload
from .with_dynet import Model


def main():
    file, form = sys.argv[1:]
    dy = dynet_start.started(form)
    trees, w, hidden = workload.read(file)
    trained = dynet_start.Trained(dy, lambda: Model(dy, w, hidden), workloads.learning_rate(file))
    trained.serve(trees, [workload.size(t) for t in trees])


if __name__ == "__main__":
    main()
