import pytest

from tests.backends.cuda import fake


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    return fake.library(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def gpu(fake_library, monkeypatch):
    """A GPU without a GPU; no kernel writes beside its memory."""
    with fake.installed(fake_library, monkeypatch) as made:
        yield made
        assert made.broken == 0
