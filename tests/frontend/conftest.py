"""Every program of this folder is compiled once for a few examples: XLA with few optimisations takes half the time."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
