"""What fails while an example is traced fails with the kind, message and line of Python, on every back end."""

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab


@dataclass
class Tree:
    value: float
    number: int
    kids: list


def leaf(value, number):
    return Tree(value, number, [])


TREES = [
    Tree(1.0, 1, [leaf(2.0, 2), leaf(3.0, 3)]),
    Tree(6.0, 5, [leaf(1.0, 1)]),
    Tree(-2.0, 2, [leaf(-1.0, 2), leaf(1.5, 1)]),
    leaf(0.5, 2),
]


def raises(tree):
    xs = [k.value for k in tree.kids]  # noqa: F841
    if tree.number > 3:
        raise KeyError("number", tree.number)
    return eval("xs[0]") + tree.value


def looks_up(tree):
    by_number = {k.number: k.value for k in tree.kids}  # noqa: F841
    return eval("by_number[2]") * tree.value


def told(failures):
    return [(f.index, f.kind, f.message, f.line) for f in failures]


def plainly(function):
    found = []
    for k, tree in enumerate(TREES):
        try:
            function(tree)
        except Exception as error:
            line = error.__traceback__.tb_next
            while line.tb_next is not None:
                line = line.tb_next
            found.append((k, type(error).__name__, str(error), line.tb_lineno))
    return found


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    monkeypatch.setenv("AUTOBATCH_TRACE", "1")


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
@pytest.mark.parametrize("function", [raises, looks_up])
def test_failures_are_those_of_python(function, backend):
    wanted = plainly(function)
    assert len(wanted) >= 2
    with pytest.raises(ab.ExampleError) as caught:
        ab.batched(function, backend=backend)(TREES)
    known = {w[0]: w for w in told(caught.value.failures)}
    assert known and all(known[k] == w for k, *_ in wanted if k in known for w in wanted if w[0] == k)
    result, failures = ab.batched(function, backend=backend, on_error="mask")(TREES)
    assert told(failures.details) == wanted
    fine = ~np.asarray(failures.failed)
    np.testing.assert_allclose(np.asarray(result)[fine], [function(t) for t, f in zip(TREES, fine) if f], rtol=1e-6)
