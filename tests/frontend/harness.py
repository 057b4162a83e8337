"""The oracle of the front end: plain Python. `check` compares it with

the lowered module, verified, run for each example by the interpreter of the IR
the batched function, on both back ends, for all examples at once
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import autobatch as ab
from autobatch.data.columns import ColumnMemory
from autobatch.data.pack import pack
from autobatch.frontend import LoweredModule, lower
from autobatch.frontend.types.statics import follow
from autobatch.ir import jax_compat
from autobatch.ir.core import Container, Fixed, Input, List, ListTemplate, OptionalTemplate, Output, Ref, Template
from autobatch.ir.interpret import ExampleFailure, interpret
from autobatch.ir.strings import Printed
from autobatch.ir.verifier import verify


def is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, jax.Array, float))


class Lowering:
    """A lowered function of shared arguments and one batched one, with the examples it was lowered for."""

    def __init__(self, fun: Callable[..., Any], examples: Sequence[Any], *shared: Any) -> None:
        self.fun, self.examples, self.shared = fun, list(examples), shared
        self.columns = pack(self.examples)
        self.leaves = []
        given = jax.tree.map(self._leaf, shared)
        schema = self.columns.schema
        types = [jax_compat.type_of(x) for x in self.leaves]
        root = Input(0, schema.root, optional=schema.root_optional)
        self.lowered: LoweredModule = lower(fun, (*given, root), {}, schema, types)
        verify(self.lowered.module)

    def with_examples(self, examples: Sequence[Any]) -> Lowering:
        """The same program for other examples of the same types."""
        made = copy.copy(self)
        made.examples = list(examples)
        made.columns = pack(made.examples, like=self.columns.schema)
        return made

    def _leaf(self, x: Any) -> Any:
        if not is_array(x):
            return x
        self.leaves.append(x)
        return Input(len(self.leaves) - 1, jax_compat.type_of(x), shared=True)

    @property
    def module(self):
        return self.lowered.module

    def hidden(self) -> list[Any]:
        found = {f.shared: f for f in self.lowered.free if f.shared is not None}
        return [_read(found[k]) for k in sorted(found)]

    def run(self, index: int) -> Any:
        memory = ColumnMemory(self.columns)
        root = memory.root(index)
        args = [root]
        if self.columns.schema.root_optional:
            missing = self.examples[index] is None
            args = [0 if missing else root, missing]
        results = interpret(self.module, [*self.leaves, *self.hidden()], args, memory)
        found = value(self.lowered.result, results)
        return found.result if isinstance(found, Printed) else found

    def check(self) -> None:
        """Every example gives what plain Python gives, or fails as it does."""
        for index, example in enumerate(self.examples):
            try:
                expected = self.fun(*self.shared, example)
            except Exception as error:
                with pytest.raises(ExampleFailure) as failed:
                    self.run(index)
                assert failed.value.kind == type(error).__name__
                continue
            same(self.run(index), expected)


def _read(variable: Any) -> Any:
    function = variable.owner
    code = getattr(function, "__code__", None)
    if code is not None and variable.name in code.co_freevars:
        start = function.__closure__[code.co_freevars.index(variable.name)].cell_contents
    elif code is not None:
        start = function.__globals__[variable.name]
    else:
        start = function
    return follow(start, variable.path)


def value(template: Template, results: Sequence[Any]) -> Any:
    """The Python value that results stand for."""
    match template:
        case Output(index=index, type=type):
            if isinstance(type, (Ref, List)) and isinstance(results[index], int):
                return ...
            return results[index]
        case OptionalTemplate(value=inner, missing=missing):
            return None if results[missing] else value(inner, results)
        case Fixed(value=fixed):
            return fixed
        case ListTemplate(element=element, length=length):
            turns = range(len(results[length]))
            return [value(element, _Turn(results, turn)) for turn in turns]
        case Container(kind=kind, children=children, keys=keys, cls=cls):
            items = [value(c, results) for c in children]
            if kind == "dict":
                return dict(zip(keys, items, strict=True))
            if kind in ("tuple", "list", "mixture"):
                return tuple(items) if kind == "tuple" else items
            if kind == "namedtuple":
                return cls(*items)
            made = object.__new__(cls)
            for k, x in zip(keys, items, strict=True):
                object.__setattr__(made, k, x)
            return made


class _Turn:
    """Results as one turn of a comprehension sees them."""

    def __init__(self, results: Any, turn: int) -> None:
        self.results, self.turn = results, turn

    def __getitem__(self, index: int) -> Any:
        return self.results[index][self.turn]


def same(found: Any, expected: Any) -> None:
    """Equal in structure, exactly in integers and strings, nearly in floats."""
    if found is ...:
        return
    if isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected), (found, expected)
        for x, y in zip(found, expected, strict=True):
            same(x, y)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for k in expected:
            same(found[k], expected[k])
    elif expected is None or isinstance(expected, (str, bool, enum.Enum)):
        assert found == expected, (found, expected)
        if isinstance(expected, bool):
            assert isinstance(found, (bool, np.bool_)) or np.asarray(found).dtype == bool
    elif isinstance(expected, int):
        assert int(found) == expected and np.asarray(found).dtype.kind in "iu", (found, expected)
    elif isinstance(expected, (float, np.ndarray, np.generic, jax.Array)):
        assert np.shape(found) == np.shape(expected), (found, expected)
        if not isinstance(expected, (float, np.generic)) and not getattr(expected, "weak_type", False):
            assert np.asarray(found).dtype.kind == np.asarray(expected).dtype.kind
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    elif hasattr(expected, "__dict__"):
        assert type(found) is type(expected)
        same(dict(vars(found)), dict(vars(expected)))
    else:
        raise AssertionError(f"{type(expected)} cannot be compared")


def check_batched(fun: Callable[..., Any], examples: Sequence[Any], *shared: Any, backend: str = "xla") -> None:
    """The batched function gives what the plain one gives for every example, and fails in the same examples."""
    batched = ab.batched(fun, in_axes=(*(None for _ in shared), 0), on_error="mask", backend=backend)
    expected, kinds = [], []
    for example in examples:
        try:
            expected.append(fun(*shared, example))
            kinds.append(None)
        except Exception as error:
            expected.append(None)
            kinds.append(type(error).__name__)
    result, failures = batched(*shared, list(examples))
    failed = {f.index: f.kind for f in failures}
    assert [failed.get(k) for k in range(len(examples))] == kinds, backend
    for k, found in enumerate(ab.unbatch(result)):
        if kinds[k] is None:
            same(found, expected[k])


def check(fun: Callable[..., Any], examples: Sequence[Any], *shared: Any, batched: bool = True) -> Lowering:
    """Lower `fun(*shared, example)` and compare with plain Python on every example, one by one and as a batch.
    `batched=False`: the per-example IR alone, for functions whose control depends on computed numbers."""
    made = Lowering(fun, examples, *shared)
    made.check()
    for backend in ("xla", "interpret") if batched else ():
        check_batched(fun, examples, *shared, backend=backend)
    return made
