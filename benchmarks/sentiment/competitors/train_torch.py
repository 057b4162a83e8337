"""Training batched by hand in PyTorch. `python -m ... train_torch WORKLOAD manual|once|level`.

A batch's schedule (`forest.py`) is made when it runs first, before anything is timed. `level` leaves the derivative to
autograd. `manual` has it by hand: everything in place, one product for the gradient of each weight, which is added to
the weight as it is computed, and rows of embeddings updated where they lie. `once` is `manual` that computes the leaves
of equal words once, as autobatch does.
"""

import bisect
import os
import sys
from functools import partial
from itertools import pairwise

import torch

from benchmarks.competitors import worker, workloads

from . import forest, workload

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input


def matrices(w):
    """Weights as (inputs, outputs); those of both children in one."""
    p = {k: torch.from_numpy(v.copy()) for k, v in w.items()}
    p["both"] = torch.cat([p.pop("left"), p.pop("right")], 1).t().contiguous()
    return {**p, "leaf": p["leaf"].t().contiguous(), "out": p["out"].t().contiguous()}


class Manual:
    """The derivative by hand. Rows are those of the forest; gates of all inner nodes lie in one matrix.

    `once`: leaves are computed for distinct words, handed to all nodes that share them, and their cotangents summed.
    """

    def __init__(self, w, hidden, rate, once=False):
        self.w, self.H, self.rate, self.once, self.plans = w, hidden, rate, once, {}

    def reset(self):
        self.p = matrices(self.w)

    def plan(self, trees):
        f = forest.breadth_first(trees)
        of_label = torch.tensor(f.labels) + torch.arange(len(f.labels)) * workload.CLASSES
        words, shared = torch.tensor(f.words), None
        if self.once:
            words, shared = words.unique(return_inverse=True)
        return f.trees, f.levels, torch.tensor(f.inner), torch.tensor(f.leaves), words, shared, of_label

    def handed_out(self, rows, shared):
        return rows if shared is None else rows.index_select(0, shared)

    def summed(self, rows, shared, count):
        return rows if shared is None else rows.new_zeros(count, self.H).index_add_(0, shared, rows)

    def forward(self, plan):
        p, H = self.p, self.H
        trees, levels, inner, leaves, words, shared, of_label = plan
        h, c = torch.empty(len(of_label), H), torch.empty(len(of_label), H)
        x = p["emb"].index_select(0, words)
        leaf = torch.addmm(p["leaf_bias"], x, p["leaf"])
        leaf[:, : 2 * H].sigmoid_()
        leaf[:, 2 * H :].tanh_()
        cells = leaf[:, :H] * leaf[:, 2 * H :]
        leaf_tanh = cells.tanh()
        c.index_copy_(0, leaves, self.handed_out(cells, shared))
        h.index_copy_(0, leaves, self.handed_out(leaf_tanh * leaf[:, H : 2 * H], shared))
        gates, tanh = torch.empty(len(inner), 5 * H), torch.empty(len(inner), H)
        for first, last in reversed(levels):
            z, below = gates[first:last], slice(trees + 2 * first, trees + 2 * last)
            torch.addmm(p["bias"], h[below].view(-1, 2 * H), p["both"], out=z)
            z[:, : 4 * H].sigmoid_()
            z[:, 4 * H :].tanh_()
            cl, cr = c[below].view(-1, 2, H).unbind(1)
            cells = z[:, :H] * z[:, 4 * H :]
            cells.addcmul_(z[:, H : 2 * H], cl).addcmul_(z[:, 2 * H : 3 * H], cr)
            torch.tanh(cells, out=tanh[first:last])
            rows = inner[first:last]
            c.index_copy_(0, rows, cells)
            h.index_copy_(0, rows, tanh[first:last] * z[:, 3 * H : 4 * H])
        logs = torch.addmm(p["out_bias"], h, p["out"]).log_softmax(1)
        loss = -logs.view(-1).index_select(0, of_label).sum().item()
        return loss, (h, c, x, leaf, leaf_tanh, gates, tanh, logs)

    def loss(self, plan):
        return self.forward(plan)[0]

    def step(self, plan):
        p, H, rate = self.p, self.H, self.rate
        trees, levels, inner, leaves, words, shared, of_label = plan
        loss, (h, c, x, leaf, leaf_tanh, gates, tanh, logs) = self.forward(plan)
        dz = logs.exp_()
        dz.view(-1).index_add_(0, of_label, torch.full((len(of_label),), -1.0))
        dh, dc = dz @ p["out"].t(), torch.empty_like(c)
        dc[:trees] = 0
        p["out"].addmm_(h.t(), dz, alpha=-rate)
        p["out_bias"].sub_(dz.sum(0), alpha=rate)
        dgates, both = torch.empty_like(gates), p["both"].t()
        for first, last in levels:
            rows, z, dz, t = inner[first:last], gates[first:last], dgates[first:last], tanh[first:last]
            below = slice(trees + 2 * first, trees + 2 * last)
            d = self.cell_and_output(dh.index_select(0, rows), t, z[:, 3 * H : 4 * H], dz[:, 3 * H : 4 * H])
            d.add_(dc.index_select(0, rows))
            torch.mul(d, z[:, 4 * H :], out=dz[:, :H])
            torch.mul(d, z[:, :H], out=dz[:, 4 * H :])
            forget, cells = z[:, H : 3 * H].unflatten(1, (2, H)), c[below].view(-1, 2, H)
            torch.mul(d[:, None], cells, out=dz[:, H : 3 * H].unflatten(1, (2, H)))
            torch.mul(d[:, None], forget, out=dc[below].view(-1, 2, H))
            self.through_gates(dz, z, 4 * H)
            dh[below].view(-1, 2 * H).addmm_(dz, both)
        p["both"].addmm_(h[trees:].view(-1, 2 * H).t(), dgates, alpha=-rate)
        p["bias"].sub_(dgates.sum(0), alpha=rate)
        dh, dc = (self.summed(d.index_select(0, leaves), shared, len(words)) for d in (dh, dc))
        self.update_leaves(dh, dc, x, leaf, leaf_tanh, words)
        return loss

    def update_leaves(self, dh, dc, x, gates, tanh, words):
        p, H, rate = self.p, self.H, self.rate
        dz = torch.empty_like(gates)
        d = self.cell_and_output(dh, tanh, gates[:, H : 2 * H], dz[:, H : 2 * H]).add_(dc)
        torch.mul(d, gates[:, 2 * H :], out=dz[:, :H])
        torch.mul(d, gates[:, :H], out=dz[:, 2 * H :])
        self.through_gates(dz, gates, 2 * H)
        p["emb"].index_add_(0, words, dz @ p["leaf"].t(), alpha=-rate)
        p["leaf"].addmm_(x.t(), dz, alpha=-rate)
        p["leaf_bias"].sub_(dz.sum(0), alpha=rate)

    @staticmethod
    def cell_and_output(dh, tanh, output, doutput):
        """The cotangent of the cell by way of the state; that of the output gate is written."""
        torch.mul(dh, tanh, out=doutput)
        d = dh.mul_(output)
        return tanh_backward(d, tanh, grad_input=d)

    @staticmethod
    def through_gates(dz, gates, sigmoids):
        sigmoid_backward(dz[:, :sigmoids], gates[:, :sigmoids], grad_input=dz[:, :sigmoids])
        tanh_backward(dz[:, sigmoids:], gates[:, sigmoids:], grad_input=dz[:, sigmoids:])


class Level:
    """The derivative by autograd. Level by level from below: the states of a level are those of its leaves and of its
    inner nodes, put in the order of the forest by one gather each, which autograd turns into one sum."""

    def __init__(self, w, hidden, rate):
        self.w, self.H, self.rate, self.plans = w, hidden, rate, {}

    def reset(self):
        self.p = {k: v if k == "emb" else v.requires_grad_() for k, v in matrices(self.w).items()}

    def plan(self, trees):
        """For each level, from the deepest: (first leaf, last leaf, rows of the level in the order of the forest)."""
        f = forest.breadth_first(trees)
        bounds = [0] + [f.trees + 2 * first for first, _ in f.levels] + [len(f.labels)]
        levels, labels, at = [], [], len(f.leaves)
        for begin, end in reversed(list(pairwise(bounds))):
            first = bisect.bisect_left(f.leaves, begin)
            held = f.leaves[first:at] + [row for row in f.inner if begin <= row < end]
            place = {row: k for k, row in enumerate(held)}
            levels.append((first, at, torch.tensor([place[row] for row in range(begin, end)])))
            labels += [f.labels[row] for row in held]
            at = first
        return levels, torch.tensor(f.words), torch.tensor(labels)

    def forward(self, plan, x):
        p, H = self.p, self.H
        levels, _, labels = plan
        z = torch.addmm(p["leaf_bias"], x, p["leaf"])
        i, o = z[:, : 2 * H].sigmoid().split(H, 1)
        leaf_c = i * z[:, 2 * H :].tanh()
        leaf_h = o * leaf_c.tanh()
        h = c = order = None
        states = []
        for first, last, own in levels:
            parts_h, parts_c = [leaf_h[first:last]], [leaf_c[first:last]]
            if order is not None:
                below = h.index_select(0, order).view(-1, 2 * H)
                cl, cr = c.index_select(0, order).view(-1, 2, H).unbind(1)
                z = torch.addmm(p["bias"], below, p["both"])
                i, fl, fr, o = z[:, : 4 * H].sigmoid().split(H, 1)
                cells = torch.addcmul(torch.addcmul(i * z[:, 4 * H :].tanh(), fl, cl), fr, cr)
                parts_h, parts_c = [*parts_h, o * cells.tanh()], [*parts_c, cells]
            h, c, order = torch.cat(parts_h), torch.cat(parts_c), own
            states.append(h)
        logits = torch.addmm(p["out_bias"], torch.cat(states), p["out"])
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")

    def loss(self, plan):
        with torch.no_grad():
            return self.forward(plan, self.p["emb"].index_select(0, plan[1])).item()

    def step(self, plan):
        p = self.p
        x = p["emb"].index_select(0, plan[1]).requires_grad_()
        loss = self.forward(plan, x)
        moved = [v for k, v in p.items() if k != "emb"]
        *gradients, dx = torch.autograd.grad(loss, [*moved, x])
        with torch.no_grad():
            torch._foreach_add_(moved, gradients, alpha=-self.rate)
            p["emb"].index_add_(0, plan[1], dx, alpha=-self.rate)
        return loss.item()


def main():
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    file, form = sys.argv[1:]
    trees, w, hidden = workload.read(file)
    make = {"manual": Manual, "once": partial(Manual, once=True), "level": Level}[form]
    model = make(w, hidden, workloads.learning_rate(file))

    def planned(chosen):
        if chosen not in model.plans:
            model.plans[chosen] = model.plan([trees[k] for k in chosen])
        return model.plans[chosen]

    training = worker.Training(
        model.reset, lambda chosen: model.loss(planned(chosen)), lambda chosen: model.step(planned(chosen))
    )
    worker.TrainingWorker([workload.size(t) for t in trees], training).serve({"version": torch.__version__})


if __name__ == "__main__":
    main()
