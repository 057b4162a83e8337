"""Settings of the whole suite: how much Hypothesis draws, and golden files.

A golden file holds text that a test expects whole: printed IR, an error message. A test that disagrees shows the
difference; `--update-golden` writes the files anew, and their diff is reviewed like code.
"""

import difflib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import executables

# Compiling makes single examples slow without making them wrong, so nothing has a deadline.
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# The same windows on every machine; the tests of measured costs ask for them.
os.environ["AUTOBATCH_WINDOW_COSTS"] = "typical"

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture(autouse=True)
def few_executables() -> Iterator[None]:
    yield
    executables.let_go()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(topic, name, text)` compares a text with tests/golden/<topic>/<name>.txt."""
    update: bool = request.config.getoption("--update-golden")

    def check(topic: str, name: str, text: str) -> None:
        path = GOLDEN / topic / f"{name}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists():
            pytest.fail(f"{path} does not exist: run this test with --update-golden and review the file", pytrace=False)
        elif (wanted := path.read_text(encoding="utf-8")) != text:
            diff = difflib.unified_diff(wanted.splitlines(), text.splitlines(), str(path), "this run", lineterm="")
            pytest.fail("\n".join([*diff, "", "right as it is? run with --update-golden"]), pytrace=False)

    return check
