"""Results of different lengths: the rows of all examples one after another, and where each example's begin."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.data.columns import ROOT, ROOT_MISSING, Columns, Ints, Schema, columns_of, has_mask
from autobatch.data.leaves import Category, category, join, type_of_value
from autobatch.errors import BatchError
from autobatch.ir.core import Array, List, Type


@runtime_checkable
class ListedRows(Protocol):
    """Rows that are no array: a `Ragged`, or packed objects (a `Batch`)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...

    def to_list(self) -> list[Any]: ...


@partial(jax.tree_util.register_dataclass, data_fields=("values", "offsets"), meta_fields=("is_tuples", "is_arrays"))
@dataclass(frozen=True, eq=False)
class Ragged:
    """A batch of lists: list i holds the rows `offsets[i]:offsets[i + 1]` of `values`.

    Args:
      values: an array with the rows of all lists on axis 0, a `Batch` (lists of strings or objects), a `Ragged` (lists
        of lists), or a pytree of these. Rows past `offsets[-1]` are capacity: zero, and never read.
      offsets: int32[B + 1], from 0, not decreasing.
      is_tuples: does `ab.unbatch` give a tuple for each list?
      is_arrays: does it give an array?

    A pytree of `values` and `offsets`, so it passes through `jax.jit` and `jax.grad`.

    >>> import numpy as np
    >>> r = Ragged(np.array([6, 2, 4]), np.array([0, 2, 3]))
    >>> len(r), r.to_list(), r[0]
    (2, [[6, 2], [4]], array([6, 2]))
    >>> words = Ragged(r, np.array([0, 2, 2]))      # one example of two lists, one of none
    >>> words.to_list()
    [[[6, 2], [4]], []]
    """

    values: Any
    offsets: Any
    is_tuples: bool = field(default=False, repr=False)
    is_arrays: bool = field(default=False, repr=False)

    def __len__(self) -> int:
        """The number of lists."""
        return int(self.offsets.shape[0]) - 1

    def __getitem__(self, index: int) -> Any:
        """List `index` (negative ones count from the end): its rows of `values`, in the same structure.

        >>> import numpy as np
        >>> Ragged({"x": np.arange(3.0)}, np.array([0, 2, 3]))[-1]
        {'x': array([2.])}
        """
        i = int(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"list {i} of a Ragged that has {len(self)}")
        i %= max(len(self), 1)
        return _rows(self.values, *self._bounds("indexing")[i : i + 2].tolist())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> Any:
        """int32[B]: the number of rows of each list.

        >>> import numpy as np
        >>> Ragged(np.array([6, 2, 4]), np.array([0, 2, 3])).lengths
        array([2, 1])
        """
        return self.offsets[1:] - self.offsets[:-1]

    def to_list(self) -> list[Any]:
        """Python lists, or arrays where `is_arrays` says so. Entries of shape () become Python numbers, other entries
        NumPy arrays.

        >>> import numpy as np
        >>> Ragged((np.array([1, 2]), np.eye(2)), np.array([0, 1, 2])).to_list()
        [[(1, array([1., 0.]))], [(2, array([0., 1.]))]]
        """
        bounds = self._bounds("to_list")
        if self.is_arrays and isinstance(self.values, np.ndarray | jax.Array):
            return [np.asarray(self.values)[a:b] for a, b in pairwise(bounds.tolist())]
        entries = _entries(self.values, int(bounds[-1]))
        lists = [entries[a:b] for a, b in pairwise(bounds.tolist())]
        return list(map(np.array, lists)) if self.is_arrays else lists

    def to_padded(self, fill: Any = 0, length: int | None = None) -> tuple[Any, Any]:
        """The lists as one rectangle: `(array, mask)`, both with the axes list, position; `mask` is true at rows.

        Args:
          fill: what stands behind the end of a list; converted to the dtype of `values`.
          length: the number of positions. The longest list by default, which needs known offsets: under `jax.jit` it
            must be given. Longer lists are cut.

        Nested lists are padded at every level. A pytree of values gives a pytree of arrays, with one mask.

        >>> import numpy as np
        >>> array, mask = Ragged(np.array([6, 2, 4]), np.array([0, 2, 3])).to_padded(-1)
        >>> array.tolist(), mask.tolist()
        ([[6, 2], [4, -1]], [[True, True], [True, False]])
        """
        if length is None:
            bounds = self._bounds("to_padded without `length`")
            length = int(np.diff(bounds).max(initial=0))
        offsets = jnp.asarray(self.offsets)
        position = jnp.arange(length)
        mask = position < (offsets[1:] - offsets[:-1])[:, None]
        rows = jnp.where(mask, offsets[:-1, None] + position, 0)
        if any(map(_is_packed, jax.tree.leaves(self.values, is_leaf=_is_listed))):
            raise BatchError("only numbers are padded; this list holds objects or strings: use to_list()")
        if isinstance(self.values, Ragged):
            inner, inner_mask = self.values.to_padded(fill)
            padded = jax.tree.map(lambda x: _pick(x, rows, mask, fill), inner)
            return padded, _pick(inner_mask, rows, mask, False)
        return jax.tree.map(lambda x: _pick(x, rows, mask, fill), self.values), mask

    def __repr__(self) -> str:
        return f"Ragged(values={_words(self.values)}, offsets={_words(self.offsets)})"

    def _bounds(self, use: str) -> np.ndarray[Any, Any]:
        if isinstance(self.offsets, jax.core.Tracer):
            raise BatchError(f"{use} needs the lengths of the lists, which are not known under a JAX transform")
        return np.asarray(self.offsets)


def _rows(values: Any, begin: int, end: int) -> Any:
    """The rows `begin:end` of everything in `values`."""
    if isinstance(values, Ragged):
        bounds = values.offsets[begin : end + 1]
        return Ragged(_rows(values.values, int(bounds[0]), int(bounds[-1])), bounds - bounds[0])
    return jax.tree.map(
        lambda x: _rows(x, begin, end) if isinstance(x, Ragged) else x[begin:end], values, is_leaf=_is_listed
    )


def _entries(values: Any, count: int) -> list[Any]:
    """The first `count` rows, each as a Python object."""
    leaves, structure = jax.tree.flatten(values, is_leaf=_is_listed)
    columns = [x.to_list()[:count] if isinstance(x, ListedRows) else _scalars(np.asarray(x)[:count]) for x in leaves]
    return [jax.tree.unflatten(structure, row) for row in zip(*columns, strict=True)] if leaves else [values] * count


def _scalars(array: np.ndarray[Any, Any]) -> list[Any]:
    return list(array) if array.ndim > 1 else list(array.tolist())


def _pick(array: Any, rows: jax.Array, mask: jax.Array, fill: Any) -> jax.Array:
    """`array[rows]` where `mask`, else `fill`."""
    array = jnp.asarray(array)
    filled = jnp.full((*mask.shape, *array.shape[1:]), fill, array.dtype)
    if array.shape[0] == 0:
        return filled
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (array.ndim - 1)), array[rows], filled)


def _is_listed(x: Any) -> bool:
    return isinstance(x, ListedRows)


def _is_packed(x: Any) -> bool:
    return _is_listed(x) and not isinstance(x, Ragged)


def _words(x: Any) -> str:
    if isinstance(x, (np.ndarray, jax.Array)) and not isinstance(x, jax.core.Tracer) and x.size <= 32:
        return repr(np.asarray(x).tolist())
    if isinstance(x, (np.ndarray, jax.Array)):
        return f"{x.dtype}[{', '.join(map(str, x.shape))}]"
    return repr(x)


# ---- shapes
#
# Arrays whose shape differs by example: which examples go together, and ragged arrays of one shape made dense.
#
# One column holds arrays of one shape, or rows of arrays that differ in the first axis. Examples whose arrays differ
# more than that do not fit into one set of columns; but all of one kind do.
#
#     examples   Photo(float32[3, 4])  Photo(float32[2, 5])  Photo(float32[7, 4])
#     kind       0                     1                     0                        `Difference.kinds`
#     columns    Photo.image: ragged rows float32[4] of 0 and 2;  Photo.image: float32[2, 5] of 1
#
# Where a function needs the arrays of a ragged column whole, its examples are told apart by length too, and the columns
# of those of one length are made dense.


AnyArray = np.ndarray[Any, Any]
CURE = "pad them to one shape"


@dataclass(frozen=True, eq=False)
class ShapeDifference:
    """Arrays that differ in shape between examples. `where` is a path of their type, as `Photo.image`; `kinds` is the
    number of a kind for each example, -1 for those without such an array; `words` says what each kind is."""

    where: str
    kinds: Ints
    words: tuple[str, ...]

    def __str__(self) -> str:
        shown = [f"{word} in examples[{int(np.flatnonzero(self.kinds == k)[0])}]" for k, word in enumerate(self.words)]
        more = f" and {len(shown) - 8} more shapes" if len(shown) > 8 else ""
        return f"{self.where} differs in shape between examples: {', '.join(shown[:8])}{more}"


class ShapesDiffer(BatchError):
    """These examples do not fit into one set of columns, but those of one kind do. `differences` is not empty, and all
    are of the same examples."""

    def __init__(self, differences: Sequence[ShapeDifference], subject: Any = None) -> None:
        self.differences, self.subject = tuple(differences), subject
        super().__init__(f"{'; '.join(map(str, differences))}; {CURE}, or pass those of one shape together")

    def members(self, limit: int) -> list[Ints]:
        """The examples of each group, the groups in the order of their first examples. Raises BatchError where there
        are more than `limit`."""
        kinds = np.stack([np.maximum(d.kinds, 0) for d in self.differences], 1)
        _, first, group = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        if len(first) > limit:
            raise BatchError(
                f"{'; '.join(map(str, self.differences))}: {len(first)} groups of examples by shape, and at most "
                f"{limit} are made; {CURE}, or allow more with ab.options(shape_groups={len(first)})"
            )
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        numbers = rank[group.reshape(-1)]
        return [np.flatnonzero(numbers == k) for k in range(len(first))]


class WithinOne(BatchError):
    """Arrays of one example, under one path, do not have one shape."""


def differing(where: str, values: Sequence[Any], examples: Ints, count: int) -> ShapeDifference | None:
    """How the leaves of one path differ in shape between `count` examples; `examples` is the example of each value.
    None where that is not what keeps them from being one column. Raises BatchError where two of one example differ in
    more than the first axis: such an example fits into no column."""
    types: list[Array | None] = []
    scalar: Type | None = None
    for value in values:
        kind = category(type(value))
        if kind is Category.NONE:
            types.append(None)
            continue
        try:
            found = type_of_value(value) if kind in (Category.ARRAY, Category.NUMBER) else None
        except TypeError:
            return None
        if not isinstance(found, Array):
            return None
        scalar = replace(found, shape=()) if scalar is None else join(scalar, replace(found, shape=()))
        if scalar is None:
            return None  # they differ in dtype
        types.append(found)
    kinds: dict[tuple[int, ...], int] = {}
    by_example = np.full(count, -1, np.int64)
    first: dict[int, Array] = {}
    for example, held in zip(examples.tolist(), types, strict=True):
        if held is None:
            continue
        number = kinds.setdefault((len(held.shape), *held.shape[1:]), len(kinds))
        if by_example[example] not in (-1, number):
            raise within_one(where, example, first[example].shape, held.shape)
        by_example[example] = number
        first.setdefault(example, held)
    if len(kinds) < 2:
        return None
    examples_of = [[t.shape for e, t in first.items() if by_example[e] == k] for k in kinds.values()]
    return ShapeDifference(where, by_example, tuple(_shapes_in_words(shapes) for shapes in examples_of))


def within_one(where: str, example: int, a: tuple[int, ...], b: tuple[int, ...], needed: str = "") -> WithinOne:
    """The error for arrays of one example that would have to have one shape."""
    why = needed or "arrays under one path may differ in the first axis only"
    return WithinOne(
        f"examples[{example}]: {where} holds arrays of the shapes {_spelt(a)} and {_spelt(b)} in one example: {why}; "
        f"{CURE}, or give them fields of their own"
    )


def _shapes_in_words(shapes: Sequence[tuple[int, ...]]) -> str:
    """The shapes of a kind: they may differ in the first axis."""
    distinct = list(dict.fromkeys(shapes))
    return _spelt(distinct[0]) if len(distinct) == 1 else f"(n, {', '.join(map(str, distinct[0][1:]))})"


def _spelt(shape: tuple[int, ...]) -> str:
    return str(tuple(int(n) for n in shape))


def array_shapes(schema: Schema) -> dict[str, str]:
    """The shape of the arrays in each column of a schema, in words: `(3, 4)`, or `(n, 4)` of ragged ones."""
    ragged = {s.name for s in schema.lists if s.from_array}
    found = {f.column: f.type for s in schema.stores for f in s.fields if f.column not in ragged}
    found |= {s.name: s.elem for s in schema.lists}
    found |= {} if ROOT in ragged else {ROOT: schema.root}
    words = {}
    for name, type in found.items():
        if isinstance(type, Array):
            where = "one example" if name == ROOT else name
            words[where] = (
                _shapes_in_words([type.shape]) if name not in ragged else f"(n, {', '.join(map(str, type.shape))})"
            )
    return words


def distinguishing(schemas: Sequence[Schema]) -> list[dict[str, str]]:
    """Of the shapes of arrays in each of some schemas, those that are not the same in all of them."""
    shapes = [array_shapes(s) for s in schemas]
    differ = [n for n in dict.fromkeys(n for s in shapes for n in s) if len({s.get(n) for s in shapes}) > 1]
    return [{n: s[n] for n in differ if n in s} for s in shapes]


def group_title(number: int, count: int, members: Ints, shapes: Mapping[str, str]) -> str:
    """Which examples a group has, and what tells it from the others."""
    shown = ", ".join(map(str, members[:8].tolist())) + (", ..." if len(members) > 8 else "")
    held = "; ".join(f"{name} {words}" for name, words in shapes.items())
    plural = "" if len(members) == 1 else "s"
    return f"group {number + 1} of {count}: {len(members):,} example{plural} ({shown}): {held}"


# ---- ragged columns made dense


def ragged_names(schema: Schema) -> list[str]:
    """The lists of a schema that were arrays."""
    return [s.name for s in schema.lists if s.from_array]


def lengths_differ(columns: Columns, names: Collection[str], reasons: Mapping[str, str]) -> list[ShapeDifference]:
    """How the arrays in some ragged columns differ in length between examples. Raises BatchError where two of one
    example do; `reasons` says why they must not."""
    found = []
    for name in sorted(names):
        elem = columns.schema.list(name).elem
        assert isinstance(elem, Array)
        lengths = np.diff(columns.arrays[f"{name}.#offsets"]).astype(np.int64)
        starts = columns.starts[name]
        example = np.repeat(np.arange(columns.count), np.diff(starts))
        first = np.full(columns.count, -1, np.int64)
        first[example[::-1]] = lengths[::-1]
        where = "one example" if name == ROOT else name
        other = np.flatnonzero(lengths != first[example])
        if len(other):
            at = int(example[other[0]])
            one, two = ((int(n), *elem.shape) for n in (first[at], lengths[other[0]]))
            raise within_one(where, at, one, two, reasons[name])
        distinct, at_first = np.unique(first[first >= 0], return_index=True)
        order = np.argsort(at_first)
        number = np.empty(len(distinct), np.int64)
        number[order] = np.arange(len(distinct))
        kinds = np.where(first >= 0, number[np.searchsorted(distinct, np.maximum(first, distinct.min(initial=0)))], -1)
        words = tuple(_spelt((int(distinct[k]), *elem.shape)) for k in order)
        found.append(ShapeDifference(where, kinds, words))
    return found


def dense(columns: Columns, names: Collection[str]) -> Columns:
    """The same examples, with arrays of a fixed shape in the place of ragged ones: those in each of the lists `names`
    have one length."""
    for name in sorted(names):
        columns = _dense(columns, name)
    return columns


def _dense(columns: Columns, name: str) -> Columns:
    held = columns.schema.list(name)
    assert isinstance(held.elem, Array)
    lengths = np.diff(columns.arrays[f"{name}.#offsets"])
    length = int(lengths[0]) if len(lengths) else 0
    assert (lengths == length).all(), f"arrays of {name} differ in length"
    made = Array(held.elem.dtype, (length, *held.elem.shape))
    values = columns.arrays[f"{name}.#values"]
    rows = values.reshape(len(lengths), length, *values.shape[1:])

    def follow(entries: AnyArray) -> AnyArray:
        if not len(rows):
            return np.zeros((len(entries), *rows.shape[1:]), rows.dtype)
        there = (entries >= 0).reshape(-1, *(1,) * (rows.ndim - 1))
        return np.where(there, rows[np.maximum(entries, 0)], np.zeros((), rows.dtype))

    arrays = dict(columns.arrays)
    missing: dict[str, AnyArray] = {}
    for column in columns_of(columns.schema):
        if column.target == name:
            missing[column.name] = arrays[column.name] < 0
            arrays[column.name] = follow(arrays[column.name])
    schema = _schema_with(columns.schema, name, made, bool(missing.get(ROOT, np.zeros(0, bool)).any()))
    masked = [f.column for s in schema.stores for f in s.fields if has_mask(f)]
    masked += [f"{s.name}.#values" for s in schema.lists if has_mask(s)]
    arrays |= {f"{n}?": missing[n] for n in masked if n in missing}
    if ROOT in missing and schema.root_optional:
        arrays[ROOT_MISSING] = missing[ROOT]
    gone = {f"{name}.#offsets", f"{name}.#values"}
    starts = {space: s for space, s in columns.starts.items() if space not in (name, f"{name}.#values")}
    kept = {n: a for n, a in arrays.items() if n not in gone}
    return Columns(schema, columns.count, kept, starts, columns.vocabularies)


def _schema_with(schema: Schema, name: str, made: Array, root_missing: bool) -> Schema:
    """The schema with arrays of the type `made` in the place of the list `name`."""

    def replaced(type: Type) -> Type:
        if not isinstance(type, List):
            return type
        return made if type.store == name else List(replaced(type.elem), type.store)

    def is_it(type: Type) -> bool:
        return isinstance(type, List) and type.store == name

    stores = []
    for store in schema.stores:
        fields = [
            replace(f, type=replaced(f.type), optional=f.nullable if is_it(f.type) else f.optional)
            for f in store.fields
        ]
        stores.append(replace(store, fields=tuple(fields)))
    lists = [
        replace(s, elem=replaced(s.elem), optional=s.nullable if is_it(s.elem) else s.optional)
        for s in schema.lists
        if s.name != name
    ]
    optional = root_missing if is_it(schema.root) else schema.root_optional
    return Schema(replaced(schema.root), tuple(stores), tuple(lists), optional, schema.root_numpy, schema.root_nullable)
