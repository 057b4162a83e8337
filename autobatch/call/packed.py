"""Packed examples on the host, their plans, and how they travel to the device: as leaves of a pytree.

A minibatch is a `Group` that remembers which examples of which group it is: its plan is cut from the plan of the whole
data set. Its `BatchForm` is equal for all batches of one size class, and never holds the examples.

Columns become leaves, and leaves columns again. Every space (the rows of a store, the lists of a list store, their
elements) is rounded up to a capacity, so that batches of one size class have leaves of equal shapes. Strings are data
too: a vocabulary travels as UTF-8 text.

    Node.left  int32[7]   ->   Node.left  int32[8]                  rows past the count hold nothing
    {"str": ("a", "b")}   ->   vocabulary:str  uint8[64]            ["a", "b"]
"""

from __future__ import annotations

import enum
import functools
import itertools
import json
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from autobatch.backends.llvm.machine_code import MIX, POSITION, by_machine_code
from autobatch.common.cache import Bounded
from autobatch.compiler.executables import raise_failures, raise_words, report_failures, report_words
from autobatch.data.columns import Columns, Schema, columns_of, host_dtype, positions
from autobatch.data.together import as_tuples, columns_together, conform, split
from autobatch.errors import BatchError, Failure, PlanError
from autobatch.ir.core import Type
from autobatch.ir.jax_compat import integers_are_wide
from autobatch.ir.leaf import Site
from autobatch.options import Options
from autobatch.planning.plan import SPREAD, Share

# ---- leaves


Values = Any
"""A NumPy array, a JAX array or a tracer."""

STARTS, VOCABULARY = "starts:", "vocabulary:"
_GROWTH = 1.25
_SMALLEST = 8


def x64() -> bool:
    """Does JAX use 64 bits for Python numbers?"""
    return bool(jax.config.read("jax_enable_x64"))


def widths() -> int:
    """How many bits Python numbers have: False, all 32; True, all 64; 2, integers 64 and floats 32."""
    return 2 if integers_are_wide() else x64()


def spaces_of(schema: Schema) -> tuple[str, ...]:
    """The keys of `Columns.starts`."""
    return (*(s.name for s in schema.stores), *(n for s in schema.lists for n in (s.name, f"{s.name}.#values")))


def rounded(rows: int) -> int:
    """The smallest capacity of the geometric series that holds so many rows."""
    if rows <= _SMALLEST:
        return _SMALLEST
    capacity = float(_SMALLEST)
    while math.ceil(capacity) < rows:
        capacity *= _GROWTH
    return math.ceil(capacity)


@dataclass(frozen=True)
class Profile:
    """The rows of a space in the examples of a data set: of how many `examples`, on average, their standard deviation,
    and the `most` that one has."""

    examples: int
    mean: float
    spread: float
    most: int

    def expected(self, count: int) -> int:
        """Room for as many examples, chosen at random."""
        return _expected(self, count)


@functools.lru_cache(maxsize=4096)
def _expected(profile: Profile, count: int) -> int:
    rest = max(0.0, 1 - count / max(1, profile.examples))  # of all of them, nothing is left to chance
    rows = count * profile.mean + SPREAD * profile.spread * math.sqrt(count * rest)
    return max(_SMALLEST, math.ceil(min(rows, count * profile.most)))


def capacities(columns: Columns, profile: Mapping[str, Profile] | None) -> dict[str, int]:
    """A capacity for every space. `profile` is that of the data set that the examples were cut from: practically all
    minibatches of random examples have the same capacities then, and one factor scales all spaces for others."""
    rows = {space: int(starts[-1]) for space, starts in columns.starts.items()}
    if profile is None:
        return {space: rounded(n) for space, n in rows.items()}
    expected = {space: profile[space].expected(columns.count) for space in rows}
    factor = 1.0
    while any(n > math.ceil(expected[space] * factor) for space, n in rows.items()):
        factor *= _GROWTH
    return {space: math.ceil(n * factor) for space, n in expected.items()}


def profile_of(columns: Columns) -> dict[str, Profile]:
    """The profile of every space."""
    made = {}
    for space, starts in columns.starts.items():
        rows = np.diff(starts) if columns.count else np.zeros(1, np.int64)
        made[space] = Profile(columns.count, float(rows.mean()), float(rows.std()), int(rows.max()))
    return made


def to_leaves(columns: Columns, capacity: Mapping[str, int]) -> dict[str, Values]:
    """The arrays of the columns, padded, with the dtypes that JAX gives them."""
    leaves: dict[str, Values] = {}
    for column in columns_of(columns.schema):
        held = columns.arrays[column.name]
        fill = -1 if column.target is not None else 0
        rows = columns.count if column.space is None else capacity[column.space]
        leaves[column.name] = padded(canonical(held), rows, fill)
    for items in columns.schema.lists:
        name = f"{items.name}.#offsets"
        offsets = columns.arrays[name]
        leaves[name] = padded(offsets, capacity[items.name] + 1, int(offsets[-1]))
    for space, starts in columns.starts.items():
        leaves[STARTS + space] = starts.astype(np.int32)
    for name, values in columns.vocabularies.items():
        leaves[VOCABULARY + name] = encode(values)
    return leaves


def canonical(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in the dtype that JAX holds it in."""
    return array if array.dtype == np.int32 else array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def padded(array: np.ndarray[Any, Any], rows: int, fill: int) -> np.ndarray[Any, Any]:
    if len(array) == rows:
        return array
    made = np.full((rows, *array.shape[1:]), fill, array.dtype)
    made[: len(array)] = array
    return made


def encode(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A vocabulary as text: strings, or the names of an enum's members."""
    text = json.dumps([v if isinstance(v, str) and type(v) is str else v.name for v in values]).encode()
    return np.frombuffer(text.ljust(rounded(max(len(text), 64))), np.uint8)


def decode(text: Any, members: type[enum.Enum] | None) -> tuple[Any, ...]:
    names = json.loads(np.asarray(text).tobytes().decode())
    return tuple(names) if members is None else tuple(members[name] for name in names)


def from_leaves(schema: Schema, count: int, enums: Mapping[str, type], leaves: Mapping[str, Values]) -> Columns:
    """The columns on the host again; waits for the device. Raises PlanError under a transformation of JAX."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves.values()):
        raise PlanError(
            "the examples of a batch are not known under jax.jit and other transformations; "
            "slice, plan and unbatch outside, or pass the batch in as an argument"
        )
    held: dict[str, np.ndarray[Any, Any]] = {k: np.asarray(v) for k, v in jax.device_get(dict(leaves)).items()}
    starts = {space: held[STARTS + space].astype(np.int64) for space in spaces_of(schema)}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for column in columns_of(schema):
        rows = count if column.space is None else int(starts[column.space][-1])
        kind = _dtype(column.type, held[column.name])
        arrays[column.name] = held[column.name][:rows].astype(kind, copy=False)
    for items in schema.lists:
        name = f"{items.name}.#offsets"
        arrays[name] = held[name][: int(starts[items.name][-1]) + 1]
    names = [k.removeprefix(VOCABULARY) for k in held if k.startswith(VOCABULARY)]
    vocabularies = {n: decode(held[VOCABULARY + n], enums.get(n)) for n in names}
    return Columns(schema, count, arrays, starts, vocabularies)


def _dtype(type: Type | None, held: np.ndarray[Any, Any]) -> np.dtype[Any]:
    if type is not None:
        return host_dtype(type)
    kind: np.dtype[Any] = held.dtype
    return kind


# ---- checks
#
# Has a column changed since a batch was planned? Checksums of columns, the same on the host and on the device.
#
# A column is read as words of 32 bits. Each word is mixed with its position, and the results are added, so that a
# device may add them in any order. Floats that are equal have equal sums: -0.0 is 0.0, and NaN is NaN.


def checksum(column: Any) -> Any:
    """uint32[] of an array: a NumPy number for a NumPy array, else computed by JAX."""
    if isinstance(column, np.ndarray):
        words = _words(column, np)
        sum_of = by_machine_code()
        return sum_of(words) if sum_of is not None else mixed_sum(words, np)
    return mixed_sum(_words(column, jnp), jnp)


def mixed_sum(words: Any, xp: Any) -> Any:
    """The checksum of words by NumPy or JAX."""
    words = words ^ (xp.arange(words.shape[0], dtype=np.uint32) * np.uint32(POSITION))
    words = (words ^ (words >> np.uint32(16))) * np.uint32(MIX)
    return (words ^ (words >> np.uint32(15))).sum(dtype=np.uint32)


def _words(column: Any, xp: Any) -> Any:
    """The bits of an array as uint32[n]."""
    if jnp.issubdtype(column.dtype, jnp.complexfloating):
        return xp.concatenate([_words(column.real, xp), _words(column.imag, xp)])
    flat = column.reshape(-1)
    if jnp.issubdtype(flat.dtype, jnp.floating):
        flat = flat if flat.dtype.itemsize >= 4 else flat.astype(np.float32)
        flat = xp.where(flat == 0, flat.dtype.type(0), flat)
        flat = xp.where(flat != flat, flat.dtype.type(np.nan), flat)
    elif flat.dtype.itemsize < 4:
        flat = flat.astype(np.int32)
    if xp is np:
        return np.ascontiguousarray(flat).view(np.uint32)
    return jax.lax.bitcast_convert_type(flat, np.uint32).reshape(-1)


def checksums(columns: Sequence[Any]) -> Any:
    """uint32[n] of n arrays, on the host where all of them are there."""
    sums = [checksum(c) for c in columns]
    if all(isinstance(s, np.generic) for s in sums):
        return np.array(sums, np.uint32)
    return jnp.stack([jnp.asarray(s) for s in sums])


@dataclass(frozen=True)
class Check:
    """`failed`, bool[k]: what a call relies on and does not hold. `words[k]` says what is wrong then."""

    words: tuple[str, ...]
    failed: Any


def refuse(checks: Sequence[Check], report: bool = True) -> Any:
    """Raise PlanError where a check has failed. Under a transformation of JAX the host is called where one fails, which
    raises when the computation ends, and this returns whether any has failed, else None. `report`: call the host."""
    traced = [c for c in checks if isinstance(c.failed, jax.core.Tracer)]
    for check in checks:
        if not isinstance(check.failed, jax.core.Tracer):
            raise_words(check.words, check.failed)
    if not traced:
        return None
    words = tuple(w for c in traced for w in c.words)
    failed = jnp.concatenate([c.failed for c in traced])
    return report_words(words, failed).any() if report else failed.any()


def refuse_failed(sites: Sequence[Site], status: Any) -> Any:
    """Raise ExampleError where an example has failed; under a transformation of JAX when the computation ends. Returns
    `status`: what depends on it depends on this check."""
    if isinstance(status, jax.core.Tracer):
        return report_failures(sites, status)
    raise_failures(sites, status)
    return status


# ---- groups


Tables = dict[str, Any]


class Plan(Protocol):
    """The rows of all activations of one program on some examples (`planning/plan.py`)."""

    @property
    def failures(self) -> tuple[Failure, ...]: ...

    @property
    def nbytes(self) -> int: ...

    def take(self, indices: npt.NDArray[np.int64], /) -> Plan: ...

    def sharing(self, share: Share, /) -> Plan: ...


class Specialised(Protocol):
    """A program that a batch can be planned for. `fingerprint` names it; `planner` is its function."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def planner(self) -> Planner: ...

    @property
    def masks(self) -> bool:
        """Does the function report failures in its result, instead of raising?"""
        ...

    @property
    def structure_columns(self) -> frozenset[str]:
        """The columns that decide structure: a plan is stale where one of them has changed."""
        ...

    def argument_columns(self, schema: Schema) -> Mapping[str, str]:
        """The tables that hold packed arguments themselves, and the columns of the examples that these are."""
        ...

    def words(self, vocabularies: Mapping[str, tuple[Any, ...]]) -> Tables:
        """The vocabularies that strings and enum members of the result are counted in, as leaves."""
        ...

    def plan(self, components: tuple[Columns, ...]) -> Plan: ...

    def bind(self, plan: Any, at_least: Sequence[Hashable] = ()) -> tuple[Tables, Hashable]:
        """What the executable reads, and the signature that it is compiled for: one that holds those of `at_least`."""
        ...


class Planner(Protocol):
    """A batched function, as far as batches know it."""

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function for one example."""
        ...

    def options(self) -> Options:
        """The options that a call sees here and now."""
        ...

    def __hash__(self) -> int: ...

    def specialisations_for(self, group: Group) -> tuple[Specialised, ...]:
        """The programs that this function has for such examples, with guards that hold now."""
        ...


Planners = Mapping[Planner, Share]
"""The functions that a batch is planned for, and which equal rows are one there."""

ARGUMENT = "#argument"
"""The prefix of tables that hold the rows of a batched argument itself; its number follows."""

LIVE = "#live"
"""The leaf that says how many entries of a batch are elements of lists, and no capacity."""

TOKEN = "#token"
"""The leaf that says at run time which group a batch is, while that lives."""

_numbers = itertools.count(1)
_groups: weakref.WeakValueDictionary[int, Group] = weakref.WeakValueDictionary()


def living_group(token: int) -> Group | None:
    """The group with this number, while somebody holds it."""
    return _groups.get(token)


def group_of(token: int) -> Group:
    """The group with this number."""
    found = living_group(token)
    if found is None:
        raise PlanError("the batch was given up before the computation that reads it ran")
    return found


DECIDED = "#decided"
"""The table of checksums of the columns that decided structure, as they were then."""


class Group:
    """Packed examples on the host. `width` components an example: more than one for arguments packed together; then
    an example is the tuple of them. `origin` is the group that these examples were cut from, and which they are."""

    def __init__(
        self,
        columns: Columns | None,
        width: int = 1,
        planners: Planners = MappingProxyType({}),
        origin: tuple[Group, npt.NDArray[np.int64]] | None = None,
    ) -> None:
        assert columns is not None or origin is not None
        self.width, self.planners, self.origin = width, planners, origin
        self._columns = columns
        self._components: tuple[Columns, ...] | None = None
        self._plans: dict[str, Plan] = {}
        self._tables: dict[str, tuple[Tables, Hashable]] = {}
        self._flat: tuple[Any, BatchLeaves, BatchForm] | None = None
        self._conformed: dict[Schema, Group] = {}
        self._alone: dict[int | None, Group] = {}
        self._single: tuple[Planners, Bounded[int, Group]] | None = None
        self.joined: Bounded[Any, tuple[Group, Any]] = Bounded(8)
        """Groups whose first component this is, by all their components."""
        self.epochs: dict[Any, Any] = {}
        """The capacities of the epochs of these examples, by batch size and schema (`batch.py`)."""
        self._read: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
        self.shared: dict[bool, Any] = {}
        """The columns as shared inputs, by whether these have 64 bits, where all examples share the objects."""
        self.traced: Bounded[Any, Any] = Bounded(4)
        """What functions do for these examples, where their structure is traced (`tracing/`)."""
        self._lock = threading.RLock()
        self.token = next(_numbers)
        _groups[self.token] = self
        self.schema: Schema = columns.schema if columns is not None else origin[0].schema  # type: ignore[index]
        self.count = columns.count if columns is not None else len(origin[1])  # type: ignore[index]
        self.profile: Mapping[str, Profile] | None = None if origin is None else origin[0].own_profile

    @functools.cached_property
    def own_profile(self) -> Mapping[str, Profile]:
        return self.profile or profile_of(self.columns)

    @property
    def columns(self) -> Columns:
        with self._lock:
            if self._columns is None:
                assert self.origin is not None
                self._columns = self.origin[0].columns.take(self.origin[1])
            return self._columns

    @property
    def components(self) -> tuple[Columns, ...]:
        """One `Columns` a component, all of the same stores."""
        with self._lock:
            if self._components is None:
                self._components = split(self.columns) if self.width > 1 else (self.columns,)
            return self._components

    @property
    def vocabularies(self) -> Mapping[str, tuple[Any, ...]]:
        """The strings and enum members of the data set."""
        return self._columns.vocabularies if self._columns is not None else self.origin[0].vocabularies  # type: ignore[index]

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """A column in the dtype that a device has for it; kept. BatchError where an int is too large."""
        key = name, widths()
        if (found := self._read.get(key)) is not None:
            return found
        with self._lock:
            if key not in self._read:
                held = self.columns.arrays[name]
                made = self._read[key] = canonical(held)
                if made.dtype.kind == "i" and made is not held and (made != held).any():
                    del self._read[key]
                    wrong = int(held[made != held][0])
                    raise BatchError(
                        f"{name} holds the int {wrong}, which does not fit into the {made.dtype} of the device; "
                        "use jax.enable_x64, or a float"
                    )
            return self._read[key]

    @property
    def nbytes(self) -> int:
        kept = [*self._conformed.values(), *self._alone.values(), *(g for _, (g, _) in self.joined.items())]
        return self.columns.nbytes + sum(p.nbytes for p in self._plans.values()) + sum(g.nbytes for g in kept)

    def take(self, indices: Any) -> Group:
        return self._of(positions(indices, self.count))

    def cut(self, indices: Any) -> Group:
        """As `take`. A single example of a data set is kept, with the tables that will be bound for it, as far as there
        is room: every epoch meets it again, while two minibatches of more are hardly ever the same."""
        chosen = positions(indices, self.count)
        if len(chosen) != 1 or self.origin is not None:
            return self._of(chosen)
        with self._lock:
            if self._single is None or self._single[0] is not self.planners:
                most = SINGLE_BYTES // (SINGLE_FACTOR * (1 + self.nbytes // self.count))
                self._single = self.planners, Bounded(int(most))
            return self._single[1].get_or_make(int(chosen[0]), lambda: self._of(chosen))

    def _of(self, chosen: npt.NDArray[np.int64]) -> Group:
        root, inside = (self, chosen) if self.origin is None else (self.origin[0], self.origin[1][chosen])
        if self.origin is not None and self.planners != root.planners:
            root, inside = self, chosen  # this group was planned on its own
        return Group(None, self.width, self.planners, (root, inside))

    def conformed(self, schema: Schema) -> Group:
        """The same examples under a wider schema; what was cut from one data set stays cut from one."""
        with self._lock:
            if schema not in self._conformed:
                if self.origin is None:
                    made = Group(conform(self.columns, schema), self.width, self.planners)
                else:
                    base = self.origin[0].conformed(schema)
                    made = Group(None, self.width, base.planners, (base, self.origin[1]))
                self._conformed[schema] = made
            return self._conformed[schema]

    def alone(self, component: int | None) -> Group:
        """One component as examples of a function of one argument; None: all of them, as tuples."""
        if self.width == 1:
            return self
        with self._lock:
            if component not in self._alone:
                if self.origin is not None:
                    base = self.origin[0].alone(component)
                    self._alone[component] = Group(None, 1, base.planners, (base, self.origin[1]))
                else:
                    columns = as_tuples(self.columns) if component is None else self.components[component]
                    self._alone[component] = Group(columns)
            return self._alone[component]

    def is_planned_for(self, planner: Planner) -> bool:
        """Is this group, or the same under a wider schema, to be planned for a function?"""
        return planner in self.planners or any(planner in g.planners for g in self._conformed.values())

    def mark(self, *planners: Planner) -> None:
        """Remember functions: this group and what is cut from it will be planned for them."""
        with self._lock:
            if any(p not in self.planners for p in planners):
                self.planners = {**dict.fromkeys(planners, "batch"), **self.planners}

    def plan(self, program: Specialised) -> Plan:
        """The plan for a program: cut from that of the whole data set where this is planned for its function too."""
        with self._lock:
            if program.fingerprint not in self._plans:
                _keep_newest(self._plans)
                self._plans[program.fingerprint] = self._made(program)
            return self._plans[program.fingerprint].sharing(self.planners.get(program.planner, "batch"))

    def _made(self, program: Specialised) -> Plan:
        if self.origin is not None and program.planner in self.origin[0].planners:
            return self.origin[0].plan(program).take(self.origin[1])
        return program.plan(self.components)

    def tables(self, program: Specialised) -> tuple[Tables, Hashable]:
        """What the executable reads of the plan."""
        with self._lock:
            if program.fingerprint not in self._tables:
                _keep_newest(self._tables)
                self._tables[program.fingerprint] = program.bind(self.plan(program))
            return self._tables[program.fingerprint]

    def keep_plan(self, program: Specialised, plan: Plan) -> None:
        """Let this be the plan for a program."""
        with self._lock:
            if program.fingerprint not in self._plans:
                _keep_newest(self._plans)
            self._plans[program.fingerprint] = plan

    def keep_tables(self, program: Specialised, tables: Tables, signature: Hashable) -> None:
        """Let executables read these tables of the plan: those of another size class."""
        with self._lock:
            self._tables[program.fingerprint] = tables, signature
            self._flat = None

    def place(self, put: Callable[[Any], Any]) -> None:
        """Make now what executables read of these examples, and let `put` move it to a device."""
        with self._lock:
            leaves, form = self.leaves(None)
            if not form.plans:
                return  # for no function that was called: all of this would be made again
            assert self._flat is not None
            held = (leaves.columns, leaves.tables, {name: tables for name, (tables, _) in self._tables.items()})
            each = {id(x): x for x in jax.tree.leaves(held)}
            moved = dict(zip(each, put(list(each.values())), strict=True))
            columns, all_tables, bound = jax.tree.map(lambda x: moved[id(x)], held)
            self._flat = (self._flat[0], replace(leaves, columns=columns, tables=all_tables), form)
            self._tables = {name: (bound[name], signature) for name, (_, signature) in self._tables.items()}

    def has_plan(self, program: Specialised) -> bool:
        """Was this group, or the data set that it was cut from, planned for a program?"""
        held = [self] if self.origin is None else [self, self.origin[0]]
        return any(program.fingerprint in g._plans for g in held)

    def failures(self, program: Specialised) -> tuple[Failure, ...]:
        """Failures that a call has to raise. Those of a function that masks them are one of its tables."""
        return () if program.masks else self.plan(program).failures

    def leaves(self, component: int | None) -> tuple[BatchLeaves, BatchForm]:
        """This group as a pytree: computed again only when a function that it is planned for has a new program."""
        with self._lock:
            programs = tuple(s for p in self.planners for s in p.specialisations_for(self))
            made_for = (tuple(self.planners.items()), tuple(s.fingerprint for s in programs), widths())
            if self._flat is None or self._flat[0] != made_for:
                self._flat = (made_for, *flatten(self, programs))
            _, leaves, form = self._flat
            return leaves, form if component is None else replace(form, component=component)


SINGLE_BYTES, SINGLE_FACTOR = 64 * 2**20, 16
"""The memory for examples that were cut alone, each taken to need so many times its share of the data set: tables have
room for more rows than there are."""

PLANS = 16
"""A batch keeps so many plans: of programs, and of what shared integers decide in them."""


def _keep_newest(held: dict[str, Any]) -> None:
    """Make room for one more plan."""
    while len(held) >= PLANS:
        del held[next(iter(held))]


# ---- the static part


@dataclass(frozen=True)
class Planned:
    """A plan among the leaves. `data` are the tables that are columns of the batch: table, column, number of rows.
    `decided` are the columns that the plan is made from, in the order of their checksums."""

    fingerprint: str
    signature: Hashable
    failures: tuple[Failure, ...]
    data: tuple[tuple[str, str, int], ...]
    decided: tuple[str, ...]


@dataclass(frozen=True)
class BatchForm:
    """The static part of a batch as a pytree. `elements`: its entries are the elements of lists; several of them may
    refer to the same rows, and those past the leaf `LIVE` are capacity. `like` is a group of this form: no part of
    what the form says, but an example of the size class for a function that is planned while it is traced."""

    schema: Schema
    count: int
    width: int
    plans: tuple[Planned, ...] = ()
    planners: tuple[tuple[Planner, Share], ...] = ()
    enums: tuple[tuple[str, type], ...] = ()
    component: int | None = None
    elements: bool = False
    like: weakref.ref[Group] | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.count, self.width, self.plans, self.component))


@dataclass
class BatchLeaves:
    """The leaves of a batch: its columns by name, and the tables of each plan. `checked`: fingerprints of plans whose
    columns were found unchanged. `fetched`: the same on the host, once somebody has asked for it."""

    columns: dict[str, Any]
    tables: tuple[Tables, ...] = ()
    checked: set[str] = field(default_factory=set)
    fetched: Group | None = None


def flatten(
    group: Group, programs: tuple[Specialised, ...], capacity: Mapping[str, int] | None = None
) -> tuple[BatchLeaves, BatchForm]:
    """A group as leaves and static part, with its plans for some programs. `capacity`: of each space of the columns."""
    columns = group.columns
    held = to_leaves(columns, capacity or capacities(columns, group.profile))
    sums: dict[str, Any] = {}
    found = [planned_leaves(group, program, held, sums) for program in programs]
    enums = tuple((n, type(v[0])) for n, v in columns.vocabularies.items() if n != "str" and v)
    form = BatchForm(
        columns.schema,
        columns.count,
        group.width,
        tuple(plan for plan, _ in found),
        tuple(group.planners.items()),
        enums,
        like=weakref.ref(group),
    )
    if group.planners or group.width > 1:
        held[TOKEN] = np.asarray(group.token, np.int32)
    return BatchLeaves(held, tuple(tables for _, tables in found)), form


def planned_leaves(
    group: Group, program: Specialised, held: Mapping[str, Any], sums: dict[str, Any]
) -> tuple[Planned, Tables]:
    """The plan of a group for a program, as it stands among leaves that are `held`. `sums`: their checksums, as far as
    they are known."""
    tables, signature = group.tables(program)
    data = data_tables(program, tables, held, group.schema)
    decided = deciding_columns(program, held, group.schema)
    own = {n for n, _, _ in data}
    kept = {n: t for n, t in tables.items() if n not in own}
    sums.update({n: checksum(held[n]) for n in decided if n not in sums})
    kept[DECIDED] = np.array([sums[n] for n in decided], np.uint32)
    plan = Planned(program.fingerprint, signature, group.failures(program), data, decided)
    return plan, kept | program.words(group.vocabularies)


def data_tables(
    program: Specialised, tables: Tables, columns: Mapping[str, Any], schema: Schema
) -> tuple[tuple[str, str, int], ...]:
    """The tables that are columns of the batch: table, column, number of rows. The words of a result are none: those of
    traces are others than those of their examples."""
    arguments = program.argument_columns(schema)
    named = {n: arguments.get(n, n) for n in tables if not n.startswith(VOCABULARY)}
    return tuple((n, named[n], len(tables[n])) for n in named if named[n] in columns)


def deciding_columns(program: Specialised, columns: Mapping[str, Any], schema: Schema) -> tuple[str, ...]:
    """The columns that decide structure, among the leaves."""
    arguments = program.argument_columns(schema)
    return tuple(sorted({arguments.get(n, n) for n in program.structure_columns} & columns.keys()))


def with_rows(leaf: Any, rows: int) -> Any:
    """A leaf with another number of rows: those that are cut or added hold nothing."""
    if leaf.shape[0] == rows:
        return leaf
    if leaf.shape[0] > rows:
        return leaf[:rows]
    if isinstance(leaf, np.ndarray):
        return padded(canonical(leaf), rows, 0)
    return jnp.concatenate([leaf, jnp.zeros((rows - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)])


# ---- joint
#
# Batches that were packed apart and are passed together: one group of tuples, planned for all of them.
#
# f(p, left, right)              columns of pairs, made once and kept on left: the second call plans nothing
# f(p, left[idx], right[idx])    cut from the pairs of the whole data sets, where those are planned for f
# f(p, left, [t, ...])           a list is packed anew at each call, so nothing is kept


@dataclass(frozen=True)
class JointPart:
    """One argument: a group, or one component of a group of several. `fleeting`: it is gone after this call."""

    group: Group
    component: int | None
    fleeting: bool = False

    @property
    def columns(self) -> Columns:
        return self.group.columns if self.component is None else self.group.components[self.component]

    @property
    def key(self) -> Any:
        return self.group.token, self.component


def join(parts: Sequence[JointPart], planner: Planner) -> Group:
    """The group whose examples are tuples of those of the parts."""
    if any(p.fleeting for p in parts):
        return _made(parts)
    found = _kept(parts)
    if found is None:
        found = _cut(parts, planner) or _made(parts)
        _keep(parts, found)
    return found


def _keep(parts: Sequence[JointPart], joined: Group) -> None:
    """Keep a group on the first of its parts for as long as all others live."""
    key = tuple(p.key for p in parts)
    owner = weakref.ref(parts[0].group)

    def forget(_: object) -> None:
        held = owner()
        if held is not None:
            held.joined.drop(key)

    others = {p.group.token: p.group for p in parts[1:] if p.group is not parts[0].group}
    parts[0].group.joined.put(key, (joined, [weakref.ref(g, forget) for g in others.values()]))


def _made(parts: Sequence[JointPart]) -> Group:
    return Group(columns_together([p.columns for p in parts]), len(parts))


def _kept(parts: Sequence[JointPart]) -> Group | None:
    """What an earlier call has put together."""
    entry = parts[0].group.joined.get(tuple(p.key for p in parts))
    return None if entry is None else entry[0]


def _cut(parts: Sequence[JointPart], planner: Planner) -> Group | None:
    """The same examples of several data sets are cut from what those are together, where that is planned."""
    origins = [p.group.origin for p in parts]
    known = [o for o in origins if o is not None]
    if len(known) < len(parts) or any(not np.array_equal(o[1], known[0][1]) for o in known):
        return None
    whole = [JointPart(o[0], p.component) for o, p in zip(known, parts, strict=True)]
    pairs = _kept(whole)
    if pairs is None and all(planner in p.group.planners for p in whole):
        pairs = join(whole, planner)
        pairs.mark(planner)
    if pairs is None or not pairs.is_planned_for(planner):
        return None
    return pairs.take(known[0][1])


def cut_together(groups: Sequence[Group]) -> list[Group]:
    """What these groups, which are the same examples of several data sets, will be in a call: cut from what earlier
    calls have put together of those data sets. Kept, so that the call finds it."""
    cuts = {g.origin[0].token: g for g in groups if g.origin is not None}
    found = []
    for group in cuts.values():
        assert group.origin is not None
        for key, (whole, _) in group.origin[0].joined.items():
            if all(token in cuts for token, _ in key):
                parts = [JointPart(cuts[token], component) for token, component in key]
                found += [join(parts, planner) for planner in whole.planners]
    return found
