"""Source -> IR, whole: what each construct becomes."""

from __future__ import annotations

import inspect

import pytest

from autobatch.ir.printer import print_module
from tests.frontend import constructs, programs
from tests.frontend.constructs import ENTRIES
from tests.frontend.harness import Lowering


@pytest.mark.parametrize("name", ENTRIES)
def test_construct(name, golden):
    function, examples, shared = ENTRIES[name]
    made = Lowering(function, examples, *shared)
    made.check()
    text = inspect.getsource(function)
    golden("frontend", name, f"{text}\n{print_module(made.module)}\n")


def test_every_construct_is_golden():
    written = {f for _, f in inspect.getmembers(constructs, inspect.isfunction) if f.__module__ == constructs.__name__}
    helpers = {constructs.half, constructs.evens, constructs.doubled}
    assert written - helpers == {f for f, _, _ in ENTRIES.values() if f.__module__ != programs.__name__}
