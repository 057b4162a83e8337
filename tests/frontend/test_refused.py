"""Everything that is refused says where, what, and what to write instead."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from autobatch.errors import SourceError, TypeConflictError, UnsupportedError
from tests.frontend import refused
from tests.frontend.harness import Lowering
from tests.frontend.programs import Node


@dataclass
class Named:
    name: str
    word: int = 1


EXAMPLES = {
    "t": [Named("a"), Named("b")],
    "xs": [[1, 2], [3]],
    "rows": [[[1], [2]], [[3]]],
    "x": [1.0, 2.0],
    "n": [1, 2],
}
FUNCTIONS = {name: f for name, f in vars(refused).items() if inspect.isfunction(f) and f.__module__ == refused.__name__}


def message(error: SourceError) -> str:
    return str(error).replace(refused.__file__, "refused.py")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_message(name, golden):
    function = FUNCTIONS[name]
    (parameter,) = inspect.signature(function).parameters
    examples = EXAMPLES[parameter]
    with pytest.raises(SourceError) as refusal:
        Lowering(function, examples)
    assert type(refusal.value) in (UnsupportedError, TypeConflictError), "the names that users know"
    assert refusal.value.span.line > 0 and refusal.value.cure
    golden("errors", name, message(refusal.value) + "\n")


def test_source_not_available():
    space: dict = {}
    exec("def f(n):\n    return n + 1", space)
    with pytest.raises(SourceError, match="not available"):
        Lowering(space["f"], [1])


def test_none_where_a_node_must_be():
    from tests.frontend.harness import check

    def size(t):
        return 1 + size(t.left) if t.word > 0 else 0

    check(size, [Node(0, 1), Node(0, 0)])
