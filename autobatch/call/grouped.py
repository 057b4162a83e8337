"""`GroupedBatch`: examples whose arrays differ in shape, in groups of one shape; packing that makes such batches.

    examples     Photo(3x4)  Photo(5x6)  Photo(3x4)
    groups       Batch[Photo(3x4), Photo(3x4)]   Batch[Photo(5x6)]      each of its own schema
    order        0           2           1                              where each example is in the groups, end to end

Groups may have more examples than the order refers to: the counts of groups that are cut from a batch are rounded up by
repeating examples, so that minibatches of one data set fall into few size classes. Nobody reads what is computed for
those.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import transfer
from autobatch.call.batches.batch import Batch, index_on_host, pack_fresh, schema_like
from autobatch.call.batches.batch import pack as pack_columns
from autobatch.call.batches.groups import BatchForm, BatchLeaves, Group
from autobatch.data.columns import Columns, Ints, offsets_of, positions
from autobatch.data.ragged import ShapesDiffer, dense, lengths_differ
from autobatch.data.schema import Schema
from autobatch.data.storage import load_groups, save_groups
from autobatch.data.together import width_of
from autobatch.errors import BatchError, entry
from autobatch.options import current

T = TypeVar("T")


@jax.tree_util.register_pytree_with_keys_class
class GroupedBatch(Batch):
    """A `Batch` whose examples have arrays of different shapes. `groups` are ordinary batches; example i is the one at
    position `order[i]` of all examples of the groups, one group after another. A pytree."""

    __slots__ = ("groups", "order")

    def __init__(self, groups: Sequence[Batch], order: Any) -> None:
        self._group, self._leaves, self._form, self._component = None, None, None, None
        self.groups, self.order = _flat(groups, order)

    # -- as a pytree

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], Any]:
        key = jax.tree_util.GetAttrKey
        order = transfer.canonical(self.order) if isinstance(self.order, np.ndarray) else self.order
        return ((key("groups"), self.groups), (key("order"), order)), None

    @classmethod
    def tree_unflatten(cls, form: Any, children: tuple[Any, Any]) -> GroupedBatch:
        made = cls.__new__(cls)
        made._group, made._leaves, made._form, made._component = None, None, None, None
        made.groups, made.order = children
        return made

    def parts(self) -> tuple[BatchLeaves, BatchForm]:
        raise self._no_single("columns")

    # -- on the host

    @property
    def is_traced(self) -> bool:
        return isinstance(self.order, jax.core.Tracer) or any(g.is_traced for g in self.groups)

    @property
    def component(self) -> int | None:
        return self.groups[0].component

    def group(self) -> Group:
        raise self._no_single("columns")

    def columns(self) -> Columns:
        raise self._no_single("columns")

    @property
    def schema(self) -> Schema:
        raise self._no_single("a schema")

    def _no_single(self, what: str) -> BatchError:
        return BatchError(
            f"the arrays of these examples differ in shape, so they are in {len(self.groups)} groups, each with "
            f"{what} of its own: see batch.groups"
        )

    @property
    def nbytes(self) -> int:
        return sum(g.nbytes for g in self.groups)

    def __len__(self) -> int:
        return int(self.order.shape[0])

    def __repr__(self) -> str:
        return f"Batch({len(self)} examples in {len(self.groups)} groups by shape)"

    def __deepcopy__(self, memo: Any) -> Batch:
        return GroupedBatch([copy.deepcopy(g, memo) for g in self.groups], np.array(self.order))

    def __reduce__(self) -> Any:
        return GroupedBatch, (self.groups, np.asarray(self.order))

    def to_list(self) -> list[Any]:
        rows = [x for g in self.groups for x in g.to_list()]
        return [rows[k] for k in np.asarray(self.order).tolist()]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)) and not isinstance(index, (bool, np.bool_)):
            if not -len(self) <= index < len(self):
                raise IndexError(f"example {index} of a batch of {len(self)}")
            group, row = self.place(np.asarray(self.order)[[int(index)]])
            return self.groups[int(group[0])][int(row[0])]
        return self.take(positions(index_on_host(index), len(self)))

    def take(self, chosen: Ints) -> Batch:
        """A batch of some of the examples; groups without any are left out."""
        group, row = self.place(np.asarray(self.order)[chosen])
        if not len(chosen):
            return self.groups[0][chosen]  # type: ignore[no-any-return]
        groups, members = [], []
        for k, held in enumerate(self.groups):
            mine = np.flatnonzero(group == k)
            if len(mine):
                members.append(mine)
                groups.append(held[rounded_up(row[mine])])
        return GroupedBatch(groups, order_of(members, list(map(len, groups))))

    def place(self, order: Ints) -> tuple[Ints, Ints]:
        """The group of each position, and the row in it."""
        bounds = offsets_of(np.array([len(g) for g in self.groups], np.int64))
        group = np.searchsorted(bounds, order, side="right") - 1
        return group, order - bounds[group]

    @property
    def args(self) -> tuple[Batch, ...]:
        found = tuple(zip(*(g.args for g in self.groups), strict=True))
        return (self,) if len(found) == 1 else tuple(GroupedBatch(groups, self.order) for groups in found)

    # -- plans and numbers, group by group

    def plan(self, *functions: Any, share: str = "batch") -> Batch:
        return GroupedBatch([g.plan(*functions, share=share) for g in self.groups], self.order)

    def epoch(self, order: Any) -> Batch:
        steps = np.asarray(index_on_host(order))
        if steps.ndim != 2 or 0 in steps.shape:
            raise BatchError(f"order has the shape {steps.shape}; it takes one row of examples for each step")
        group, row = self.place(np.asarray(self.order)[steps])
        made, places, base = [], np.zeros(steps.shape, np.int64), 0
        for k, held in enumerate(self.groups):
            mine = group == k
            width = int(mine.sum(1).max())
            if width == 0:
                continue
            rows = np.zeros((len(steps), width), np.int64)  # steps with fewer of this group repeat some
            for step in np.flatnonzero(mine.any(1)):
                rows[step] = np.resize(row[step][mine[step]], width)
            places = np.where(mine, base + np.cumsum(mine, 1) - 1, places)
            made.append(held.epoch(rows))
            base += width
        return GroupedBatch.tree_unflatten(None, (tuple(made), places.astype(np.int32)))

    def floats(self) -> dict[str, Any]:
        return {f"{k}:{name}": x for k, g in enumerate(self.groups) for name, x in g.floats().items()}

    def with_floats(self, tree: Mapping[str, Any]) -> Batch:
        names = self.floats().keys()
        for name in tree.keys() - names:
            raise BatchError(f"{name!r} is no column of floats of this batch; it has {', '.join(names) or 'none'}")
        made = []
        for k, held in enumerate(self.groups):
            mine = {n.removeprefix(f"{k}:"): x for n, x in tree.items() if n.startswith(f"{k}:")}
            made.append(held.with_floats(mine))
        return GroupedBatch(made, self.order)

    def save(self, path: Any) -> None:
        save_groups([g.columns() for g in self.groups], np.asarray(self.order), path)


def _flat(groups: Sequence[Batch], order: Any) -> tuple[tuple[Batch, ...], Any]:
    """Groups that are in groups themselves become groups of the whole."""
    flat: list[Batch] = []
    where, base = [], 0
    for g in groups:
        inner = g.groups if isinstance(g, GroupedBatch) else (g,)
        where.append(base + (g.order if isinstance(g, GroupedBatch) else np.arange(len(g))))
        flat += inner
        base += sum(map(len, inner))
    if len(flat) == len(groups):
        return tuple(groups), order
    traced = any(isinstance(x, jax.core.Tracer) for x in (order, *where))
    return tuple(flat), (jnp.concatenate(where)[order] if traced else np.concatenate(where)[np.asarray(order)])


# ---- groups of examples


def rounded_up(rows: Ints) -> Ints:
    """The rows, and so many of them once more that their number is of a class: 1, 2, 4, 8, 12, 16, 24, 32, 48, ..."""
    size = 1
    while size < len(rows):
        size = 2 * size if size < 8 else size + (size // 2 if size & (size - 1) == 0 else size // 3)
    return np.resize(rows, size) if len(rows) else rows


def order_of(members: Sequence[Ints], sizes: Sequence[int]) -> Ints:
    """Where each example is, of groups that begin with these members and have these sizes."""
    order = np.zeros(sum(map(len, members)), np.int64)
    base = 0
    for mine, size in zip(members, sizes, strict=True):
        order[mine] = base + np.arange(len(mine))
        base += size
    return order


def in_groups(make: Callable[[T], Batch], cut: Callable[[T, Ints], T], examples: T, limit: int) -> Batch:
    """What `make` makes of examples; a GroupedBatch where it says that their shapes differ."""
    try:
        return make(examples)
    except ShapesDiffer as differ:
        members = differ.members(limit)
        groups = [in_groups(make, cut, cut(examples, m), limit) for m in members]
        return GroupedBatch(groups, order_of(members, list(map(len, members))))


_whole: weakref.WeakKeyDictionary[Group, dict[frozenset[str], Batch]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def whole_arrays(group: Group, reasons: Mapping[str, str], limit: int) -> Batch:
    """The examples of a group, in groups by the lengths of the arrays in some ragged columns, which become dense. Made
    once for each data set; what is cut from one is cut from its groups, with their plans. `reasons` says for each
    column why it has to be."""
    names = frozenset(reasons)
    with _lock:
        known = _whole.setdefault(group, {})
        if names not in known:
            known[names] = _made_whole(group, reasons, limit)
        return known[names]


def _made_whole(group: Group, reasons: Mapping[str, str], limit: int) -> Batch:
    if group.origin is not None:
        try:
            return whole_arrays(group.origin[0], reasons, limit)[group.origin[1]]  # type: ignore[no-any-return]
        except BatchError:
            pass  # not all of the data set, but perhaps these examples
    columns, names = group.columns, list(reasons)
    members = ShapesDiffer(lengths_differ(columns, names, reasons)).members(limit)
    if len(members) == 1:
        return Batch(Group(dense(columns, names), group.width, group.planners))
    groups = [Batch(Group(dense(columns.take(m), names), group.width, group.planners)) for m in members]
    return GroupedBatch(groups, order_of(members, list(map(len, members))))


# ---- packing


@entry
def pack(examples: Sequence[Any], *, like: Any = None) -> Batch:
    """Pack examples into columns: a snapshot, which later changes of the objects do not reach.

    `like` is a `Batch` or an annotation (`list[int]`, a class) that fixes types which the examples may not show.
    Arrays may differ in shape between examples: in the first axis in any way, else in at most
    `ab.options(shape_groups=8)` ways.

    >>> len(pack([[1, 2], [3]]))
    2
    """
    if isinstance(examples, Batch):
        raise BatchError("these examples are packed already: a Batch was given")
    if not isinstance(examples, (list, tuple)):
        raise BatchError(f"ab.pack takes a list of examples, not a {type(examples).__name__}; for one example: `[x]`")
    if isinstance(like, GroupedBatch) and not examples:
        return like.take(np.zeros(0, np.int64))
    schemas = [g.schema for g in like.groups] if isinstance(like, GroupedBatch) else [schema_like(like)]
    return in_groups(
        lambda xs: Batch(Group(_packed(xs, schemas))),
        lambda xs, chosen: [xs[k] for k in chosen.tolist()],
        list(examples),
        current().shape_groups,
    )


def _packed(examples: list[Any], schemas: Collection[Schema | None]) -> Columns:
    """The examples as columns of one of these schemas, of the first that fits."""
    failed: BatchError | None = None
    for schema in schemas:
        if schema is None and examples:
            return pack_fresh(examples)
        try:
            return pack_columns(examples, schema)
        except BatchError as error:
            failed = error if failed is None or isinstance(error, ShapesDiffer) else failed
    assert failed is not None
    raise failed


@entry
def load(path: Any, classes: Sequence[type] = ()) -> Batch:
    """Read a batch that `Batch.save` wrote.

    The classes of its examples are found by their names in the modules that are imported already, and among `classes`:
    a file imports nothing, and none of its code is run. What it says is checked before it is used. Raises FileError,
    which names the part and the cure, for a file of another kind or version, for one that is damaged, and for classes
    that are not here."""
    found, order = load_groups(path, classes)
    groups = [Batch(Group(columns, width_of(columns.schema))) for columns in found]
    return groups[0] if order is None else GroupedBatch(groups, order)
