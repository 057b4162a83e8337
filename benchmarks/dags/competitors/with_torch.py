"""The model in PyTorch. `python -m ... with_torch WORKLOAD level|eager`.

By level: nodes of one height form a batch, first its layers, then its gates; values of all nodes lie in one matrix in
that order, so each piece is contiguous. A batch's schedule is made when it runs first, before anything is timed. No
gradients: operations in place. Eager: one node at a time, each once.
"""

import os
import sys
from itertools import groupby

import torch

from benchmarks.competitors import worker

from . import workload

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
file, form = sys.argv[1:]
graphs, w, H = workload.read(file)
p = {k: torch.from_numpy(v) for k, v in w.items()}
layer = p["layer"].t().contiguous()
both = torch.cat([p["left"], p["right"]], 1).t().contiguous()


def schedule(batch):
    """Words; (kind, first row, last row, rows of the operands) of each piece; rows of the results; how many rows."""
    found = []  # (height, kind, graph, position)
    for g, graph in enumerate(batch):
        heights = []
        for position, node in enumerate(graph):
            heights.append(1 + max((heights[k] for k in workload.operands(node)), default=-1))
            found.append((heights[-1], ["input", "layer", "gate"].index(workload.kind_of(node)), g, position))
    found.sort()
    row = {(g, position): k for k, (_, _, g, position) in enumerate(found)}
    words, pieces, first = None, [], 0
    for (_, kind), piece in groupby(found, key=lambda item: item[:2]):
        members = [(g, batch[g][position]) for _, _, g, position in piece]
        if kind == 0:
            words = torch.tensor([node[1] for _, node in members])
        else:
            reads = [row[g, node[1 + which]] for which in range(kind) for g, node in members]
            pieces.append((kind, first, first + len(members), torch.tensor(reads)))
        first += len(members)
    return words, pieces, torch.tensor([row[g, len(graph) - 1] for g, graph in enumerate(batch)]), first


def by_level(plan):
    words, pieces, results, rows = plan
    values = torch.empty(rows, H)
    torch.index_select(p["emb"], 0, words, out=values[: len(words)])
    for kind, first, last, reads in pieces:
        read, mine = values.index_select(0, reads), values[first:last]
        if kind == 1:
            torch.addmm(p["layer_bias"], read, layer, out=mine).tanh_()
        else:
            a, b = read[: last - first], read[last - first :]
            gate = torch.addmm(p["gate_bias"], torch.cat([a, b], 1), both).sigmoid_()
            torch.lerp(b, a, gate, out=mine)
    return (values.index_select(0, results) @ p["result"]).sum().item()


def value(graph):
    values = []
    for node in graph:
        below = [values[k] for k in workload.operands(node)]
        if workload.kind_of(node) == "input":
            values.append(p["emb"][node[1]])
        elif workload.kind_of(node) == "layer":
            values.append(torch.addmv(p["layer_bias"], p["layer"], below[0]).tanh())
        else:
            a, b = below
            gate = (p["gate_bias"] + p["left"] @ a + p["right"] @ b).sigmoid()
            values.append(gate * a + (1 - gate) * b)
    return values[-1]


plans = {}


def run(chosen):
    with torch.no_grad():
        if form == "eager":
            return sum((value(graphs[k]) @ p["result"]).item() for k in chosen)
        if chosen not in plans:
            plans[chosen] = schedule([graphs[k] for k in chosen])
        return by_level(plans[chosen])


worker.serve([workload.size(g) for g in graphs], run, {"version": torch.__version__})
