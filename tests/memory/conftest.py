"""Machine code of everything in this folder checks each address."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def checked(checked_memory):
    yield
