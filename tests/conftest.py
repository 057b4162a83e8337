"""Settings of the whole suite: how much Hypothesis draws, and golden files.

A golden file holds text that a test expects whole: printed IR, an error message. A test that disagrees shows the
difference; `--update-golden` writes the files anew, and their diff is reviewed like code.
"""

import difflib
import gc
import importlib.util
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import executables, quick_xla

# Compiling makes single examples slow without making them wrong, so nothing has a deadline.
settings.register_profile("default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), derandomize=False, max_examples=1000)

# The same windows on every machine; the tests of measured costs ask for them.
os.environ["AUTOBATCH_WINDOW_COSTS"] = "typical"
# What does not compile is an error for the tests of the compiler; those in `traces` switch it on.
os.environ.setdefault("AUTOBATCH_TRACE", "0")
# Few programs are compiled twice: to keep them all for the next process costs more than it saves.
os.environ.setdefault("AUTOBATCH_COMPILATION_CACHE", "off")

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """A test draws the same in each run, alone or with others. `--hypothesis-seed=N` draws anew."""
    gc.set_threshold(20_000, 20, 20)  # tracing and compiling make many objects and few cycles
    profile = os.environ.get("HYPOTHESIS_PROFILE", "default")
    if profile == "default":
        fixed = config.getoption("hypothesis_seed", None) is None
        settings.register_profile(profile, settings.get_profile(profile), derandomize=fixed, database=None)
        if fixed:
            _without_constants_of_modules()
    settings.load_profile(profile)
    if quick_xla.ASKED:
        quick_xla.switch_on()


def _without_constants_of_modules() -> None:
    """Hypothesis draws the constants that stand in the modules imported so far, the drawn programs of other tests among
    them: what a test draws would depend on those that its process happened to run before."""
    if hasattr(providers, "_get_local_constants"):
        none = providers._local_constants  # no test has drawn yet
        providers._get_local_constants = lambda: none


BY_THE_REFERENCE = ("memory", "frontend", "python")
"""Folders of tests whose programs the reference back end runs in the long tests alone: programs of all their kinds are
drawn for it in the folder `properties`."""


SLOW = frozenset(
    {
        "test_survey.py::test_what_is_refused[computed-llvm]",
        "test_memory_programs.py::test_computed_numbers_decide_row_by_row",
        "test_products.py::test_vmap_and_gradients_over_parameters",
        "test_shared_objects.py::test_values_and_derivatives[twice]",
        "test_plain_python.py::test_programs[grown_tree]",
        "test_unread.py::test_compiled",
        "test_unread.py::test_row_by_row",
        "test_deep_copies.py::test_copies_hold_what_python_makes_them_hold[chosen_rows]",
        "test_deep_copies.py::test_copies_hold_what_python_makes_them_hold[before_and_after]",
        "test_levels.py::test_transformations[jvp of grad]",
        "test_rules.py::test_derivatives_of_such_operations_to_second_order",
        "test_outer.py::test_gradients_of_matrices[False]",
        "test_by_index.py::test_on_every_back_end[work_list]",
        "test_by_index.py::test_on_every_back_end[held]",
        "test_placed.py::test_further_derivatives",
        "test_breadth.py::test_examples_of_any_form_come_back",
        "test_packed_rows.py::test_gradients_of_uneven_loops",
        "test_examples.py::test_lattice",
        "test_gradients.py::test_second_order[child_reduction-batch3]",
        "test_programs.py::test_compiled[structure-0]",
        "test_programs.py::test_values_and_gradients[small_arrays]",
        "test_filled.py::test_programs[lists]",
        "test_priorities.py::test_any_pushes_and_pops",
    }
)
"""Tests of three seconds and more of which others that are quick test the kind: long ones."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        parameters = [] if callspec is None else [x for x in callspec.params.values() if isinstance(x, str)]
        by_the_reference = item.path.parent.name in BY_THE_REFERENCE and "interpret" in parameters
        if by_the_reference or f"{item.path.name}::{item.name}" in SLOW:
            item.add_marker(pytest.mark.long)
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return  # JAX is not started to find out that there is no GPU
    jax.config.update("jax_default_matmul_precision", "highest")  # a GPU's products have 10 bits by default
    for item in items:
        if item.get_closest_marker("cpu") is not None and jax.default_backend() != "cpu":
            item.add_marker(pytest.mark.skip(reason="JAX computes on another device"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported by now stays, so the collector, which looks at all there is again and again, leaves it out."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def few_executables() -> Iterator[None]:
    yield
    executables.let_go()


@pytest.fixture(autouse=True)
def gangs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the tests form gangs wherever rows fit into them, the others where it costs less."""
    if zlib.crc32(request.node.nodeid.encode()) % 2 and request.node.get_closest_marker("by_cost") is None:
        monkeypatch.setattr("autobatch.backends.llvm.code.form_gangs", lambda *_: True)


@pytest.fixture(scope="module")
def checked_memory() -> Iterator[None]:
    """Machine code proves each address before it loads or stores; it is not kept on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOBATCH_CHECK_MEMORY", "1")
        yield


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
