"""Everything in this folder runs with 64 bits and narrow windows, so that equality is sharp and levels have many windows."""

import jax
import pytest

import autobatch as ab


@pytest.fixture(scope="module", autouse=True)
def sharp():
    with jax.enable_x64(True), ab.options(widths=(8, 4), verify=True, compilation_cache=False):
        yield
