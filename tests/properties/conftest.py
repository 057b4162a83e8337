"""Everything in this folder runs with 64 bits, for sharp equality, and narrow windows, for many in each level."""

import jax
import pytest

import autobatch as ab


@pytest.fixture(scope="module", autouse=True)
def sharp():
    with jax.enable_x64(True), ab.options(widths=(8, 4), verify=True):
        yield
