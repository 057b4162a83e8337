"""One object under several names, in lists whose items are columns: a change under one name is seen under all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab
from autobatch.testing import assert_same
from tests.memory import aliases, returned
from tests.memory.aliases import XS, W


@pytest.mark.parametrize("f", aliases.PROGRAMS + returned.PROGRAMS)
def test_changes_are_seen_under_all_names(f: Callable[..., Any]) -> None:
    batched = ab.batched(f, in_axes=(None, 0), backend="interpret")
    assert_same(ab.unbatch(batched(W, XS)), batched.loop(W, XS), tolerance=1e-5)


@pytest.mark.parametrize("backend", ["xla", "llvm"])
@pytest.mark.parametrize("f", [aliases.in_the_next_turn, aliases.first_and_popped, aliases.rows, returned.changed_list])
def test_by_other_back_ends(f: Callable[..., Any], backend: Any) -> None:
    batched = ab.batched(f, in_axes=(None, 0), backend=backend)
    assert_same(ab.unbatch(batched(W, XS)), batched.loop(W, XS), tolerance=1e-5)
