"""Results whose structure differs from example to example: of each example a text that says how to make its objects,
and its numbers in columns.

{"cat": h}, {"dog": h, "ant": g}   ->   ["{'cat': n0}", "{'dog': n0, 'ant': n1}"],  Ragged(values [h, h, g])

A text is data, like any string of the examples. So under `jax.jit` it says what the batch at hand has, and examples of
another structure need no other program. It is JSON: values, and steps that make objects, whose order is such that
whatever a step reads has been made.

    3, 0.5, "cat", None     themselves
    ["n", g, k]             number k of group g of this example       ["r", k]   what step k has made
    ["c", k]                a class or another constant               ["b", x], ["j", x, y]   bytes, a complex number

    ["list"]  ["dict"]  ["tuple", class or None, values]  ["call", function, arguments]       make
    ["extend", k, values]  ["update", k, pairs]  ["append", k, values]  ["state", k, state]   fill what step k has made
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from autobatch.call.batches.batch import Batch
from autobatch.data.ragged import Ragged
from autobatch.errors import BatchError
from autobatch.ir.printed import PrintedLine, printed

Value = Any
"""A value as it stands in a text."""


class NamedConstants:
    """Classes, functions and members of enums that texts name by their numbers."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: Any) -> int:
        """The number of a constant, which is kept."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.all)
            self.all.append(value)
        return self._numbers[id(value)]


class Blueprint:
    """A text under construction. Each method that makes something returns it as a value."""

    def __init__(self, constants: NamedConstants) -> None:
        self.constants = constants
        self.steps: list[Value] = []

    def constant(self, value: Any) -> Value:
        return ["c", self.constants.number(value)]

    def number(self, group: int, position: int) -> Value:
        return ["n", group, position]

    def scalar(self, value: Any) -> Value:
        """A number, string or bytes that Python knows, or None."""
        if isinstance(value, bytes):
            return ["b", value.decode("latin-1")]
        return ["j", value.real, value.imag] if isinstance(value, complex) else value

    def make(self, *step: Any) -> Value:
        self.steps.append(step)
        return ["r", len(self.steps) - 1]

    def fill(self, kind: str, made: Value, values: Any) -> None:
        self.steps.append((kind, made[1], values))

    def text(self, value: Value) -> str:
        """The text that makes this value."""
        return json.dumps([self.steps, value], separators=(",", ":"))


def read(text: str, constants: Sequence[Any], numbers: Sequence[Sequence[Any]]) -> Any:
    """What a text makes. `numbers[g]`: those of group g of the example."""
    steps, value = json.loads(text)
    return _TextReader(constants, numbers).run(steps, value)


class _TextReader:
    def __init__(self, constants: Sequence[Any], numbers: Sequence[Sequence[Any]]) -> None:
        self.constants, self.numbers = constants, numbers
        self.made: list[Any] = []

    def run(self, steps: Sequence[Value], value: Value) -> Any:
        for kind, *rest in steps:
            self.made.append(getattr(self, f"_{kind}")(*rest))
        return self.value(value)

    def value(self, x: Value) -> Any:
        match x:
            case ["n", group, position]:
                return self.numbers[group][position]
            case ["r", step]:
                return self.made[step]
            case ["c", number]:
                return self.constants[number]
            case ["b", text]:
                return text.encode("latin-1")
            case ["j", real, imaginary]:
                return complex(real, imaginary)
            case _:
                return x

    def values(self, xs: Sequence[Value]) -> list[Any]:
        return [self.value(x) for x in xs]

    def _list(self) -> list[Any]:
        return []

    def _dict(self) -> dict[Any, Any]:
        return {}

    def _tuple(self, cls: Value, values: Sequence[Value]) -> tuple[Any, ...]:
        made = tuple(self.values(values))
        return made if cls is None else tuple.__new__(self.value(cls), made)

    def _call(self, function: Value, arguments: Sequence[Value]) -> Any:
        return self.value(function)(*self.values(arguments))

    def _extend(self, step: int, values: Sequence[Value]) -> None:
        self.made[step].extend(self.values(values))

    def _append(self, step: int, values: Sequence[Value]) -> None:
        for x in values:
            self.made[step].append(self.value(x))

    def _update(self, step: int, pairs: Sequence[tuple[Value, Value]]) -> None:
        made = self.made[step]
        for key, x in pairs:
            made[self.value(key)] = self.value(x)

    def _state(self, step: int, state: Value) -> None:
        set_state(self.made[step], self.value(state))


def set_state(made: Any, state: Any) -> None:
    """Give an object the attributes that `__reduce_ex__` has told."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    held, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    made_dict = getattr(made, "__dict__", None)
    if held and made_dict is not None:
        made_dict.update(held)
    for name, x in (slots or {}).items():
        object.__setattr__(made, name, x)


@partial(jax.tree_util.register_dataclass, data_fields=("texts", "numbers"), meta_fields=("constants",))
@dataclass(frozen=True, eq=False)
class Objects:
    """B Python objects whose structure differs: dicts with other keys, trees of other forms, objects of any class. What
    a batched function returns for these where its structure is traced.

    `ab.unbatch`, `to_list()`, iteration and indices give the objects, made without calling `__init__`; numbers of shape
    () are Python numbers, others arrays of NumPy. A pytree: `numbers` has a `Ragged` for each shape and dtype, with
    derivatives, and passes through `jax.jit` and `jax.grad`.

    >>> import warnings
    >>> import autobatch as ab
    >>> @ab.batched(backend="xla")
    ... def doubled(words):
    ...     return {word: 2.0 * k for k, word in enumerate(words)}
    >>> with ab.options(trace=True), warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ab.StructureWarning)
    ...     found = doubled([["cat", "sat"], ["dog"]])
    >>> found
    Objects(2 of any structure)
    >>> ab.unbatch(found)
    [{'cat': 0.0, 'sat': 2.0}, {'dog': 0.0}]
    """

    texts: Batch
    numbers: tuple[Ragged, ...]
    constants: NamedConstants

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def __getitem__(self, index: int) -> Any:
        return self.to_list()[index]

    def to_list(self, scalars: Callable[[np.ndarray[Any, Any]], list[Any]] = np.ndarray.tolist) -> list[Any]:
        """The objects of all examples; `scalars` makes Python numbers of a column. Raises BatchError under a
        transformation of JAX, where they are not known."""
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(self)):
            raise BatchError("ab.unbatch needs known values; call it outside jax.jit")
        return self._made([_by_example(group, scalars) for group in self.numbers])

    def with_numbers(self, numbers: Sequence[Sequence[Any]]) -> list[Any]:
        """The objects with others in the place of their numbers: for each group one for each row of its values."""
        bounds = [np.asarray(group.offsets).tolist() for group in self.numbers]
        return self._made([[rows[a:b] for a, b in pairwise(cuts)] for rows, cuts in zip(numbers, bounds, strict=True)])

    def _made(self, numbers: Sequence[Sequence[Sequence[Any]]]) -> list[Any]:
        """The objects of all examples. `numbers[g][k]`: those of group g in example k."""
        texts = self.texts.to_list()
        return [
            None if text is None else read(text, self.constants.all, [group[k] for group in numbers])
            for k, text in enumerate(texts)
        ]

    def __repr__(self) -> str:
        return f"Objects({len(self)} of any structure)"


def _by_example(group: Ragged, scalars: Callable[[np.ndarray[Any, Any]], list[Any]]) -> list[list[Any]]:
    bounds = np.asarray(group.offsets).tolist()
    values = group.values
    typed = isinstance(values, jax.Array) and jax.numpy.issubdtype(values.dtype, jax.dtypes.prng_key)
    held = values if typed else np.asarray(values)
    rows: list[Any] = scalars(held) if not typed and held.ndim == 1 else list(held[: bounds[-1]])
    return [rows[a:b] for a, b in pairwise(bounds)]


# ---- what is printed


def show(lines: Objects) -> None:
    """Print what the examples have printed, one after another; when the computation runs, where JAX traces it."""
    leaves, tree = jax.tree.flatten(lines)
    if any(isinstance(x, jax.core.Tracer) for x in leaves):
        jax.debug.callback(lambda *known: _show(jax.tree.unflatten(tree, known)), *leaves)
    else:
        _show(lines)


def show_notes(lines: tuple[PrintedLine, ...], lists: list[Any]) -> None:
    """Likewise of notes: which lines, and what they show; None for lists that no example has anything in."""
    leaves, tree = jax.tree.flatten(lists)
    if any(isinstance(x, jax.core.Tracer) for x in leaves):
        jax.debug.callback(lambda *known: _show_notes(lines, jax.tree.unflatten(tree, known)), *leaves)
    else:
        _show_notes(lines, lists)


def _show_notes(lines: tuple[PrintedLine, ...], lists: list[Any]) -> None:
    found = [_by_example(x, Shown.of) if isinstance(x, Ragged) else list(x or ()) for x in lists]
    for k, calls in enumerate(found[0]):
        for line, arguments in printed(lines, calls, [x[k] if x else [] for x in found]):
            _print(arguments, line.separator, line.end, line.stream)


def _print(arguments: Iterable[Any], separator: str, end: str, stream: str) -> None:
    print(*arguments, sep=separator, end=end, file=sys.stderr if stream == "stderr" else sys.stdout)


def _show(lines: Objects) -> None:
    for example in lines.to_list(Shown.of):
        for arguments, separator, end, stream in example or ():
            _print(map(_argument, arguments), separator, end, stream)


def _argument(x: Any) -> Any:
    """An argument of `print`; a tuple of texts and of numbers with their formats is an f-string."""
    if not isinstance(x, TextPieces):
        return x
    return "".join(p if isinstance(p, str) else format(*p) for p in x)


class TextPieces(tuple[Any, ...]):
    """The pieces of an f-string."""


class Shown(float):
    """A float32 as text: as few digits as tell it from others."""

    @classmethod
    def of(cls, values: np.ndarray[Any, Any]) -> list[Any]:
        return list(map(cls, values.tolist())) if values.dtype == np.float32 else list(values.tolist())

    def __repr__(self) -> str:
        return str(np.float32(self))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return float.__format__(self, spec) if spec else str(self)
