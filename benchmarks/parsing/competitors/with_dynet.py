"""The model with DyNet. `python -m ... with_dynet WORKLOAD batched|single`; Python 3.8.

Where scores decide, each is asked for before the next operation is known, so there is nothing to batch.
"""

import sys

from benchmarks.competitors import dynet_start, worker

from . import workload


class Model:
    """The weights as parameters, and what is computed with them."""

    def __init__(self, dy, weights):
        self.dy, self.p = dy, dynet_start.parameters(dy, weights)

    def composed(self, left, right):
        p = self.p
        return self.dy.tanh(self.dy.affine_transform([p["bias"], p["left"], left, p["right"], right]))

    def scores(self, stack, word):
        p, dy = self.p, self.dy
        products = [p["below"] * stack[-2], p["top"] * stack[-1], p["next"] * p["emb"][word]]
        return p["action"] * dy.tanh(dy.esum(products))

    def parsed(self, words):
        """The last phrase, and the places of reductions."""
        self.dy.renew_cg()
        stack, read, places = [self.p["empty"]], 0, 0.0
        while read < len(words) or len(stack) > 2:
            reduces = read == len(words)
            if read < len(words) and len(stack) > 2:
                shift, reduce = self.scores(stack, words[read]).value()
                reduces = reduce > shift
            if reduces:
                right, left = stack.pop(), stack.pop()
                stack.append(self.composed(left, right))
                places += 0.01 * read
            else:
                stack.append(self.p["emb"][words[read]])
                read += 1
        return float(stack[-1].npvalue().sum()) + places

    def losses(self, words, actions):
        stack, read, losses = [self.p["empty"]], 0, []
        for action in actions:
            if len(stack) > 2 and read < len(words):
                losses.append(self.dy.pickneglogsoftmax(self.scores(stack, words[read]), action))
            if action == workload.REDUCE:
                right, left = stack.pop(), stack.pop()
                stack.append(self.composed(left, right))
            else:
                stack.append(self.p["emb"][words[read]])
                read += 1
        return losses

    def loss(self, sentences):
        """In a graph of its own."""
        self.dy.renew_cg()
        return self.dy.esum([x for words, actions in sentences for x in self.losses(words, actions)])


def main():
    file, form = sys.argv[1:]
    dy = dynet_start.started(form)
    sentences, w = workload.read(file)
    model = Model(dy, w)

    def run(chosen):
        return sum(model.parsed(sentences[k][0]) for k in chosen)

    worker.serve([workload.size(s) for s in sentences], run, {"version": dy.__version__})


if __name__ == "__main__":
    main()
