"""The model with DyNet and its automatic batching. `python -m ... with_dynet WORKLOAD batched|single`; Python 3.8."""

import sys

from benchmarks.competitors import dynet_start, worker

from . import workload

file, form = sys.argv[1:]
dy = dynet_start.started(form)
sentences, w, H = workload.read(file)
p = dynet_start.parameters(dy, w)


def loss(words, tags):
    h = c = dy.zeros((H,))
    losses = []
    for k, word in enumerate(words):
        z = dy.affine_transform([p["bias"], p["input"], p["emb"][word], p["state"], h])
        i, f, g, o = (dy.pick_range(z, n * H, (n + 1) * H) for n in range(4))
        c = dy.cmult(dy.logistic(f), c) + dy.cmult(dy.logistic(i), dy.tanh(g))
        h = dy.cmult(dy.logistic(o), dy.tanh(c))
        logits = dy.affine_transform([p["out_bias"], p["out"], h])
        losses.append(dy.pickneglogsoftmax(logits, tags[k]))
    return losses


def run(chosen):
    dy.renew_cg()
    return dy.esum([x for k in chosen for x in loss(*sentences[k])]).value()


worker.serve([workload.size(s) for s in sentences], run, {"version": dy.__version__})
