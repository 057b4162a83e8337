"""The model with DyNet and its automatic batching. `python -m ... with_dynet WORKLOAD batched|single`; Python 3.8."""

import sys

from benchmarks.competitors import dynet_start, worker

from . import workload


class Model:
    """The weights as parameters, and what is computed with them."""

    def __init__(self, dy, weights, hidden):
        self.dy, self.H, self.p = dy, hidden, dynet_start.parameters(dy, weights)

    def gates(self, z, parts):
        """Inner nodes have a forget gate for each part, between the input gate and the output gate."""
        dy, H, n = self.dy, self.H, 3 + len(parts)
        i, o, u = (dy.pick_range(z, k * H, (k + 1) * H) for k in (0, n - 2, n - 1))
        terms = [dy.cmult(dy.logistic(i), dy.tanh(u))]
        for k, c in enumerate(parts, 1):
            terms.append(dy.cmult(dy.logistic(dy.pick_range(z, k * H, (k + 1) * H)), c))
        c = dy.esum(terms) if parts else terms[0]
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c

    def losses(self, tree):
        dy, p, states, losses = self.dy, self.p, {}, []
        for node in workload.nodes(tree):
            if workload.is_leaf(node):
                state = self.gates(dy.affine_transform([p["leaf_bias"], p["leaf"], p["emb"][node[1]]]), [])
            else:
                (hl, cl), (hr, cr) = (states[id(k)] for k in node[1:])
                state = self.gates(dy.affine_transform([p["bias"], p["left"], hl, p["right"], hr]), [cl, cr])
            states[id(node)] = state
            logits = dy.affine_transform([p["out_bias"], p["out"], state[0]])
            losses.append(dy.pickneglogsoftmax(logits, node[0]))
        return losses

    def loss(self, trees):
        """In a graph of its own."""
        self.dy.renew_cg()
        return self.dy.esum([x for tree in trees for x in self.losses(tree)])


def main():
    file, form = sys.argv[1:]
    dy = dynet_start.started(form)
    trees, w, hidden = workload.read(file)
    model = Model(dy, w, hidden)

    def run(chosen):
        return model.loss([trees[k] for k in chosen]).value()

    worker.serve([workload.size(t) for t in trees], run, {"version": dy.__version__})


if __name__ == "__main__":
    main()
