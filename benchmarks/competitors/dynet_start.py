"""DyNet, which reads its options from the command line when it is imported. Python 3.8."""

import sys

from . import worker


def started(form):
    """The module `dynet`: `batched` by its automatic batching, or `single` operations."""
    given = sys.argv
    sys.argv = [given[0], "--dynet-mem", "2048", "--dynet-seed", "1"]
    sys.argv += ["--dynet-autobatch", "1"] if form == "batched" else []
    import dynet

    sys.argv = given
    return dynet


def parameters(dy, weights):
    """The weights as parameters of one collection; those called `emb...` are tables to look up.

    The collection is the last entry, because its memory is gone with it, also for parameters that are still held.
    """
    model = dy.ParameterCollection()
    made = {
        k: model.lookup_parameters_from_numpy(v) if k.startswith("emb") else model.parameters_from_numpy(v)
        for k, v in weights.items()
    }
    return {**made, "collection": model}


class Trained:
    """A model with its trainer, DyNet's gradient descent, which updates the rows of a table that were read and no
    others. `make` makes the model, whose `loss(examples)` is an expression in a graph of its own, and `p["collection"]`
    its parameters."""

    def __init__(self, dy, make, rate):
        self.dy, self.make, self.rate = dy, make, rate

    def reset(self):
        self.model = self.make()
        self.trainer = self.dy.SimpleSGDTrainer(self.model.p["collection"], self.rate)
        self.trainer.set_clip_threshold(-1)  # it clips gradients unless it is told not to
        self.trainer.set_sparse_updates(True)

    def loss(self, examples):
        return self.model.loss(examples).value()

    def step(self, examples):
        loss = self.model.loss(examples)
        value = loss.value()
        loss.backward()
        self.trainer.update()
        return value

    def serve(self, examples, sizes):
        def batch(chosen):
            return [examples[k] for k in chosen]

        training = worker.Training(self.reset, lambda k: self.loss(batch(k)), lambda k: self.step(batch(k)))
        worker.TrainingWorker(sizes, training).serve({"version": self.dy.__version__})
