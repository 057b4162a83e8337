"""Everything in this folder runs with 64 bits, for sharp equality, and narrow windows, for many in each level.

XLA compiles with few optimisations, in half the time; `make test-long` runs the same tests with all of them.
"""

import os

import jax
import pytest

import autobatch as ab


@pytest.fixture(scope="module", autouse=True)
def sharp():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", os.environ.get("HYPOTHESIS_PROFILE") != "long")
    with jax.enable_x64(True), ab.options(widths=(8, 4), verify=True):
        yield
    jax.config.update("jax_disable_most_optimizations", before)
