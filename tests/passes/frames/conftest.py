"""What is tested here are the loops that XLA compiles."""

from collections.abc import Iterator

import pytest

import autobatch as ab


@pytest.fixture(autouse=True)
def loops_by_xla() -> Iterator[None]:
    with ab.options(loops="xla"):
        yield
