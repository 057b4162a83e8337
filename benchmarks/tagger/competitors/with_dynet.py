"""The model with DyNet. `python -m ... with_dynet WORKLOAD batched|vanilla|single`; Python 3.8.

The LSTMs are DyNet's builders: `CompactVanillaLSTMBuilder`, whose step is three operations, batched automatically or
not; `vanilla` has `VanillaLSTMBuilder`, as the benchmark of DyNet's paper. Both order the gates i, f, o, g, and add one
to the bias of f.
"""

import sys

import numpy as np

from benchmarks.competitors import dynet_start, worker

from . import workload


class Model:
    """The weights as parameters, and what is computed with them."""

    def __init__(self, dy, weights, form):
        lstms = {name: {k: weights[name + "_" + k] for k in ("input", "state", "bias")} for name in workload.LSTMS}
        rest = {k: v for k, v in weights.items() if not k.startswith(workload.LSTMS)}
        self.dy, self.p = dy, dynet_start.parameters(dy, rest)
        self.builder = dy.VanillaLSTMBuilder if form == "vanilla" else dy.CompactVanillaLSTMBuilder
        self.lstms = {name: self.lstm(**w) for name, w in lstms.items()}

    def lstm(self, **weights):
        made = self.builder(1, weights["input"].shape[1], weights["state"].shape[1], self.p["collection"])
        parameters = made.get_parameters()[0]
        for k, name in enumerate(("input", "state", "bias")):
            i, f, g, o = np.split(weights[name], 4)
            parameters[k].set_value(np.concatenate([i, f - 1 if name == "bias" else f, o, g]))
        return made

    def states(self, name, xs):
        return self.lstms[name].initial_state().transduce(xs)

    def embedded(self, word):
        if not isinstance(word, list):
            return self.p["emb_words"][word]
        letters = [self.p["emb_letters"][k] for k in word]
        right, left = self.states("letters_right", letters), self.states("letters_left", letters[::-1])
        return self.dy.concatenate([right[-1], left[-1]])

    def losses(self, words, tags):
        dy, p = self.dy, self.p
        xs = [self.embedded(word) for word in words]
        right, left = self.states("right", xs), self.states("left", xs[::-1])[::-1]
        layers = [dy.tanh(p["hidden"] * dy.concatenate([h, left[k]])) for k, h in enumerate(right)]
        return [dy.pickneglogsoftmax(p["out"] * layer, tags[k]) for k, layer in enumerate(layers)]

    def loss(self, sentences):
        """In a graph of its own."""
        self.dy.renew_cg()
        return self.dy.esum([x for words, tags in sentences for x in self.losses(words, tags)])


def main():
    file, form = sys.argv[1:]
    dy = dynet_start.started("single" if form == "single" else "batched")
    sentences, w, _ = workload.read(file)
    model = Model(dy, w, form)

    def run(chosen):
        return model.loss([sentences[k] for k in chosen]).value()

    worker.serve([workload.size(s) for s in sentences], run, {"version": dy.__version__})


if __name__ == "__main__":
    main()
