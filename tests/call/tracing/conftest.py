"""Structure is traced here where it does not compile."""

import warnings
from collections.abc import Iterator

import pytest

import autobatch as ab


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    with ab.options(trace=True):
        yield


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the warning that names the line, for files that trace throughout."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ab.StructureWarning)
        yield
