"""Structure is traced here where it does not compile."""

from collections.abc import Iterator

import pytest

import autobatch as ab


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    with ab.options(trace=True):
        yield
