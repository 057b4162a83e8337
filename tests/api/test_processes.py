"""What goes between processes: errors, batched functions, their derivatives, packed data."""

import concurrent.futures
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import Failure, Span


@dataclass
class Tree:
    value: float
    children: list["Tree"]


@ab.batched(in_axes=(None, 0))
def total(w: Any, t: Tree) -> Any:
    if t.value < 0:
        raise ValueError(f"{t.value} is negative")
    return w * t.value + sum([total(w, c) for c in t.children])


def plain(w: Any, x: Any) -> Any:
    return w * x


def root(x: float) -> float:
    if x < 0:
        raise ValueError(f"{x} is negative")
    return x


faster = ab.batched(plain, in_axes=(None, 0), backend="llvm")
by_xla = ab.batched(plain, in_axes=(None, 0), backend="xla")
checked = ab.batched(root, backend="llvm")
gradient = ab.grad(total)
both = ab.value_and_grad(faster, argnums=(0, 1))
each = ab.per_example_grad(faster)

TREES = [Tree(1.0, [Tree(2.0, [])]), Tree(3.0, [])]


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_batched_functions() -> None:
    assert copied(total) is total
    other = copied(faster)
    assert other.settings == faster.settings and other.__wrapped__ is plain


def test_derivatives() -> None:
    assert copied(gradient)(2.0, TREES).item() == 6.0
    assert copied(each)(2.0, [1.0, 2.0]).tolist() == [1.0, 2.0]
    values, (by_w, _) = copied(both)(2.0, [1.0, 2.0])
    assert values.tolist() == [2.0, 4.0] and by_w.item() == 3.0
    assert copied(ab.grad(plain))(2.0, 3.0).item() == 3.0
    assert repr(copied(gradient)) == repr(gradient) == "<grad_total>"


def test_packed_data() -> None:
    assert np.asarray(total(1.0, copied(ab.pack(TREES)))).tolist() == [3.0, 3.0]
    assert ab.unbatch(copied(total(1.0, ab.pack(TREES)))) == [3.0, 3.0]


SPAN = Span("f.py", 3, 4, 3, 9)
FAILURE = Failure(1, "ValueError", "no", SPAN)
MADE: dict[type[ab.Error], Callable[[], ab.Error]] = {
    ab.ExampleError: lambda: ab.ExampleError([FAILURE], 7, "a note"),
    ab.UnsupportedError: lambda: ab.UnsupportedError("no", SPAN, "a cure", [("here", SPAN)]),
    ab.TypeConflictError: lambda: ab.TypeConflictError("no", SPAN),
}


def kinds() -> list[type[ab.Error]]:
    """All classes of errors of the package."""
    for module in pkgutil.walk_packages(ab.__path__, "autobatch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, todo = [], [ab.Error]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.__module__.startswith("autobatch."):
            found.append(cls)
    return sorted(found, key=lambda c: c.__name__)


def example_of(cls: type[ab.Error]) -> ab.Error:
    if cls in MADE:
        return MADE[cls]()
    needed = [p for p in inspect.signature(cls.__init__).parameters.values() if p.default is p.empty and p.kind < 2]
    refused = ab.UnsupportedError("no", SPAN)
    held = {"UnsupportedError": refused, "SourceError": refused, "Sequence[Failure]": [FAILURE]}
    return cls(*(held.get(str(p.annotation), {} if "Mapping" in str(p.annotation) else "words") for p in needed[1:]))


def shown(error: Exception) -> dict[str, Any]:
    """The attributes of an error in words; sets have no order."""
    return {k: sorted(map(repr, x)) if isinstance(x, frozenset) else repr(x) for k, x in vars(error).items()}


def test_every_error() -> None:
    for cls in kinds():
        error = example_of(cls)
        error.add_note("noted")
        again = copied(error)
        assert type(again) is cls and str(again) == str(error)
        assert repr(again.args) == repr(error.args) and shown(again) == shown(error)


def failing() -> Any:
    return total(1.0, [Tree(1.0, []), Tree(-2.0, [])])


def of_trees(trees: list[Tree]) -> list[float]:
    return np.asarray(total(1.0, trees)).tolist()


def slopes(trees: list[Tree]) -> float:
    return float(gradient(1.0, trees))


def call(function: Any, *args: Any) -> Any:
    return np.asarray(function(*args)).tolist()


def test_spawned() -> None:
    """Results and errors of other processes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.map(of_trees, [TREES, TREES[::-1]]) == [[3.0, 3.0], [3.0, 3.0]]
        assert pool.apply(call, (faster, 2.0, [1.0, 3.0])) == [2.0, 6.0]
        assert pool.apply(call, (total, 1.0, ab.pack(TREES))) == [3.0, 3.0]
        assert pool.apply(call, (gradient, 2.0, TREES)) == 6.0
        with pytest.raises(ab.ExampleError, match="is negative") as raised:
            pool.apply(failing)
        assert [f.index for f in raised.value.failures] == [1]
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        assert executor.submit(of_trees, TREES).result(120) == [3.0, 3.0]
        with pytest.raises(ab.ExampleError, match="is negative"):
            executor.submit(failing).result(120)


def test_forked_behind_a_call() -> None:
    """Machine code runs; XLA has left its threads in the parent, and would wait for them."""
    assert of_trees(TREES) == [3.0, 3.0] and slopes(TREES) == 6.0 and call(by_xla, 2.0, [1.0, 3.0]) == [2.0, 6.0]
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
        assert executor.submit(call, faster, 2.0, [1.0, 3.0]).result(120) == [2.0, 6.0]
        with pytest.raises(ab.ExampleError, match="is negative"):
            executor.submit(call, checked, [1.0, -3.0]).result(120)
        assert executor.submit(call, gradient, 2.0, TREES).result(120) == 6.0
        with pytest.raises(ab.DeviceError, match="spawn"):
            executor.submit(call, by_xla, 2.0, [1.0, 3.0]).result(120)


FORKED = """
import concurrent.futures, multiprocessing
from tests.api.test_processes import TREES, call, failing, gradient
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.starmap(call, [(gradient, 2.0, TREES)] * 4))
with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
    print(executor.submit(failing).exception(120).count)
"""


def test_forked_before_the_first_call() -> None:
    found = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "[6.0, 6.0, 6.0, 6.0]\n1\n"
