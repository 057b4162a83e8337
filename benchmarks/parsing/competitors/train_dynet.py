"""Training with DyNet. `python -m ... train_dynet WORKLOAD batched|single`; Python 3.8."""

import sys

from benchmarks.competitors import dynet_start, workloads

from . import workload
from .with_dynet import Model


def main():
    file, form = sys.argv[1:]
    dy = dynet_start.started(form)
    sentences, w = workload.read(file)
    trained = dynet_start.Trained(dy, lambda: Model(dy, w), workloads.learning_rate(file))
    trained.serve(sentences, [workload.size(s) for s in sentences])


if __name__ == "__main__":
    main()
