"""Memory that computations free is kept for those that follow: counted in page faults of a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, statistics, sys
import autobatch as ab
if sys.argv[1] == "keep" and not ab.keep_memory():
    print("none")
    sys.exit()
import jax, jax.numpy as jnp
def f(x):
    for k in range(3):
        x = jnp.cumsum(x + k, axis=0)[::-1] * 0.5
    return x.sum()
f, x = jax.jit(f), jnp.ones((10_000, 300))
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    f(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(12):
    faults()
# Where two of XLA's threads free at once, an arena may grow late and a single call take pages anew: not the usual one.
print(int(statistics.median([faults() for _ in range(9)])))
"""


def faults(how):
    made = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return made.stdout.split()[-1]


@pytest.mark.xla
@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_pages_are_not_taken_anew_in_each_call():
    if (kept := faults("keep")) == "none":
        pytest.skip("this C library has no such settings")
    assert int(kept) < int(faults("give back")) / 4
