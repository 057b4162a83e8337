"""Structure is traced here where it does not compile, and nobody is warned."""

from collections.abc import Iterator

import pytest

import autobatch as ab
from autobatch.traces.calls import StructureWarning


@pytest.fixture(autouse=True)
def traced(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    with ab.options(trace=True):
        yield


__all__ = ["StructureWarning"]
