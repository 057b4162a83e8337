"""The model with DyNet and its automatic batching. `python -m ... with_dynet WORKLOAD batched|single`; Python 3.8."""

import sys

from benchmarks.competitors import dynet_start, worker

from . import workload

file, form = sys.argv[1:]
dy = dynet_start.started(form)
graphs, w, H = workload.read(file)
p = dynet_start.parameters(dy, w)


def result(graph):
    """Each node once: operands stand before what reads them."""
    values = []
    for node in graph:
        below = [values[k] for k in workload.operands(node)]
        if workload.kind_of(node) == "input":
            values.append(p["emb"][node[1]])
        elif workload.kind_of(node) == "layer":
            values.append(dy.tanh(dy.affine_transform([p["layer_bias"], p["layer"], below[0]])))
        else:
            a, b = below
            gate = dy.logistic(dy.affine_transform([p["gate_bias"], p["left"], a, p["right"], b]))
            values.append(b + dy.cmult(gate, a - b))
    return dy.dot_product(values[-1], p["result"])


def run(chosen):
    dy.renew_cg()
    return dy.esum([result(graphs[k]) for k in chosen]).value()


worker.serve([workload.size(g) for g in graphs], run, {"version": dy.__version__})
