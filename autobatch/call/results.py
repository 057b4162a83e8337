"""From what a program computes to what a batched call returns, and from there to Python objects.

template                          batched result
Output(0, float32[])          ->  array [B]
Container("tuple", ...)       ->  the same container of results
list of numbers               ->  Ragged(values, offsets)
class instance, tag, None ... ->  Batch: the columns of one object an example
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.cuda.device import DeviceArray
from autobatch.call.arguments import BoundArguments, is_leaf, same_structure
from autobatch.call.assembly import Assembler, Outcome, Result
from autobatch.call.batch import Batch, pack
from autobatch.compiler.executables import ArrayResult, RaggedResult, StructureResult
from autobatch.data.ragged import Ragged
from autobatch.data.spec import element_type
from autobatch.data.unpack import Common
from autobatch.errors import DESCRIBED, BatchError, Failure, entry
from autobatch.frontend.types.statics import make_object
from autobatch.ir.core import (
    Array,
    ChangedArguments,
    ChangedFields,
    ChoiceTemplate,
    Container,
    Fixed,
    ListTemplate,
    OptionalTemplate,
    Output,
    Pointer,
    Tag,
    Template,
)
from autobatch.ir.strings import Printed, PrintedLine, PrintedNotes, printed

# ---- blueprints
#
# Results whose structure differs from example to example: of each example a text that says how to make its objects,
# and its numbers in columns.
#
# {"cat": h}, {"dog": h, "ant": g}   ->   ["{'cat': n0}", "{'dog': n0, 'ant': n1}"],  Ragged(values [h, h, g])
#
# A text is data, like any string of the examples. So under `jax.jit` it says what the batch at hand has, and examples
# of another structure need no other program. It is JSON: values, and steps that make objects, whose order is such that
# whatever a step reads has been made.
#
#     3, 0.5, "cat", None     themselves
#     ["n", g, k]             number k of group g of this example       ["r", k]   what step k has made
#     ["c", k]                a class or another constant               ["b", x], ["j", x, y]   bytes, a complex number
#
#     ["list"]  ["dict"]  ["tuple", class or None, values]  ["call", function, arguments]       make
# ["extend", k, values]  ["update", k, pairs]  ["append", k, values]  ["state", k, state]   fill what step k has made


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


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False)
class Failures:
    """The second result under `on_error="mask"`. `failed` is bool[B]; `details` describe the first hundred of those
    that are known on the host: none under `jax.jit`. As text it says how many there are, and what the first are."""

    failed: Any
    details: tuple[Failure, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "details", tuple(self.details[:DESCRIBED]))

    def __str__(self) -> str:
        try:
            failed = np.asarray(self.failed)
        except jax.errors.TracerArrayConversionError:
            return repr(self)
        return "\n".join([f"{int(failed.sum())} of {failed.size} examples failed", *map(str, self.details[:5])])

    def __iter__(self) -> Any:
        return iter(self.details)

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[Failure, ...]]:
        return ((jax.tree_util.GetAttrKey("failed"), self.failed),), ()

    @classmethod
    def tree_unflatten(cls, details: tuple[Failure, ...], children: tuple[Any]) -> Failures:
        return cls(children[0], details)


def without_failed(outcome: Outcome, failed: Any, template: Template) -> Outcome:
    """The same outcome with zero in the rows of failed examples; None where they would be objects of any structure."""
    texts = texts_of(template)

    def cleared(held: Result, number: int) -> Result:
        match held:
            case StructureResult(rows=rows) if number in texts:
                return replace(held, rows=jnp.where(failed, -1, rows))
            case ArrayResult(values=values):
                return ArrayResult(_zeroed(values, failed))
            case StructureResult(rows=rows, type=type):
                return replace(held, rows=jnp.where(failed, 0 if isinstance(type, Tag) else -1, rows))
            case RaggedResult():
                return held  # a failed example has no rows
            case _:
                assert_never(held)

    return replace(outcome, results=[cleared(r, k) for k, r in enumerate(outcome.results)])


def texts_of(template: Template) -> set[int]:
    """The results that are texts of objects."""
    match template:
        case Container(cls=cls, children=(Output(index=index), *_)) if cls is Objects:
            return {index}
        case Container(children=children):
            return set().union(*map(texts_of, children))
        case _:
            return set()


def returned(template: Template) -> Template:
    """What a function returns, without what it prints, and what it changes: derivatives leave arguments as they are."""
    if isinstance(template, Container) and template.cls is Printed:
        return returned(template.children[0])
    if isinstance(template, Container) and template.cls is ChangedArguments:
        return returned(template.children[0])
    return template


def refuse_changes(template: Template) -> None:
    """Raise for a function that changes its arguments."""
    if isinstance(template, Container) and template.cls is Printed:
        template = template.children[0]
    if isinstance(template, Container) and template.cls is ChangedArguments:
        raise BatchError(not_changed("a function that is exported", _changed_names(template.keys[1:])))


def _changed_names(keys: Sequence[Any]) -> list[str]:
    """The arguments that are changed, by name; of objects nobody knows which hold them."""
    return [str(k) for k in keys if not isinstance(k, ChangedFields)]


def poisoned(outcome: Outcome, stale: Any) -> Outcome:
    """The same outcome with NaN for floats where the plan is stale: no wrong number leaves the computation."""

    def marked(held: Result) -> Result:
        if not isinstance(held, ArrayResult) or not jnp.issubdtype(held.values.dtype, jnp.floating):
            return _behind(held, stale)
        return ArrayResult(jnp.where(stale, np.asarray(np.nan, held.values.dtype), held.values))

    return replace(outcome, results=[marked(r) for r in outcome.results])


def without_numbers(outcome: Outcome, failed: Any) -> Outcome:
    """The same outcome with NaN for the floats of failed examples."""
    return replace(outcome, results=[marked(r, failed) for r in outcome.results])


def marked(held: Result, failed: Any) -> Result:
    """A result with NaN for the floats of failed examples, which nobody has without the check."""
    if not isinstance(held, ArrayResult) or not jnp.issubdtype(held.values.dtype, jnp.floating):
        return _behind(held, failed)
    mask = failed.reshape(-1, *(1,) * (held.values.ndim - 1))
    return ArrayResult(jnp.where(mask, np.asarray(np.nan, held.values.dtype), held.values))


def _behind(held: Result, check: Any) -> Result:
    """The same result, which nobody has without a check: where JAX compiles, what no result needs is not computed."""
    if not isinstance(held, ArrayResult) or not isinstance(check, jax.core.Tracer):
        return held
    if jnp.issubdtype(held.values.dtype, jax.dtypes.extended):
        return held
    values, _ = jax.lax.optimization_barrier((held.values, check))
    return ArrayResult(values)


def _zeroed(values: Any, failed: Any) -> Any:
    if jnp.issubdtype(values.dtype, jax.dtypes.extended):
        return values
    return jnp.where(failed.reshape(-1, *(1,) * (values.ndim - 1)), jnp.zeros((), values.dtype), values)


_printed: ContextVar[bool] = ContextVar("printed", default=False)


@contextmanager
def printing_results() -> Iterator[None]:
    """Within, results are put together without printing: their lines have been printed."""
    token = _printed.set(True)
    try:
        yield
    finally:
        _printed.reset(token)


# ---- what a call changes of its arguments (`changes.py`)


class Changed:
    """What calls change: within, what arguments become is put here. `bound` are the arguments of the one that runs, of
    a group of examples, None where they are those of the whole call; `parts` what each has left. `by_python`: are they
    to be changed by plain Python?"""

    __slots__ = ("_token", "bound", "by_python", "parts")

    def __init__(self) -> None:
        self.bound: BoundArguments | None = None
        self.parts: tuple[ChangedPart, ...] = ()
        self.by_python = False

    def __enter__(self) -> Changed:
        self._token = _changed.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _changed.reset(self._token)


@dataclass(frozen=True)
class ChangedPart:
    """`lists`: what arguments that are lists are, by name; `objects`: what objects are, with the `fields` that
    were changed; `failed`: the examples that have failed, which change nothing."""

    bound: BoundArguments | None
    lists: Mapping[str, Any]
    objects: Any = None
    fields: ChangedFields = field(default_factory=lambda: ChangedFields((), ()))
    failed: frozenset[int] = frozenset()


_changed: ContextVar[Changed | None] = ContextVar("changed", default=None)


def note_arguments(bound: BoundArguments) -> None:
    """These are the arguments of what runs next."""
    if (found := _changed.get()) is not None:
        found.bound = bound


def arguments_noted() -> BoundArguments | None:
    """The arguments of what runs, where any were noted."""
    found = _changed.get()
    return found.bound if found is not None else None


def note_changes_by_python() -> None:
    """A call changes its arguments, and its program does not say how: plain Python is to change them."""
    if (found := _changed.get()) is not None:
        found.by_python = True


def note_changes(function: str, part: ChangedPart) -> None:
    """A call leaves its arguments so. Derivatives leave them as they are."""
    found = _changed.get()
    if found is None:
        return
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((dict(part.lists), part.objects))):
        raise BatchError(not_changed(function, list(part.lists)))
    found.parts = (*found.parts, replace(part, bound=found.bound))


def leave_failed(failed: Any) -> None:
    """What the last call has changed stays as it was in the examples that have failed: bool[B]."""
    found = _changed.get()
    if found is not None and found.parts:
        last = replace(found.parts[-1], failed=frozenset(np.flatnonzero(np.asarray(failed)).tolist()))
        found.parts = (*found.parts[:-1], last)


def not_changed(function: str, names: Sequence[str]) -> str:
    """The words for a call that cannot change its arguments; `names`: those that are lists which it changes."""
    if not names:
        return (
            f"{function} changes objects of its arguments: call it outside of JAX's transformations (ab.grad leaves "
            "them as they are), or change copies: copy.deepcopy(x)"
        )
    return (
        f"{function} changes its argument {', '.join(names)}: call it with lists, outside of JAX's transformations "
        f"(ab.grad leaves it as it is); or change a copy: {names[0]} = list({names[0]})"
    )


# ---- the result


def build(template: Template, outcome: Outcome, out_axes: Any = 0) -> Any:
    """The result of a batched call."""
    match template:
        case Output() if not is_structure(template, outcome.results[template.index]):
            return _numbers(template, outcome, out_axes)
        case Container(kind="tuple" | "namedtuple" | "dict" | "pytree"):
            axes = _prefix(out_axes, template, outcome.function)
            parts = [build(t, outcome, a) for t, a in zip(template.children, axes, strict=True)]
            return _container(template, parts)
        case Container(kind="object", cls=cls, children=(result, *lists)) if cls is ChangedArguments:
            made = build(result, outcome, out_axes)
            after = dict(zip(template.keys[1:], (build(x, outcome) for x in lists), strict=True))
            kept = {k: x for k, x in after.items() if not isinstance(k, ChangedFields)}
            objects = [(x, k) for k, x in after.items() if isinstance(k, ChangedFields)]
            note_changes(outcome.function, ChangedPart(None, kept, *(objects[0] if objects else ())))
            return made
        case Container(kind="object", cls=cls, children=(result, lines)) if cls is Printed:
            made = build(result, outcome, out_axes)
            if _printed.get():
                return made
            if isinstance(lines, Container) and lines.cls is not None and issubclass(lines.cls, PrintedNotes):
                show_notes(
                    lines.cls.lines, [None if isinstance(x, Fixed) else build(x, outcome) for x in lines.children]
                )
            else:
                show(build(lines, outcome))
            return made
        case Container(kind="object", cls=cls) if cls is not None and is_registered(cls):
            axes = _prefix(out_axes, template, outcome.function)
            parts = [build(t, outcome, a) for t, a in zip(template.children, axes, strict=True)]
            return make_object(cls, dict(zip(template.keys, parts, strict=True)))
        case Container(kind="list"):
            _no_axis(out_axes, outcome.function, "a list")
            return _written_out(template, outcome)
        case ListTemplate(element=element, length=length, is_tuple=is_tuple, is_array=is_array):
            _no_axis(out_axes, outcome.function, "a list")
            held = outcome.results[length]
            assert isinstance(held, RaggedResult)
            return Ragged(build(element, outcome.inside(held)), held.offsets, is_tuple, is_array)
        case Fixed(value=value):
            return _fixed(value, outcome, out_axes)
        case Output() | Container() | OptionalTemplate() | ChoiceTemplate() | Pointer():
            _no_axis(out_axes, outcome.function, "structure")
            return Assembler(outcome).batch(template)
        case _:
            assert_never(template)


def holds_arrays(template: Template) -> bool:
    """Is a result arrays of numbers alone, and containers of these?"""
    match template:
        case Output(type=type):
            return isinstance(type, Array)
        case Container(kind="tuple" | "namedtuple" | "dict" | "pytree", children=children):
            return all(map(holds_arrays, children))
        case _:
            return False


def of_arrays(template: Template, arrays: Sequence[Any]) -> Any:
    """Such a result with axis 0 in front, without a look at what else a result may be: its call is one whose time
    counts."""
    if isinstance(template, Output):
        return arrays[template.index]
    assert isinstance(template, Container)
    return _container(template, [of_arrays(t, arrays) for t in template.children])


def is_structure(template: Output, held: Result) -> bool:
    """Is a result rows of structure, or words that are numbers?"""
    words = isinstance(element_type(template.type), Tag)
    return isinstance(held, StructureResult) or (words and isinstance(held, ArrayResult))


def _fixed(value: Any, outcome: Outcome, out_axes: Any) -> Any:
    """A result that is known without any example."""
    known = isinstance(value, (str, enum.Enum, bool, int, float, complex, np.ndarray))
    if value is None or not known or out_axes is None:
        return value
    if isinstance(value, (str, enum.Enum)):
        _no_axis(out_axes, outcome.function, "structure")
        return Assembler(outcome).batch(Fixed(value))
    try:
        whole = jnp.asarray(value)
    except OverflowError:
        raise BatchError(
            f"{outcome.function}: the result {value} does not fit into an int of JAX; write it as a float, or turn on "
            "jax_enable_x64"
        ) from None
    return _placed(jnp.broadcast_to(whole, (outcome.count, *whole.shape)), out_axes, outcome.function)


_registered: dict[type, bool] = {}


def is_registered(cls: type) -> bool:
    """Are instances of a class pytrees to JAX?"""
    if cls not in _registered:
        try:
            instance: Any = object.__new__(cls)
            _registered[cls] = not is_leaf(jax.tree.structure(instance, is_leaf=lambda x: x is not instance))
        except AttributeError:
            _registered[cls] = True  # JAX looked for fields that the empty instance has not
    return _registered[cls]


def _numbers(template: Output, outcome: Outcome, out_axes: Any) -> Any:
    held = outcome.results[template.index]
    match held:
        case ArrayResult(values=values):
            if out_axes is None:
                return _once(template, values, outcome)
            return _placed(values, out_axes, outcome.function)
        case RaggedResult():
            _no_axis(out_axes, outcome.function, "a list")
            return Ragged(build(template, outcome.inside(held)), held.offsets)
        case StructureResult():
            raise AssertionError("structure is assembled")
        case _:
            assert_never(held)


def _once(template: Output, values: Any, outcome: Outcome) -> Any:
    if (span := outcome.reached(template.index)) is not None:
        excerpt = f"\n{held}" if (held := span.excerpt()) else ""
        raise BatchError(
            f"{span}: {outcome.function}: out_axes=None returns a result once, but this one depends on a batched "
            f"argument; give it the axis 0{excerpt}"
        )
    if outcome.count == 0:
        raise BatchError(f"{outcome.function}: out_axes=None needs at least one example to compute the result")
    return values[0]


def _placed(values: Any, axis: Any, function: str) -> Any:
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise BatchError(f"{function}: out_axes gives an array the entry {axis!r}; it takes an int or None")
    if not -values.ndim <= axis < values.ndim:
        raise BatchError(f"{function}: out_axes={axis} does not exist in a result of {values.ndim} axes")
    if axis == 0:
        return values
    return values.with_axis(0, axis) if isinstance(values, DeviceArray) else jnp.moveaxis(values, 0, axis)


def _no_axis(axis: Any, function: str, what: str) -> None:
    if axis != 0 or isinstance(axis, bool):
        raise BatchError(f"{function}: out_axes is {axis!r} for a result that is {what}; it can be 0 only")


def _prefix(axes: Any, template: Container, function: str) -> list[Any]:
    """One entry of out_axes for each child of a container."""
    if axes is None or isinstance(axes, int):
        return [axes] * len(template.children)
    if template.kind == "dict":
        fits = isinstance(axes, dict) and axes.keys() == set(template.keys)
        parts = [axes[k] for k in template.keys] if fits else []
    else:
        parts = jax.tree.leaves(axes, is_leaf=lambda x: x is not axes)
        fits = len(parts) == len(template.children) and _is_like(axes, template)
    if not fits:
        raise BatchError(
            f"{function}: out_axes={axes!r} is not a prefix of the result, a {template.kind} of "
            f"{len(template.children)}"
        )
    return parts


def _is_like(axes: Any, template: Container) -> bool:
    """Is it a container of that kind? A tuple or list may stand for a tuple or NamedTuple."""
    if template.kind in ("tuple", "namedtuple") and type(axes) in (tuple, list):
        return True
    return (template.cls is None and template.kind == "pytree") or type(axes) is template.cls


def _container(template: Container, parts: list[Any]) -> Any:
    match template.kind:
        case "tuple":
            return tuple(parts)
        case "dict":
            return dict(zip(template.keys, parts, strict=True))
        case "namedtuple":
            assert template.cls is not None
            return template.cls(*parts)
        case _:
            return jax.tree.unflatten(template.treedef, parts)


def _written_out(template: Container, outcome: Outcome) -> Ragged:
    """`return [h, c]`: as many elements in every example, woven into one column."""
    parts = [build(c, outcome, 0) for c in template.children]
    length, count = len(parts), outcome.count
    if not parts:  # the type of the elements is unknown: there are none
        return Ragged(jnp.zeros(0), jnp.zeros(count + 1, jnp.int32))

    def woven(*columns: Any) -> Any:
        rows = jnp.stack(columns, axis=1)
        return rows.reshape(count * length, *rows.shape[2:])

    return Ragged(jax.tree.map(woven, *parts), outcome.firsts * length)


# ---- objects
#
# Results as Python objects: `unbatch` takes a batched result apart, `stack` puts results of examples together.


PACKED = (Batch, Ragged, Objects)


@entry
def unbatch(result: Any) -> list[Any]:
    """The results of the examples, as Python objects: a list of B.

    Entries of shape () become Python numbers, others NumPy arrays, rows of a Ragged lists, rows of a Batch objects of
    their class, made without calling `__init__`.

    >>> unbatch((np.arange(2), np.ones((2, 3))))
    [(0, array([1., 1., 1.])), (1, array([1., 1., 1.]))]
    """
    if not jax.tree.leaves(result, is_leaf=lambda x: isinstance(x, PACKED)):
        raise BatchError("nothing in this result is batched, so its number of examples is unknown")
    return unbatched(result, Common())


def unbatched(result: Any, common: Common) -> list[Any]:
    """The same; `common`: objects that are there already."""
    return _entries(result, None, common)


def _entries(result: Any, count: int | None, common: Common) -> list[Any]:
    """The entries of all parts of a result side by side: the first `count` of them."""
    leaves, tree = jax.tree.flatten(result, is_leaf=lambda x: isinstance(x, PACKED))
    columns = [_rows(leaf, common)[:count] for leaf in leaves]
    if len({len(c) for c in columns}) > 1:
        raise BatchError(f"the parts of this result have different numbers of examples: {[len(c) for c in columns]}")
    if jax.tree_util.treedef_is_leaf(tree):
        return columns[0]
    if type(result) is tuple and tree == _tuple_of(len(result)):  # `unflatten` takes ten times as long
        return list(zip(*columns, strict=True))
    entries = [jax.tree.unflatten(tree, row) for row in zip(*columns, strict=True)]
    return [_in_order(e, result) for e in entries] if _has_order(result) else entries


@lru_cache(maxsize=64)
def _tuple_of(length: int) -> Any:
    """The structure of a tuple of leaves."""
    return jax.tree.structure((0,) * length)


def _has_order(result: Any) -> bool:
    """Is there a dict in it whose keys are not in the order that JAX gives dicts?"""
    if type(result) is dict:
        return list(result) != list(jax.tree.map(lambda x: 0, result, is_leaf=lambda x: x is not result)) or any(
            map(_has_order, result.values())
        )
    return isinstance(result, (tuple, list)) and any(map(_has_order, result))


def _in_order(entry: Any, result: Any) -> Any:
    """The same entry with its dicts in the order of the result's."""
    if type(result) is dict:
        return {k: _in_order(entry[k], part) for k, part in result.items()}
    if not isinstance(result, (tuple, list)):
        return entry
    parts = [_in_order(x, part) for x, part in zip(entry, result, strict=True)]
    return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)


def _rows(leaf: Any, common: Common) -> list[Any]:
    if isinstance(leaf, Batch):
        return leaf.to_list_with(common, leaf.tokens())
    if isinstance(leaf, Objects):
        return leaf.to_list()
    if isinstance(leaf, Ragged):
        if leaf.is_arrays:
            return leaf.to_list()
        bounds = np.asarray(leaf.offsets).tolist()
        packed = jax.tree.leaves(leaf.values, is_leaf=lambda x: isinstance(x, PACKED))
        rows = _entries(leaf.values, bounds[-1], common) if packed else [leaf.values] * bounds[-1]
        lists = [rows[a:b] for a, b in pairwise(bounds)]
        return list(map(tuple, lists)) if leaf.is_tuples else lists
    if isinstance(leaf, jax.core.Tracer):
        raise BatchError("ab.unbatch needs known values; call it outside jax.jit")
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return list(leaf)
    if not isinstance(leaf, (np.ndarray, jax.Array)) or leaf.ndim == 0:
        raise BatchError(f"ab.unbatch takes the result of a batched call; {leaf!r} has no axis of examples")
    array = np.asarray(leaf)
    return array.tolist() if array.ndim == 1 else list(array)


def stack(results: Sequence[Any], function: str) -> Any:
    """What a batched call would return for these results of single examples."""
    if not results:
        raise BatchError(f"{function}: the batch is empty, and without compiling the types of its results are unknown")
    first = results[0]
    if all(r is None for r in results):
        return None
    if any(isinstance(r, (list, range)) for r in results):
        return _stack_lists(results, function)
    if all(_is_number(r) for r in results) and (stacked := _stack_numbers(results)) is not None:
        return stacked
    if not isinstance(first, str) and all(type(r) is type(first) for r in results):
        leaves, tree = jax.tree.flatten(first, is_leaf=lambda x: x is not first)
        if not is_leaf(tree):
            rows = [jax.tree.flatten(r, is_leaf=lambda x, r=r: x is not r) for r in results]  # type: ignore[misc]
            if all(same_structure(t, tree) for _, t in rows):
                parts = [stack([row[k] for row, _ in rows], function) for k in range(len(leaves))]
                return jax.tree.unflatten(tree, parts)
    return pack(list(results))


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, np.generic, np.ndarray, jax.Array))


def _stack_numbers(results: Sequence[Any]) -> Any:
    """One array, a number broadcast to the shape of the arrays beside it; None where their shapes differ."""
    if all(isinstance(r, (bool, int, float, complex)) for r in results):
        return jnp.asarray(np.array(list(results)))
    arrays = [jnp.asarray(r) for r in results]
    try:
        shape = jnp.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return None  # a Batch of arrays
    return jnp.stack([jnp.broadcast_to(a, shape) for a in arrays])


def _stack_lists(results: Sequence[Any], function: str) -> Ragged:
    rows = [x for r in results for x in r]
    offsets = np.cumsum([0, *(len(r) for r in results)]).astype(np.int32)
    return Ragged(stack(rows, function) if rows else jnp.zeros(0), jnp.asarray(offsets))
