"""DyNet, which reads its options from the command line when it is imported. Python 3.8."""

import sys


def started(form):
    """The module `dynet`: `batched` by its automatic batching, or `single` operations."""
    given = sys.argv
    sys.argv = [given[0], "--dynet-mem", "2048", "--dynet-seed", "1"]
    sys.argv += ["--dynet-autobatch", "1"] if form == "batched" else []
    import dynet

    sys.argv = given
    return dynet


def parameters(dy, weights):
    """The weights as parameters of one collection; `emb` is a table to look up.

    The collection is the last entry, because its memory is gone with it, also for parameters that are still held.
    """
    model = dy.ParameterCollection()
    made = {
        k: model.lookup_parameters_from_numpy(v) if k == "emb" else model.parameters_from_numpy(v)
        for k, v in weights.items()
    }
    return {**made, "collection": model}
