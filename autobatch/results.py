"""From what a program computes to what a batched call returns, and from there to Python objects.

template                          batched result
Output(0, float32[])          ->  array [B]
Container("tuple", ...)       ->  the same container of results
list of numbers               ->  Ragged(values, offsets)
class instance, tag, None ... ->  Batch: the columns of one object an example
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch import transfer
from autobatch.arguments import is_leaf
from autobatch.batch import Batch
from autobatch.errors import BatchError, Failure
from autobatch.frontend.statics import make_object
from autobatch.groups import Form, Leaves
from autobatch.ir.jax_compat import type_of
from autobatch.ir.template import Container, Fixed, Output, Template
from autobatch.ir.types import STR, Array, List, Ref, Tag, Type
from autobatch.pipeline import ArrayResult, RaggedResult, StructureResult
from autobatch.runtime.columns import ROOT, ROOT_MISSING
from autobatch.runtime.ragged import Ragged
from autobatch.runtime.schema import Class, Field, ListStore, Schema, Store

Result = ArrayResult | RaggedResult | StructureResult


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False)
class Failures:
    """The second result under `on_error="mask"`. `failed` is bool[B]; `details` describe failures that are known on
    the host: none under `jax.jit`."""

    failed: Any
    details: tuple[Failure, ...] = ()

    def __iter__(self) -> Any:
        return iter(self.details)

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[Failure, ...]]:
        return ((jax.tree_util.GetAttrKey("failed"), self.failed),), ()

    @classmethod
    def tree_unflatten(cls, details: tuple[Failure, ...], children: tuple[Any]) -> Failures:
        return cls(children[0], details)


@dataclass(frozen=True)
class Outcome:
    """What a call has computed, and what its structure refers to: `leaves` gives the columns of the examples, for
    results that are nodes of the input. `uniform(k)`: does no batched argument reach result k?"""

    function: str
    count: int
    results: Sequence[Result]
    schema: Schema
    leaves: Callable[[], dict[str, Any]]
    enums: tuple[tuple[str, type], ...]
    words: Mapping[str, Any]
    uniform: Callable[[int], bool]


def without_failed(outcome: Outcome, failed: Any) -> Outcome:
    """The same outcome with zero in the rows of failed examples."""

    def cleared(held: Result) -> Result:
        match held:
            case ArrayResult(values=values):
                return ArrayResult(_zeroed(values, failed))
            case StructureResult(rows=rows, type=type):
                return StructureResult(jnp.where(failed, -1 if isinstance(type, (Ref, List)) else 0, rows), type)
            case RaggedResult():
                return held  # a failed example has no rows
            case _:
                assert_never(held)

    return replace(outcome, results=[cleared(r) for r in outcome.results])


def poisoned(outcome: Outcome, stale: Any) -> Outcome:
    """The same outcome with NaN for floats where the plan is stale: no wrong number leaves the computation."""

    def marked(held: Result) -> Result:
        if not isinstance(held, ArrayResult) or not jnp.issubdtype(held.values.dtype, jnp.floating):
            return held
        return ArrayResult(jnp.where(stale, jnp.full((), jnp.nan, held.values.dtype), held.values))

    return replace(outcome, results=[marked(r) for r in outcome.results])


def _zeroed(values: Any, failed: Any) -> Any:
    if jnp.issubdtype(values.dtype, jax.dtypes.extended):
        return values
    return jnp.where(failed.reshape(-1, *(1,) * (values.ndim - 1)), jnp.zeros((), values.dtype), values)


def build(template: Template, outcome: Outcome, out_axes: Any = 0) -> Any:
    """The result of a batched call."""
    match template:
        case Output() if _is_numeric(template, outcome):
            return _numbers(template, outcome, out_axes)
        case Container(kind="tuple" | "namedtuple" | "dict" | "pytree"):
            axes = _prefix(out_axes, template, outcome.function)
            parts = [build(t, outcome, a) for t, a in zip(template.children, axes, strict=True)]
            return _container(template, parts)
        case Container(kind="object", cls=cls) if cls is not None and is_registered(cls):
            axes = _prefix(out_axes, template, outcome.function)
            parts = [build(t, outcome, a) for t, a in zip(template.children, axes, strict=True)]
            return make_object(cls, dict(zip(template.keys, parts, strict=True)))
        case Container(kind="list") if _alike(template, outcome):
            _no_axis(out_axes, outcome.function, "a list")
            return _fixed_lists(template, outcome)
        case Container(kind="rows"):
            _no_axis(out_axes, outcome.function, "a list")
            return _listing(template, outcome)
        case Fixed(value=None):
            return None
        case Fixed(value=value) if not isinstance(value, (str, enum.Enum, bool, int, float, complex, np.ndarray)):
            return value
        case Fixed(value=value) if not isinstance(value, (str, enum.Enum)):
            whole = jnp.asarray(value)
            return _placed(jnp.broadcast_to(whole, (outcome.count, *whole.shape)), out_axes, outcome.function)
        case _:
            _no_axis(out_axes, outcome.function, "structure")
            return _Assembler(outcome).batch(template)


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


def _is_numeric(template: Output, outcome: Outcome) -> bool:
    return template.optional is None and not isinstance(outcome.results[template.index], StructureResult)


def _numbers(template: Output, outcome: Outcome, out_axes: Any) -> Any:
    held = outcome.results[template.index]
    match held:
        case ArrayResult(values=values):
            if out_axes is None:
                return _once(template, values, outcome)
            return _placed(values, out_axes, outcome.function)
        case RaggedResult():
            _no_axis(out_axes, outcome.function, "a list")
            return _ragged(held, template.type, outcome)
        case StructureResult():
            return _Assembler(outcome).batch(template)
        case _:
            assert_never(held)


def _once(template: Output, values: Any, outcome: Outcome) -> Any:
    if not outcome.uniform(template.index):
        raise BatchError(
            f"{outcome.function}: out_axes=None returns a result once, but result {template.index} "
            "depends on a batched argument; give it the axis 0"
        )
    if outcome.count == 0:
        raise BatchError(f"{outcome.function}: out_axes=None needs at least one example to compute the result")
    return values[0]


def _placed(values: Any, axis: Any, function: str) -> Any:
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise BatchError(f"{function}: out_axes gives an array the entry {axis!r}; it takes an int or None")
    if not -values.ndim <= axis < values.ndim:
        raise BatchError(f"{function}: out_axes={axis} does not exist in a result of {values.ndim} axes")
    return values if axis == 0 else jnp.moveaxis(values, 0, axis)


def _no_axis(axis: Any, function: str, what: str) -> None:
    if axis != 0 or isinstance(axis, bool):
        raise BatchError(f"{function}: out_axes is {axis!r} for a result that is {what}; it can be 0 only")


def _prefix(axes: Any, template: Container, function: str) -> list[Any]:
    """One entry of out_axes for each child of a container."""
    if axes is None or isinstance(axes, int):
        return [axes] * len(template.children)
    held = axes.values() if isinstance(axes, dict) else jax.tree.leaves(axes, is_leaf=lambda x: x is not axes)
    if template.kind == "dict" and isinstance(axes, dict):
        held = [axes[k] for k in template.keys if k in axes]
    parts = list(held)
    if len(parts) != len(template.children):
        raise BatchError(
            f"{function}: out_axes={axes!r} is not a prefix of the result, a {template.kind} of "
            f"{len(template.children)}"
        )
    return parts


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


def _ragged(held: RaggedResult, type: Type, outcome: Outcome) -> Ragged:
    inner: Any = held.values
    assert isinstance(type, List)
    match inner:
        case ArrayResult(values=values):
            return Ragged(values, held.offsets)
        case RaggedResult():
            return Ragged(_ragged(inner, type.elem, outcome), held.offsets)
        case StructureResult():
            return Ragged(_Assembler(outcome).rows(inner), held.offsets)
        case _:
            assert_never(inner)


def _listing(template: Container, outcome: Outcome) -> Ragged:
    """A comprehension: its elements are results of their own, one row an element."""
    held = outcome.results[_first(template, outcome)]
    assert isinstance(held, RaggedResult)
    inner = [r.values if isinstance(r, RaggedResult) else r for r in outcome.results]
    count = _capacity(held.values)
    return Ragged(build(template.children[0], replace(outcome, results=inner, count=count)), held.offsets)


def _first(template: Template, outcome: Outcome) -> int:
    """A result that is part of a list."""
    match template:
        case Output(index=index):
            return index
        case Container(children=children) if children:
            return _first(children[0], outcome)
        case _:
            raise BatchError(
                f"{outcome.function}: the result holds a list of constants, whose length is not computed; put a number "
                "of the example into its elements"
            )


def _capacity(values: Any) -> int:
    """The number of rows of a result."""
    match values:
        case ArrayResult(values=array):
            return int(array.shape[0])
        case StructureResult(rows=rows):
            return int(rows.shape[0])
        case RaggedResult(offsets=offsets):
            return int(offsets.shape[0]) - 1
        case _:
            raise TypeError(f"{values!r} is no result of a program")


# ---- lists written out: `return [h, c]`


def _shape(template: Template, outcome: Outcome) -> Any:
    """What must agree between the elements of a list for them to be rows of one column."""
    match template:
        case Output() if isinstance(outcome.results[template.index], ArrayResult) and template.optional is None:
            return str(template.type)
        case Container(kind="tuple" | "namedtuple" | "dict" | "pytree" as kind):
            return (
                kind,
                template.keys,
                template.cls,
                template.treedef,
                *(_shape(c, outcome) for c in template.children),
            )
        case _:
            return object()


def _alike(template: Container, outcome: Outcome) -> bool:
    shapes = [_shape(c, outcome) for c in template.children]
    return all(s == shapes[0] for s in shapes)


def _fixed_lists(template: Container, outcome: Outcome) -> Ragged:
    parts = [build(c, outcome, 0) for c in template.children]
    length = len(parts)
    if not parts:  # the type of the elements is unknown: there are none
        return Ragged(jnp.zeros(0), jnp.zeros(outcome.count + 1, jnp.int32))

    def woven(*columns: Any) -> Any:
        rows = jnp.stack(columns, axis=1)
        return rows.reshape(outcome.count * length, *rows.shape[2:])

    values = jax.tree.map(woven, *parts)
    return Ragged(values, jnp.arange(outcome.count + 1, dtype=jnp.int32) * length)


# ---- structure


@dataclass
class _Cell:
    """A column under construction: one entry an example. `missing`: where it is None."""

    type: Type
    values: Any
    missing: Any = None


@dataclass
class _Assembler:
    """Columns of results that are structure: nodes of the input keep their stores, new objects get stores of their
    own with one row an example."""

    outcome: Outcome
    stores: list[Store] = field(default_factory=list)
    lists: list[ListStore] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    words: dict[str, list[Any]] = field(default_factory=dict)
    enums: dict[str, type] = field(default_factory=dict)
    reads_input: bool = False

    def batch(self, template: Template) -> Batch:
        """A Batch of one object an example."""
        return self.finish(self.cell(template), self.outcome.count)

    def rows(self, held: StructureResult) -> Batch:
        """A Batch of the rows that a result names."""
        self.reads_input = True
        return self.finish(_Cell(held.type, held.rows), int(held.rows.shape[0]))

    def finish(self, root: _Cell, count: int) -> Batch:
        leaves: dict[str, Any] = {}
        stores, lists = tuple(self.stores), tuple(self.lists)
        if self.reads_input:
            leaves |= {k: v for k, v in self.outcome.leaves().items() if k not in (ROOT, ROOT_MISSING)}
            stores, lists = (*self.outcome.schema.stores, *stores), (*self.outcome.schema.lists, *lists)
            self.enums |= dict(self.outcome.enums)
        leaves |= self.columns
        leaves[ROOT] = root.values
        if root.missing is not None:
            leaves[ROOT_MISSING] = root.missing
        for name, words in self.words.items():
            leaves[transfer.VOCABULARY + name] = transfer.encode(words)
        schema = Schema(root.type, stores, lists, root.missing is not None)
        return Batch.from_leaves(Leaves(leaves), Form(schema, count, 1, enums=tuple(self.enums.items())))

    def cell(self, template: Template) -> _Cell:
        match template:
            case Output():
                return self.output(template)
            case Fixed(value=value):
                return self.fixed(value)
            case Container(kind="list"):
                return self.listed(template)
            case Container(kind="rows"):
                return self.rows_of(template)
            case Container():
                return self.record(template)
            case _:
                assert_never(template)

    def output(self, template: Output) -> _Cell:
        held = self.outcome.results[template.index]
        missing = None
        if template.optional is not None:
            flag = self.outcome.results[template.optional]
            assert isinstance(flag, ArrayResult)
            missing = flag.values
        match held:
            case ArrayResult(values=values):
                return _Cell(template.type, values, missing)
            case StructureResult(rows=rows, type=type):
                if isinstance(type, Tag):
                    self.vocabulary(type)
                else:
                    self.reads_input = True
                return _Cell(type, rows, missing)
            case RaggedResult():
                return self.ragged(held, template.type)
            case _:
                assert_never(held)

    def vocabulary(self, type: Tag) -> None:
        """Tags are positions in the vocabulary of the input, and behind it the constants of the program."""
        name = transfer.VOCABULARY + type.vocabulary
        self.columns[name] = self.outcome.words[name]
        self.enums |= {n: c for n, c in self.outcome.enums if n == type.vocabulary}

    def fixed(self, value: Any) -> _Cell:
        count = self.outcome.count
        if value is None:
            return _Cell(Array("bool"), jnp.zeros(count, bool), jnp.ones(count, bool))
        if isinstance(value, (str, enum.Enum)):
            # a constant gets a vocabulary of its own: tags of the input need not contain it
            kind = Tag(f"{STR.vocabulary}:{len(self.words)}") if type(value) is str else Tag(_enum_name(type(value)))
            words = self.words.setdefault(kind.vocabulary, [])
            if isinstance(value, enum.Enum):
                self.enums[kind.vocabulary] = type(value)
            if value not in words:
                words.append(value)
            return _Cell(kind, jnp.full(count, words.index(value), jnp.int32))
        whole = jnp.asarray(value)
        return _Cell(type_of(value), jnp.broadcast_to(whole, (count, *whole.shape)))

    def name(self, wanted: str) -> str:
        taken = {s.name for s in (*self.outcome.schema.stores, *self.stores)}
        taken |= {s.name for s in (*self.outcome.schema.lists, *self.lists)}
        number, made = 1, wanted
        while made in taken:
            number += 1
            made = f"{wanted}_{number}"
        return made

    def record(self, template: Container) -> _Cell:
        """An object of every example, in a store of its own."""
        kind: Literal["object", "namedtuple", "tuple", "dict"]
        kind = template.kind if template.kind in ("tuple", "dict", "namedtuple") else "object"  # type: ignore[assignment]
        name = self.name(template.cls.__name__ if template.cls is not None else f"{template.kind}{len(template.keys)}")
        position = len(self.stores)
        self.stores.append(Store(name, (), ()))  # reserves the name while the children are built
        fields = []
        for key, child in zip(template.keys, template.children, strict=True):
            cell, column = self.cell(child), f"{name}.{key}"
            self.columns[column] = cell.values
            if cell.missing is not None:
                self.columns[f"{column}?"] = cell.missing
            fields.append(Field(str(key), cell.type, column, (0,), cell.missing is not None))
        self.stores[position] = Store(name, (Class(name, kind, template.cls),), tuple(fields))
        count = self.outcome.count
        self.columns[f"{name}.#tag"] = jnp.zeros(count, jnp.int32)
        self.columns[transfer.STARTS + name] = jnp.arange(count + 1, dtype=jnp.int32)
        return _Cell(Ref(name), jnp.arange(count, dtype=jnp.int32))

    def listed(self, template: Container) -> _Cell:
        """A list written out, whose elements may be objects."""
        cells = [self.cell(c) for c in template.children]
        if any(c.type != cells[0].type for c in cells):
            raise BatchError(
                f"{self.outcome.function}: the result holds a list whose elements differ in type: "
                f"{', '.join(str(c.type) for c in cells)}; return a tuple"
            )
        elem = cells[0].type if cells else Array("bool")
        count, length = self.outcome.count, len(cells)
        offsets = jnp.arange(count + 1, dtype=jnp.int32) * length
        values = jnp.stack([c.values for c in cells], 1) if cells else jnp.zeros((count, 0), bool)
        return self.list_store(elem, values.reshape(count * length, *values.shape[2:]), offsets, offsets)

    def rows_of(self, template: Container) -> _Cell:
        """A comprehension that an object holds."""
        child = template.children[0]
        if not isinstance(child, Output):
            raise BatchError(
                f"{self.outcome.function}: an object of the result holds a list of containers; return the list beside "
                "the object, in a tuple"
            )
        held = self.outcome.results[child.index]
        assert isinstance(held, RaggedResult)
        return self.ragged(held, child.type)

    def ragged(self, held: RaggedResult, type: Type) -> _Cell:
        assert isinstance(type, List)
        inner: Any = held.values
        match inner:
            case ArrayResult(values=values):
                return self.list_store(type.elem, values, held.offsets, held.offsets)
            case StructureResult(rows=rows):
                self.reads_input = True
                return self.list_store(inner.type, rows, held.offsets, held.offsets)
            case RaggedResult():
                raise BatchError(
                    f"{self.outcome.function}: an object of the result holds lists of lists; return them "
                    "beside the object, in a tuple"
                )
            case _:
                assert_never(inner)

    def list_store(self, elem: Type, values: Any, offsets: Any, starts: Any) -> _Cell:
        name = self.name("list")
        self.lists.append(ListStore(name, elem))
        count = self.outcome.count
        self.columns[f"{name}.#values"] = values
        self.columns[f"{name}.#offsets"] = offsets
        self.columns[transfer.STARTS + name] = jnp.arange(count + 1, dtype=jnp.int32)
        self.columns[transfer.STARTS + f"{name}.#values"] = starts
        return _Cell(List(elem, name), jnp.arange(count, dtype=jnp.int32))


def _enum_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
