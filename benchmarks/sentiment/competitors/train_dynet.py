"""Training with DyNet: its SGD, which updates the rows of a lookup parameter that were read, and no others.

`python -m ... train_dynet WORKLOAD batched|single`; Python 3.8.
"""

import sys

from benchmarks.competitors import dynet_start, worker, workloads

from . import workload
from .with_dynet import Model


class Trained:
    """A model with its trainer; `reset` makes both anew."""

    def __init__(self, dy, weights, hidden, rate):
        self.dy, self.weights, self.hidden, self.rate = dy, weights, hidden, rate

    def reset(self):
        self.model = Model(self.dy, self.weights, self.hidden)
        self.trainer = self.dy.SimpleSGDTrainer(self.model.p["collection"], self.rate)
        self.trainer.set_clip_threshold(-1)  # it clips gradients unless it is told not to
        self.trainer.set_sparse_updates(True)

    def loss(self, trees):
        return self.model.loss(trees).value()

    def step(self, trees):
        loss = self.model.loss(trees)
        value = loss.value()
        loss.backward()
        self.trainer.update()
        return value


def main():
    file, form = sys.argv[1:]
    dy = dynet_start.started(form)
    trees, w, hidden = workload.read(file)
    trained = Trained(dy, w, hidden, workloads.learning_rate(file))

    def batch(chosen):
        return [trees[k] for k in chosen]

    training = worker.Training(trained.reset, lambda k: trained.loss(batch(k)), lambda k: trained.step(batch(k)))
    worker.TrainingWorker([workload.size(t) for t in trees], training).serve({"version": dy.__version__})


if __name__ == "__main__":
    main()
