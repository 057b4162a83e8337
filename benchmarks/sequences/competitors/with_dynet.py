"""The model with DyNet and its automatic batching. `python -m ... with_dynet WORKLOAD batched|single`; Python 3.8.

DyNet's own operations of an LSTM order the gates i, f, o, g, and add one to the bias of f.
"""

import sys

import numpy as np

from benchmarks.competitors import dynet_start, worker

from . import workload

file, form = sys.argv[1:]
dy = dynet_start.started(form)
sentences, w, H = workload.read(file)
for name in ("input", "state", "bias"):
    i, f, g, o = np.split(w[name], 4)
    w[name] = np.concatenate([i, f - 1 if name == "bias" else f, o, g])
p = dynet_start.parameters(dy, w)


def loss(words, tags):
    h = c = dy.zeros((H,))
    losses = []
    for k, word in enumerate(words):
        gates = dy.vanilla_lstm_gates(p["emb"][word], h, p["input"], p["state"], p["bias"])
        c = dy.vanilla_lstm_c(c, gates)
        h = dy.vanilla_lstm_h(c, gates)
        logits = dy.affine_transform([p["out_bias"], p["out"], h])
        losses.append(dy.pickneglogsoftmax(logits, tags[k]))
    return losses


def run(chosen):
    dy.renew_cg()
    return dy.esum([x for k in chosen for x in loss(*sentences[k])]).value()


worker.serve([workload.size(s) for s in sentences], run, {"version": dy.__version__})
