"""`Batch` and `GroupedBatch`: packed examples, with the plans of the functions that will run on them; packing.

A batch lives on the host as a `Group`: columns, and for each planned function the rows of its activations. A minibatch
is a group that remembers which examples of which group it is: its plan is cut from the plan of the whole data set.

Under `jax.jit` a batch is its leaves (columns and plan tables, padded to a size class) and a `BatchForm`, the static
part, which is equal for all batches of one size class. It never holds the examples: they would be those of another
batch.

Examples whose arrays differ in shape are a `GroupedBatch`, in groups of one shape:

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
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm.reading import reading_machine
from autobatch.call import packed
from autobatch.call.packed import LIVE, TOKEN, BatchForm, BatchLeaves, Group, Specialised, flatten, with_rows
from autobatch.compiler.executables import moves
from autobatch.data.columns import ROOT, UNKNOWN, Columns, Ints, Schema, columns_of, offsets_of, positions
from autobatch.data.infer import merge, schema_of_annotation
from autobatch.data.pack import pack as pack_by
from autobatch.data.ragged import ShapesDiffer, dense, lengths_differ
from autobatch.data.storage import load_groups, save_groups
from autobatch.data.storage import save as save_columns
from autobatch.data.together import conform, width_of
from autobatch.data.unpack import Common, Token, tokens_of, unpack
from autobatch.errors import BatchError, PlanError, entry
from autobatch.ir.core import List, Ref, Tag
from autobatch.options import current
from autobatch.planning.plan import Share

# ---- packing
#
# Packing examples whose types are partly known: from calls before, from annotations, from their classes.


Declared = Callable[[], Schema] | None
"""What annotations say about the types of examples; read only where examples do not show them."""


def pack_batch(examples: Sequence[Any], like: Schema | None = None, keys_are_data: bool = False) -> Columns:
    """Examples as columns (`data/pack.py`), read by machine code where there is some."""
    return pack_by(examples, like, reading_machine(), keys_are_data or (like is not None and _keys_are_data(like)))


@lru_cache(maxsize=256)
def _keys_are_data(schema: Schema) -> bool:
    """Are strings keys of dicts there whose keys are data?"""
    tables = (s.fields[0].type for s in schema.stores if any(c.kind == "table" and c.cls is dict for c in s.classes))
    return any(isinstance(x, List) and isinstance(x.elem, Tag) for x in tables)


def pack_like(examples: Sequence[Any], seen: Sequence[Schema], declared: Declared, function: str) -> Columns:
    """Pack examples under a schema that was seen before, where their types join with it, else afresh. `declared`
    says what examples do not show: the types of no examples, and the elements of lists that are all empty."""
    for like in reversed(seen):
        try:
            found = pack_batch(examples, like)
        except BatchError:
            continue  # other types than before: another specialisation, or an error that packing afresh reports
        if found.schema.has_values and not like.has_values:  # no constant tells sorts apart that one had told afresh?
            afresh = pack_fresh(examples, declared)
            return afresh if afresh.schema.has_tags and not afresh.schema.has_values else found
        return found
    if not examples and declared is None:
        raise BatchError(
            f"{function}: the batch is empty and the types of its examples are unknown; annotate the "
            "parameter, or pack with ab.pack([], like=...)"
        )
    return pack_fresh(examples, declared)


def pack_fresh(examples: Sequence[Any], declared: Declared = None, keys_are_data: bool = False) -> Columns:
    """Pack examples; where all their lists are empty, annotations say what they hold."""
    columns = pack_batch(examples, None if examples or declared is None else declared(), keys_are_data)
    if unknown_lists(columns.schema) and declared is not None:
        columns = pack_batch(examples, declared(), keys_are_data)
    if unknown_lists(columns.schema) and (wider := _from_classes(columns.schema)) is not None:
        columns = pack_batch(examples, wider, keys_are_data)
    return columns


def unknown_lists(schema: Schema) -> list[str]:
    """Lists that are empty in all examples, so that the type of their elements is unknown."""
    return [s.name for s in schema.lists if s.elem == UNKNOWN and not s.optional]


def with_declared(columns: Columns) -> Columns:
    """The same columns; what the lists hold that are all empty, the annotations of the examples' classes say."""
    if not unknown_lists(columns.schema) or (wider := _from_classes(columns.schema)) is None:
        return columns
    return conform(columns, wider)


def _from_classes(schema: Schema) -> Schema | None:
    """What the annotations of the examples' classes add to a schema; None where they say nothing that fits."""
    made = schema
    for cls in (c.cls for s in schema.stores for c in s.classes if c.cls is not None):
        try:
            own = schema_of_annotation(cls)
        except (BatchError, NameError, TypeError):
            continue  # a class without annotations, or with some that name no type
        made = merged(replace(own, root=UNKNOWN, root_optional=True), made) or made
    return made if made != schema else None


def merged(a: Schema, b: Schema) -> Schema | None:
    try:
        return merge(a, b)
    except BatchError:
        return None


# ---- epochs
#
# Minibatches of one size class, stacked on a leading axis: what `batch.epoch` gives to `jax.lax.scan`.
#
#     order = [[0, 1], [2, 3]]        examples of each step
#     step 0      integers int32[4096], Node.value float32[24]        bound alone, each in a size class of its own
#     step 1      integers int32[5120], Node.value float32[30]
#     epoch       integers int32[2, 5120], Node.value float32[2, 30]  bound for capacities that hold every step
#
# Capacities of an epoch never fall below those of an earlier epoch of the same data set and batch size, so that epochs
# which are shuffled anew run on the executable that is there.


@dataclass
class Capacities:
    """What the epochs of one data set and batch size had room for: rows of each space of the columns, and for each
    program the signature that its tables were bound for."""

    rows: Mapping[str, int] = field(default_factory=dict)
    signatures: dict[str, Hashable] = field(default_factory=dict)


def stack(group: Group, steps: np.ndarray[Any, Any], component: int | None) -> tuple[BatchLeaves, BatchForm]:
    """The minibatches `steps[k]` of a group as leaves with a leading axis of steps."""
    groups = [group.take(row) for row in steps]
    programs = tuple(s for p in groups[0].planners for s in p.specialisations_for(groups[0]))
    if not programs:
        raise PlanError(
            "no function that the batch is planned for was ever called: plan it and call it on a small batch "
            "first, so that the types of its shared arguments are known"
        )
    met = _data_set(groups[0]).epochs.setdefault((steps.shape[1], group.schema), Capacities())
    for program in programs:
        met.signatures[program.fingerprint] = _bind_alike(groups, program, met.signatures.get(program.fingerprint))
    met.rows = _rows(groups, met.rows)
    parts = [flatten(g, programs, met.rows) for g in groups]
    columns, tables = jax.tree.map(lambda *xs: np.stack(xs), *((leaves.columns, leaves.tables) for leaves, _ in parts))
    plans = tuple(
        replace(held[0], failures=tuple(f for p in held for f in p.failures))
        for held in zip(*(form.plans for _, form in parts), strict=True)
    )
    return BatchLeaves(columns, tables), replace(parts[0][1], plans=plans, component=component, like=None)


def _data_set(group: Group) -> Group:
    """The group that a minibatch is cut from."""
    return group if group.origin is None else group.origin[0]


def _bind_alike(groups: Sequence[Group], program: Specialised, before: Hashable | None) -> Hashable:
    """Bind all groups for one signature, which is at least that of `before`."""
    own = [g.tables(program)[1] for g in groups]
    tables, common = program.bind(groups[0].plan(program), own if before is None else [*own, before])
    groups[0].keep_tables(program, tables, common)
    for group, signature in zip(groups[1:], own[1:], strict=True):
        if signature != common:
            group.keep_tables(program, *program.bind(group.plan(program), [common]))
    return common


def _rows(groups: Sequence[Group], before: Mapping[str, int]) -> dict[str, int]:
    """Capacities of the spaces of the columns that hold those of all groups, and what was there before."""
    found = [packed.capacities(g.columns, g.profile) for g in groups]
    return {space: max(before.get(space, 0), *(c[space] for c in found)) for space in found[0]}


@jax.tree_util.register_pytree_with_keys_class
class Batch:
    """B packed examples: what `ab.pack` makes, and what a batched function returns for structure.

    `batch[i]` is example i, `batch[indices]` (integers, a bool mask, a slice) a batch of some of them. A pytree.
    """

    __slots__ = ("__weakref__", "_component", "_form", "_group", "_leaves")

    def __init__(self, group: Group, component: int | None = None) -> None:
        self._group: Group | None = group
        self._component = component
        self._leaves: BatchLeaves | None = None
        self._form: BatchForm | None = None

    @classmethod
    def from_leaves(cls, leaves: BatchLeaves, form: BatchForm) -> Batch:
        """A batch that is its leaves: inside `jax.jit`, behind it, or made by a batched function."""
        made = cls.__new__(cls)
        made._group, made._leaves, made._form, made._component = None, leaves, form, form.component
        return made

    # -- as a pytree

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], BatchForm]:
        leaves, form = self.parts()
        key = jax.tree_util.GetAttrKey
        return ((key("columns"), leaves.columns), (key("plans"), leaves.tables)), form

    @classmethod
    def tree_unflatten(cls, form: BatchForm, children: tuple[Any, Any]) -> Batch:
        return cls.from_leaves(BatchLeaves(*children), form)

    def parts(self) -> tuple[BatchLeaves, BatchForm]:
        """Leaves and static part."""
        if self._group is not None:
            return self._group.leaves(self._component)
        assert self._leaves is not None and self._form is not None
        return self._leaves, self._form

    # -- on the host

    @property
    def on_host(self) -> Group | None:
        """The group of this batch where it never left the host."""
        return self._group

    @property
    def is_traced(self) -> bool:
        """Is it under a transformation of JAX, so that its examples are not known?"""
        if self._group is not None:
            return False
        return any(isinstance(x, jax.core.Tracer) for x in self.parts()[0].columns.values())

    @property
    def component(self) -> int | None:
        """Which argument of those packed together; None for all of them."""
        return self._component

    def group(self) -> Group:
        """The group of this batch; fetches its columns when it is its leaves. PlanError under `jax.jit`."""
        if self._group is None:
            assert self._leaves is not None and self._form is not None
            form = self._form
            if self._leaves.fetched is None:
                columns = self._fetched()
                if form.elements:  # entries of a batch have rows of their own
                    columns = pack_batch(unpack(columns)[: len(self)], form.schema)
                self._leaves.fetched = Group(with_declared(columns), form.width, dict(form.planners))
            self._group = self._leaves.fetched
        return self._group

    def _fetched(self) -> Columns:
        """The columns that the leaves are, on the host."""
        assert self._leaves is not None and self._form is not None
        form = self._form
        return packed.from_leaves(form.schema, form.count, dict(form.enums), self._leaves.columns)

    def columns(self) -> Columns:
        """The columns of the examples of this batch."""
        group = self.group()
        return group.columns if self._component is None else group.components[self._component]

    @property
    def schema(self) -> Schema:
        """The types of the examples."""
        if self._component is not None:
            return self.columns().schema
        return self._group.schema if self._group is not None else self.parts()[1].schema

    @property
    def nbytes(self) -> int:
        """Bytes of columns and plans on the host."""
        return self.group().nbytes

    def __len__(self) -> int:
        if self._group is not None:
            return self._group.count
        leaves, form = self.parts()
        if not form.elements or isinstance(leaves.columns[LIVE], jax.core.Tracer):
            return form.count
        return int(leaves.columns[LIVE])

    def __repr__(self) -> str:
        return f"Batch({len(self)} examples of {self.schema})"

    def __deepcopy__(self, memo: Any) -> Batch:
        return self  # a snapshot, which nothing changes

    def __reduce__(self) -> Any:
        return _with_columns, (self.group().columns, self.group().width, self._component)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def to_list(self) -> list[Any]:
        """The examples, as new objects; those of classes are made without calling `__init__`."""
        if self._leaves is not None and self._form is not None and self._form.elements:
            return _objects(self._fetched())[: len(self)]  # what several entries refer to is one object
        return _objects(self.columns())

    def to_list_with(self, common: Common, tokens: Mapping[str, Token]) -> list[Any]:
        """The same; objects that other batches have made of the same columns are those. `tokens`: of the stores of the
        batch; none where it is not known which columns are the same."""
        if not tokens:
            return self.to_list()
        return list(unpack(self._fetched(), common=common, tokens=tokens)[: len(self)])

    def rows(self) -> tuple[str, np.ndarray[Any, Any]]:
        """The store that the examples are in, and the row of each."""
        root = self.schema.root
        assert isinstance(root, Ref) and self._leaves is not None
        return root.store, np.asarray(self._leaves.columns[ROOT])

    def tokens(self) -> Mapping[str, Token]:
        """What tells the stores of its objects from those of other batches."""
        if self._leaves is None or self._form is None or self._form.width > 1 or self.is_traced:
            return {}
        places = {n: _place(x) for n, x in self._leaves.columns.items() if "." in n}
        return tokens_of(self._form.schema, places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, jax.core.Tracer):
            raise BatchError("a batch is cut on the host: its index must not be a traced value; cut before jax.jit")
        if isinstance(index, (int, np.integer)) and not isinstance(index, (bool, np.bool_)):
            if not -len(self) <= index < len(self):
                raise IndexError(f"example {index} of a batch of {len(self)}")
            return _objects(self.columns().take([int(index)]))[0]
        group = self.group() if self._component is None else self.group().alone(self._component)
        return Batch(group.cut(index_on_host(index)))

    @property
    def args(self) -> tuple[Batch, ...]:
        """The arguments that were packed together, to be handed to the function: `f(p, *pairs.args)`."""
        width = self._group.width if self._group is not None else self.parts()[1].width
        if width == 1 or self._component is not None:
            return (self,)
        if self._group is not None:
            return tuple(Batch(self._group, k) for k in range(width))
        leaves, form = self.parts()
        return tuple(Batch.from_leaves(leaves, replace(form, component=k)) for k in range(width))

    # -- plans

    def plan(self, *functions: Any, share: str = "batch") -> Batch:
        """The same examples, planned for batched functions, beside those they are planned for already.

        A function is planned at its first call, when the types of its shared arguments are known (and what shared
        integers decide), once for the whole data set; batches cut from this one use that plan. With `share="batch"`
        rows that compute the same are computed once for the whole batch, with `share="example"` once for each example,
        so that a row belongs to one example. One of several arguments that were packed together is planned alone."""
        for f in functions:
            if not hasattr(f, "specialisations_for"):
                raise PlanError(f"batch.plan takes functions made by ab.batched, not {f!r}")
        group = self.group() if self._component is None else self.group().alone(self._component)
        planners = {**group.planners, **{f.planner: _share(share) for f in functions}}
        same = Group(group.columns, group.width, planners)
        same._plans, same.profile = dict(group._plans), group.profile
        made = Batch(same)
        for f in functions:  # one may need arrays whole that are ragged here: then the batch is in groups by shape
            made = f.planner.regrouped(made)
        return made

    def epoch(self, order: Any) -> Batch:
        """Minibatches of one size class, stacked on a new first axis for `jax.lax.scan`.

        `order[steps, n]` holds the examples of each step; the function is called with one slice of the result."""
        steps = np.asarray(index_on_host(order))
        if steps.ndim != 2 or 0 in steps.shape:
            raise BatchError(f"order has the shape {steps.shape}; it takes one row of examples for each step")
        return Batch.from_leaves(*stack(self.group(), steps, self._component))

    # -- numbers

    def floats(self) -> dict[str, Any]:
        """The columns of floats and of complex numbers, all that has a derivative: a pytree for `jax.grad` and
        optimisers."""
        if self._group is not None:
            held = self._group.columns
            names = [c.name for c in columns_of(held.schema) if moves(held.arrays[c.name])]
            return {n: jnp.asarray(packed.canonical(held.arrays[n])) for n in names}
        leaves, form = self.parts()
        return {c.name: leaves.columns[c.name] for c in columns_of(form.schema) if moves(leaves.columns[c.name])}

    def with_floats(self, tree: Mapping[str, Any]) -> Batch:
        """The same examples with other numbers in the columns of floats. Outside `jax.jit` it plans again."""
        known = self.floats()
        if not isinstance(tree, Mapping):
            raise BatchError(f"with_floats takes a dict of columns, as floats() gives it, not a {type(tree).__name__}")
        for name, new in tree.items():
            if name not in known:
                raise BatchError(f"{name!r} is no column of floats of this batch; it has {', '.join(known) or 'none'}")
            shape = tuple(known[name].shape)
            fits = new.shape[0] == shape[0] or (self._group is None and new.shape[0] < shape[0])
            if tuple(new.shape[1:]) != shape[1:] or not fits:
                raise BatchError(f"column {name} has the shape {shape}, not {tuple(new.shape)}")
        known_now = not self.is_traced and not any(isinstance(x, jax.core.Tracer) for x in tree.values())
        if known_now and (self._group is not None or self._decided_by(tree)):
            group = self.group()
            held = group.columns.arrays
            new_arrays = {n: np.asarray(x, held[n].dtype)[: len(held[n])] for n, x in tree.items()}
            columns = replace(group.columns, arrays={**held, **new_arrays})
            return Batch(Group(columns, group.width, group.planners), self._component)
        leaves, form = self.parts()
        new_leaves = {n: with_rows(x, leaves.columns[n].shape[0]) for n, x in tree.items()}
        # under jax.jit, arguments that were packed together are refused then, as they may no longer be copies
        kept = {n: x for n, x in leaves.columns.items() if n != TOKEN or not isinstance(x, jax.core.Tracer)}
        return Batch.from_leaves(BatchLeaves({**kept, **new_leaves}, leaves.tables), form)

    def _decided_by(self, names: Iterable[str]) -> bool:
        """Is a plan among the leaves made from one of these columns?"""
        decided = {n for plan in self.parts()[1].plans for n in plan.decided}
        return not decided.isdisjoint(names)

    def save(self, path: Any) -> None:
        """Write the columns to a file, which `ab.load` reads. No pickle: classes are named, not stored.

        Plans are not in it: they belong to functions as compiled in this process. What is loaded is planned at its
        first call. Arguments that were packed together are so again, with their `args`."""
        save_columns(self.columns(), path)


def _with_columns(columns: Columns, width: int, component: int | None) -> Batch:
    """A batch that was pickled; it comes without plans, which are made anew."""
    return Batch(Group(columns, width), component)


def _objects(columns: Columns) -> list[Any]:
    """Examples as objects; arguments that were packed together as tuples."""
    made = list(unpack(columns))
    return [tuple(x) for x in made] if width_of(columns.schema) > 1 else made


def _place(column: Any) -> int:
    """Where a column lies in memory."""
    return int(np.asarray(column).__array_interface__["data"][0])


def _share(share: str) -> Share:
    known: dict[str, Share] = {"batch": "batch", "example": "example"}
    if share not in known:
        raise PlanError(f"share={share!r} is not known; it takes 'batch' or 'example'")
    return known[share]


def index_on_host(index: Any) -> Any:
    """An index on the host; a traced one is refused."""
    if isinstance(index, slice):
        return index
    if isinstance(index, jax.core.Tracer):
        raise BatchError("a batch is cut on the host: its index must not be a traced value; cut before jax.jit")
    return np.asarray(index) if not isinstance(index, list) or index else np.zeros(0, np.int64)


def schema_like(like: Any) -> Schema | None:
    """The schema that a Batch or an annotation fixes."""
    if like is None or isinstance(like, Schema):
        return like
    return like.schema if isinstance(like, Batch) else schema_of_annotation(like)


# ---- groups of one shape


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
        order = packed.canonical(self.order) if isinstance(self.order, np.ndarray) else self.order
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
            return pack_batch(examples, schema)
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
