"""The model batched by hand in PyTorch. `python -m ... with_torch WORKLOAD level|views|once|eager`.

By level: nodes of one height form a batch, states of all nodes lie in one matrix in the order of their height, so a
level writes one contiguous piece. Views: the forward pass of `train_torch`, where nodes lie breadth first, so that a
level reads its operands where they are; once: the same, and the leaves of equal words are computed once. A batch's
schedule is made when it runs first, before anything is timed. There are no gradients: operations in place.
"""

import os
import sys

import torch

from benchmarks.competitors import worker

from . import train_torch, workload

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
file, form = sys.argv[1:]
trees, w, H = workload.read(file)
p = {k: torch.from_numpy(v) for k, v in w.items()}
both = torch.cat([p["left"], p["right"]], 1).t().contiguous()
leaf, out = p["leaf"].t().contiguous(), p["out"].t().contiguous()


def heights(tree):
    found = {}
    for node in workload.nodes(tree):
        found[id(node)] = 0 if workload.is_leaf(node) else 1 + max(found[id(k)] for k in node[1:])
    return found


def schedule(batch):
    """Words of the leaves; (first, last, rows of left parts and of right parts) of each level; labels."""
    ranked = []
    for tree in batch:
        height = heights(tree)
        ranked += [(height[id(n)], n) for n in workload.nodes(tree)]
    ranked.sort(key=lambda item: item[0])
    row = {id(n): k for k, (_, n) in enumerate(ranked)}
    words = torch.tensor([n[1] for h, n in ranked if h == 0])
    levels, first = [], len(words)
    while first < len(ranked):
        last = first
        while last < len(ranked) and ranked[last][0] == ranked[first][0]:
            last += 1
        parts = [[row[id(n[side])] for _, n in ranked[first:last]] for side in (1, 2)]
        levels.append((first, last, torch.tensor(parts[0] + parts[1])))
        first = last
    return words, levels, torch.tensor([n[0] for _, n in ranked])


def by_level(plan):
    words, levels, labels = plan
    h, c = torch.empty(len(labels), H), torch.empty(len(labels), H)
    n = len(words)
    z = torch.addmm(p["leaf_bias"], p["emb"].index_select(0, words), leaf)
    gate, u = z[:, : 2 * H].sigmoid_(), z[:, 2 * H :].tanh_()
    torch.mul(gate[:, :H], u, out=c[:n])
    torch.tanh(c[:n], out=h[:n]).mul_(gate[:, H:])
    for first, last, parts in levels:
        n = last - first
        states, cells = h.index_select(0, parts), c.index_select(0, parts)
        z = torch.addmm(p["bias"], torch.cat([states[:n], states[n:]], 1), both)
        gate, u = z[:, : 4 * H].sigmoid_(), z[:, 4 * H :].tanh_()
        mine = torch.mul(gate[:, :H], u, out=c[first:last])
        mine.addcmul_(gate[:, H : 2 * H], cells[:n]).addcmul_(gate[:, 2 * H : 3 * H], cells[n:])
        torch.tanh(mine, out=h[first:last]).mul_(gate[:, 3 * H :])
    logits = torch.addmm(p["out_bias"], h, out)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()


def eager(batch):
    total = 0.0
    for tree in batch:
        states = {}
        for node in workload.nodes(tree):
            if workload.is_leaf(node):
                i, o, u = torch.addmv(p["leaf_bias"], p["leaf"], p["emb"][node[1]]).split(H)
                c = i.sigmoid() * u.tanh()
            else:
                (hl, cl), (hr, cr) = (states[id(k)] for k in node[1:])
                i, fl, fr, o, u = (p["bias"] + p["left"] @ hl + p["right"] @ hr).split(H)
                c = i.sigmoid() * u.tanh() + fl.sigmoid() * cl + fr.sigmoid() * cr
            states[id(node)] = (o.sigmoid() * c.tanh(), c)
            logits = torch.addmv(p["out_bias"], p["out"], states[id(node)][0])
            total += (torch.logsumexp(logits, 0) - logits[node[0]]).item()
    return total


plans = {}
breadth_first = train_torch.Manual(w, H, rate=0.0, once=form == "once")
breadth_first.reset()
plan, planned = (schedule, by_level) if form == "level" else (breadth_first.plan, breadth_first.loss)


def run(chosen):
    batch = [trees[k] for k in chosen]
    with torch.no_grad():
        if form == "eager":
            return eager(batch)
        if chosen not in plans:
            plans[chosen] = plan(batch)
        return planned(plans[chosen])


worker.serve([workload.size(t) for t in trees], run, {"version": torch.__version__})
