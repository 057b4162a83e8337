"""Everything in this folder runs with 64 bits, for sharp equality, and narrow windows, for many in each level; machine
code checks each address."""

import jax
import pytest

import autobatch as ab


@pytest.fixture(scope="module", autouse=True)
def sharp(checked_memory):
    with jax.enable_x64(True), ab.options(widths=(8, 4), verify=True):
        yield
