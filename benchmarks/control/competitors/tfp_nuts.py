"""The NUTS of TensorFlow Probability by `experimental.auto_batching`, for `benchmarks.control`: a process of its own.

It runs under the interpreter that `--tfp` names (Python 3.8 with TensorFlow 2.4, TensorFlow Probability 0.12 and NumPy
1.19, which still have this sampler), once for each line that it reads; it answers with the processor time of all draws
and their leapfrog steps. The arguments are those of the model: chains, dimensions, step size and draws. XLA does not
compile it: its stacks hold assertions.
"""

import json
import sys
import time

import numpy as np
import tensorflow as tf
from tensorflow_probability.python.experimental.mcmc import nuts_autobatching


def main(chains, dimensions, step, draws):
    mean = tf.linspace(-1.0, 1.0, dimensions)
    scale = tf.linspace(0.5, 2.0, dimensions)

    def log_density(q):
        return -0.5 * tf.reduce_sum(((q - mean) / scale) ** 2, axis=-1)

    kernel = nuts_autobatching.NoUTurnSampler(log_density, step, num_trajectories_per_step=draws, seed=1)
    first = mean + scale * tf.random.normal((chains, dimensions), seed=2)

    def run(q):
        return kernel.one_step(q, kernel.bootstrap_results(q))

    run = tf.function(run)
    for _ in sys.stdin:
        start = time.process_time()
        q, results = run(first)
        q.numpy()
        took = time.process_time() - start
        steps = int(np.sum(results.leapfrogs_taken.numpy()))
        print(json.dumps({"seconds": took, "steps": steps}), flush=True)


if __name__ == "__main__":
    chains, dimensions, step, draws = sys.argv[1:]
    main(int(chains), int(dimensions), float(step), int(draws))
