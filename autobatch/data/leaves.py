"""Values without identity: numbers, arrays, strings, enum members; their types, and columns made of them.

`leaf_column` turns the values of one field (or of the elements of one list) into one array. Types join as Python's
numbers do: bool, int, float, complex; a Python number joins a NumPy or JAX scalar of its kind or of a wider one. Arrays
must agree in dtype and shape, but for the first axis, which may be ragged.
"""

from __future__ import annotations

import array
import collections
import datetime
import enum
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import jax
import networkx as nx
import numpy as np
import numpy.typing as npt

from autobatch.data.columns import UNKNOWN, empty, host_dtype, host_shape
from autobatch.ir import jax_compat
from autobatch.ir.core import BOOL, FLOAT, INT, STR, Array, BuiltObject, List, Ref, Tag, Type

AnyArray = np.ndarray[Any, Any]
COMPLEX = Array("complex64", weak=True)
"""A Python complex number."""
_CONTAINERS = (list, dict, tuple, OrderedDict, defaultdict)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement (or by newer C code)
_TOWER = (BOOL, INT, FLOAT, COMPLEX)


class Category(enum.Enum):
    """What packing does with values of a Python type."""

    NONE = "None"
    NUMBER = "a number"
    ARRAY = "an array"
    STRING = "a string"
    MEMBER = "an enum member"
    OBJECT = "an object"
    REFUSED = "refused"


_categories: dict[type, Category] = {}


def category(cls: type) -> Category:
    """The category of the values of a class."""
    found = _categories.get(cls)
    if found is None:
        found = _categories[cls] = _category(cls)
    return found


def _category(cls: type) -> Category:
    if cls is type(None):
        return Category.NONE
    if issubclass(cls, enum.Enum):
        return Category.MEMBER
    if issubclass(cls, str):
        return Category.STRING
    if issubclass(cls, (np.ma.MaskedArray, np.matrix)):
        return Category.REFUSED
    if issubclass(cls, (np.generic, np.ndarray, jax.Array)) and not issubclass(cls, jax.core.Tracer):
        return Category.ARRAY
    if cls in (bool, int, float, complex):
        return Category.NUMBER
    return Category.REFUSED if cure(cls) else Category.OBJECT


def cure(cls: type) -> str:
    """Why values of a class cannot be packed and what to use instead; an empty string when they can."""
    if issubclass(cls, jax.core.Tracer):
        return "it is being traced by a JAX transform; pack outside of `jax.jit` and pass the Batch in"
    if issubclass(cls, np.ma.MaskedArray):
        return "its mask would be lost; use `x.filled(0)`, and the mask as another field"
    if issubclass(cls, np.matrix):
        return "its `*` is not that of arrays; use `numpy.asarray(x)`"
    if issubclass(cls, (range, collections.deque, array.array)):
        return "use `list(x)`"
    if issubclass(cls, (datetime.date, datetime.time, datetime.timedelta)):
        return "use a number: `x.timestamp()`, `x.total_seconds()`, or fields for year, month, day"
    if issubclass(cls, (set, frozenset)) and cls not in (set, frozenset):
        return "a subclass of set would lose what it adds; use set(x)"
    if issubclass(cls, (bytes, bytearray, memoryview)):
        return "use `numpy.frombuffer(x, numpy.uint8)` or a str"
    if issubclass(cls, (type, types.ModuleType, types.BuiltinFunctionType)) or hasattr(cls, "__get__"):
        return "code is not data; pass it as a shared argument, or name the case by a string or an enum member"
    if issubclass(cls, (int, float, complex)):
        return "a subclass of a number would lose its class; use the number itself"
    if issubclass(cls, (list, dict, tuple)) and cls not in _CONTAINERS and not hasattr(cls, "_fields"):
        base = next(c for c in (list, dict, tuple) if issubclass(cls, c)).__name__
        return f"a subclass of {base} would lose what it adds; use a dataclass that has a {base}, or `{base}(x)`"
    if hasattr(cls, "__array__"):
        return "convert it with `numpy.asarray(x)`"
    if hasattr(cls, "__next__"):
        return "it can be read only once; use a list"
    if cls.__module__ == "builtins" and not issubclass(cls, (list, tuple, dict, set, frozenset)):
        return "use a list, a dataclass, numbers or arrays"
    if not issubclass(cls, (list, tuple, dict, set, frozenset)) and _hides_fields(cls):
        return "it hides its fields; convert it to a dataclass, numbers or arrays"
    return ""


def _hides_fields(cls: type) -> bool:
    """Is its state, or a part of it, kept by C code?"""
    written_in_c = any(not base.__flags__ & _HEAP_TYPE for base in cls.__mro__ if base is not object)
    has_fields = bool(cls.__dictoffset__) or any("__slots__" in vars(base) for base in cls.__mro__)
    return written_in_c or not has_fields


class Mixed(Exception):
    """Two values of one column have types that do not join: their positions (the first may be the same as the
    second, for a value that is wrong by itself), and why."""

    def __init__(self, first: int, second: int, reason: str) -> None:
        super().__init__(reason)
        self.first, self.second, self.reason = first, second, reason


@dataclass(eq=False)
class LeafColumn:
    """One value a row. `missing`: true where it is None (None: nowhere)."""

    type: Array | Tag
    array: AnyArray
    missing: npt.NDArray[np.bool_] | None = None


@dataclass(eq=False)
class RaggedLeaf:
    """Arrays that differ in the first axis: `flat` holds their rows one after another, `lengths` is -1 for None."""

    elem: Array
    flat: AnyArray
    lengths: npt.NDArray[np.int64]


class Vocabularies:
    """The strings and enum members met so far; the position of one is its tag."""

    def __init__(self) -> None:
        self._tags: dict[str, dict[Any, int]] = {}

    def tags(self, vocabulary: str, values: Sequence[Any]) -> AnyArray:
        known = self._tags.setdefault(vocabulary, {})
        for value in dict.fromkeys(values):
            known.setdefault(value, len(known))
        return np.fromiter(map(known.__getitem__, values), np.int32, len(values))

    def frozen(self) -> dict[str, tuple[Any, ...]]:
        return {name: tuple(tags) for name, tags in self._tags.items()}


def vocabulary_of(cls: type) -> str:
    """The name of the vocabulary of an enum class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def array_type(value: Any) -> Array:
    """The type of a NumPy or JAX array or scalar, its dtype as JAX would make it. Raises TypeError."""
    if isinstance(value, jax.Array):
        return Array(str(value.dtype), tuple(value.shape))
    dtype = value.dtype
    if dtype.kind not in "biufcV" or (dtype.kind == "V" and dtype.names is not None) or dtype.itemsize == 0:
        raise TypeError(f"an array of dtype {dtype} has no numbers in it")
    return Array(str(jax_compat.canonical_dtype(dtype)), tuple(value.shape))


def type_of_value(value: Any) -> Array | Tag:
    """The type of one leaf. Raises TypeError for an array without numbers."""
    match category(type(value)):
        case Category.NONE:
            return UNKNOWN
        case Category.NUMBER:
            return _TOWER[(bool, int, float, complex).index(type(value))]
        case Category.ARRAY:
            return array_type(value)
        case Category.STRING:
            return STR
        case Category.MEMBER:
            return Tag(vocabulary_of(type(value)))
        case Category.OBJECT | Category.REFUSED:
            raise TypeError(f"{type(value).__name__} is no leaf")
        case other:
            assert_never(other)


def join(a: Type, b: Type) -> Type | None:
    """The type that holds values of both leaf types; None when there is none. Shapes must agree."""
    if a == b or b == UNKNOWN:
        return a
    if a == UNKNOWN:
        return b
    if not (isinstance(a, Array) and isinstance(b, Array)) or a.shape != b.shape:
        return None
    if a in _TOWER and b in _TOWER:
        return max(a, b, key=_TOWER.index)
    for weak, strong in ((a, b), (b, a)):
        if weak in _TOWER and strong not in _TOWER and _rank(strong) >= _TOWER.index(weak):
            return strong
    return None


def _rank(type: Array) -> int:
    """The position in Python's tower of numbers of the kind of a dtype; -1 for random keys."""
    if type.dtype.startswith("key<"):
        return -1
    kinds = (np.bool_, np.integer, np.floating, np.complexfloating)
    dtype = jax_compat.dtype_of(type.dtype)
    return next(i for i, kind in enumerate(kinds) if jax.numpy.issubdtype(dtype, kind))


def ragged_elem(a: Array, b: Array) -> Array | None:
    """The type of the rows of two kinds of arrays that differ in the first axis alone; None when they differ more."""
    if not a.shape or len(a.shape) != len(b.shape) or a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
        return None
    return Array(a.dtype, a.shape[1:])


def leaf_column(values: Sequence[Any], kinds: set[type], vocabularies: Vocabularies) -> LeafColumn | RaggedLeaf:
    """The column of these values, whose Python types are `kinds`, none of them objects. Raises Mixed."""
    missing = None
    if type(None) in kinds:
        missing = np.fromiter((v is None for v in values), np.bool_, len(values))
        held = [v for v in values if v is not None]
    else:
        held = list(values)
    groups = {category(k) for k in kinds} - {Category.NONE}
    if not groups:
        return LeafColumn(UNKNOWN, np.zeros(len(values), np.bool_), missing)
    try:
        if groups == {Category.NUMBER}:
            made: LeafColumn | RaggedLeaf = _numbers(held, kinds)
        elif groups == {Category.STRING}:
            made = LeafColumn(
                STR, vocabularies.tags("str", [str(v) for v in held] if kinds - {str, type(None)} else held)
            )
        elif groups == {Category.MEMBER} and len(kinds - {type(None)}) == 1:
            made = _members(held, vocabularies)
        elif groups <= {Category.NUMBER, Category.ARRAY}:
            made = _arrays(held)
        else:
            raise _conflict(held)
    except Mixed as error:
        places = [i for i, v in enumerate(values) if v is not None]
        raise Mixed(places[error.first], places[error.second], error.reason) from None
    return made if missing is None else _spread(made, missing)


def _conflict(values: Sequence[Any]) -> Mixed:
    types = [type_of_value(v) for v in values]
    other = next(i for i, t in enumerate(types) if join(types[0], t) is None)
    return Mixed(0, other, f"{describe_value(values[0])} and {describe_value(values[other])}")


def _numbers(values: list[Any], kinds: set[type]) -> LeafColumn:
    made = max((_TOWER[(bool, int, float, complex).index(k)] for k in kinds if k is not type(None)), key=_TOWER.index)
    try:
        return LeafColumn(made, np.array(values, host_dtype(made)))
    except OverflowError:
        limit = 2**63 if made == INT else 10**308
        bad = next(i for i, v in enumerate(values) if isinstance(v, int) and not -limit <= v < limit)
        raise Mixed(bad, bad, "the integer does not fit into 64 bits") from None


def _members(values: list[Any], vocabularies: Vocabularies) -> LeafColumn:
    cls: type[enum.Enum] = type(values[0])
    name, listed = vocabulary_of(cls), set(cls)
    vocabularies.tags(name, list(cls))
    if not listed.issuperset(values):
        bad = next(i for i, v in enumerate(values) if v not in listed)
        raise Mixed(
            bad, bad, f"{values[bad]} is not one of the members that {cls.__name__} lists; use its `.value`, an int"
        )
    return LeafColumn(Tag(name), vocabularies.tags(name, values))


def _arrays(values: list[Any]) -> LeafColumn | RaggedLeaf:
    types: list[Array] = []
    known: dict[Any, Array] = {}
    for i, value in enumerate(values):
        key = (value.dtype, value.shape) if hasattr(value, "dtype") else type(value)
        if key not in known:
            try:
                found = type_of_value(value)
            except TypeError as error:
                raise Mixed(i, i, f"{error}; use numbers, or strings in a list") from None
            assert isinstance(found, Array)
            known[key] = found
        types.append(known[key])
    first, joined, ragged = types[0], types[0], False
    for found in known.values():
        if found == joined:
            continue
        wider = join(joined, found)
        if isinstance(wider, Array):
            joined = wider
        elif ragged_elem(first, found) is not None:
            ragged = True
        else:
            i = types.index(found)
            raise Mixed(0, i, f"{describe_value(values[0])} and {describe_value(values[i])}")
    if not ragged:
        return LeafColumn(joined, _stacked(values, joined))
    lengths = np.array([t.shape[0] for t in types], np.int64)
    elem = Array(first.dtype, first.shape[1:])
    return RaggedLeaf(elem, np.concatenate([raw(v, first.dtype) for v in values]), lengths)


def _stacked(values: list[Any], type: Array) -> AnyArray:
    if isinstance(values[0], jax.Array) and not type.dtype.startswith("key<"):
        values = jax.device_get(values)
    if type.shape == () and all(isinstance(v, (np.generic, int, float, complex)) for v in values):
        return _narrowed(np.array(values), type.dtype)
    if all(isinstance(v, np.ndarray) for v in values):
        whole = np.stack(values)
        if np.can_cast(whole.dtype, host_dtype(type)) or whole.dtype.kind == "f":
            return whole.astype(host_dtype(type), copy=False)
    out = np.empty((len(values), *host_shape(type)), host_dtype(type))
    for i, value in enumerate(values):
        try:
            out[i] = raw(value, type.dtype)
        except Mixed as error:
            raise Mixed(i, i, error.reason) from None
    return out


def raw(value: Any, dtype: str) -> AnyArray:
    """The data of an array as its column holds it."""
    if dtype.startswith("key<"):
        return np.asarray(jax.random.key_data(value))
    return _narrowed(np.asarray(value), dtype)


def _narrowed(array: AnyArray, dtype: str) -> AnyArray:
    """`array` in the dtype that JAX gives it; integers must fit."""
    wanted = jax_compat.dtype_of(dtype)
    if array.dtype.kind in "iu" and wanted.kind in "iu" and array.size and not np.can_cast(array.dtype, wanted):
        info = np.iinfo(wanted)
        if int(array.min()) < info.min or int(array.max()) > info.max:
            raise Mixed(0, 0, f"an integer array of dtype {array.dtype} holds values that do not fit into {dtype}")
    return array.astype(wanted)


def _spread(made: LeafColumn | RaggedLeaf, missing: npt.NDArray[np.bool_]) -> LeafColumn | RaggedLeaf:
    """The column with rows for the missing values put back in."""
    if isinstance(made, RaggedLeaf):
        lengths = np.full(len(missing), -1, np.int64)
        lengths[~missing] = made.lengths
        return RaggedLeaf(made.elem, made.flat, lengths)
    array = empty(made.type, len(missing))
    array[~missing] = made.array
    return LeafColumn(made.type, array, missing)


def as_ragged(made: LeafColumn | RaggedLeaf | None, elem: Array, count: int) -> RaggedLeaf:
    """The column of `count` rows as one of arrays that differ in the first axis."""
    if isinstance(made, RaggedLeaf):
        return made
    if made is None or made.type == UNKNOWN:
        return RaggedLeaf(elem, empty(elem, 0), np.full(count, -1, np.int64))
    assert isinstance(made.type, Array)
    missing = np.zeros(len(made.array), np.bool_) if made.missing is None else made.missing
    flat = made.array[~missing].reshape(-1, *host_shape(elem))
    return RaggedLeaf(elem, flat.astype(host_dtype(elem)), np.where(missing, -1, made.type.shape[0]))


def describe_value(value: Any) -> str:
    """A value in the words of an error message."""
    kind = category(type(value))
    if kind is Category.ARRAY:
        return f"an array {value.dtype}[{', '.join(map(str, value.shape))}]" if value.shape else f"a {value.dtype}"
    if kind in (Category.NUMBER, Category.STRING, Category.MEMBER, Category.NONE):
        text = repr(value)
        return f"the {type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
    return f"a {type(value).__name__}"


def describe_type(type: Type) -> str:
    """A type in the words of an error message."""
    match type:
        case Array(dtype=dtype, shape=shape):
            names = {BOOL: "bool", INT: "int", FLOAT: "float", COMPLEX: "complex", UNKNOWN: "None"}
            return names.get(type) or f"{dtype}[{', '.join(map(str, shape))}]"
        case Tag(vocabulary=vocabulary):
            return "str" if vocabulary == "str" else f"a member of {vocabulary}"
        case Ref(store=store):
            return f"an object of {store}"
        case List(elem=elem):
            return f"a list of {describe_type(elem)}"
        case BuiltObject():
            return "an object that the function makes"
        case _:
            assert_never(type)


# ---- libraries
#
# Objects of other libraries, as records of plain fields: networkx graphs and scipy sparse matrices.
#
# A graph of class G has the fields, nodes and edges being positions in networkx's order,
#     size          the number of nodes
#     labels        the node labels, where they are not 0, 1, ..., size - 1
#     adjacency     for each node its neighbours (its successors, in a directed graph)
#     incidence     for each of them the edge to it, the last one in a multigraph
#     predecessors  likewise, in a directed graph
#     degrees       for each node; in_degrees and out_degrees in a directed graph
#     sources       for each edge its first node, and its second one in targets; edge_keys in a multigraph
#     node_<a>      for each node its attribute a, something of its type where it has none; likewise edge_<a>
#     without_<..>  where the node or edge has none, for attributes that some have not
#     graph_<a>     the attribute a of the graph
#
# A sparse matrix has data, indices, indptr and shape, by rows. What functions see of both is in `graphs.py`.


def is_library_object(x: Any) -> bool:
    """Is there a description of this object here?"""
    return isinstance(x, nx.Graph) or _is_sparse(x)


def _is_sparse(x: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")  # nobody holds a sparse matrix who has not imported it
    return sparse is not None and bool(sparse.issparse(x))


def describe_library_object(x: Any) -> dict[str, Any]:
    """The fields of a graph or a sparse matrix."""
    return _describe_graph(x) if isinstance(x, nx.Graph) else _describe_sparse(x)


def _describe_graph(graph: Any) -> dict[str, Any]:
    position = {label: i for i, label in enumerate(graph)}
    edges = list(graph.edges(keys=True)) if graph.is_multigraph() else list(graph.edges)
    number: dict[tuple[int, int], int] = {}
    for k, (u, v, *_) in enumerate(edges):
        number[position[u], position[v]] = k
        if not graph.is_directed():
            number[position[v], position[u]] = k
    adjacency = [[position[v] for v in graph.adj[u]] for u in graph]
    described: dict[str, Any] = {
        "size": len(position),
        "adjacency": adjacency,
        "incidence": [[number[u, v] for v in near] for u, near in enumerate(adjacency)],
        "degrees": [d for _, d in graph.degree],
        "sources": [position[e[0]] for e in edges],
        "targets": [position[e[1]] for e in edges],
    }
    if any(type(label) is not int or label != i for i, label in enumerate(graph)):
        described["labels"] = list(graph)
    if graph.is_directed():
        described["predecessors"] = [[position[v] for v in graph.pred[u]] for u in graph]
        described["in_degrees"] = [d for _, d in graph.in_degree]
        described["out_degrees"] = [d for _, d in graph.out_degree]
    if graph.is_multigraph():
        described["edge_keys"] = [e[2] for e in edges]
    node_data, edge_data = [graph.nodes[u] for u in graph], [graph.edges[e] for e in edges]
    for prefix, data in (("node", node_data), ("edge", edge_data)):
        for name in sorted({n for held in data for n in held}, key=str):
            column = [held.get(name) for held in data]
            if any(value is None for value in column):
                blank = _blank(next((value for value in column if value is not None), None))
                described[f"without_{prefix}_{name}"] = [value is None for value in column]
                column = [blank if value is None else value for value in column]
            described[f"{prefix}_{name}"] = column
    return described | {f"graph_{name}": value for name, value in graph.graph.items()}


def _blank(value: Any) -> Any:
    """What stands for a missing value beside such a one: leaves have no None in lists, references do."""
    if isinstance(value, (bool, int, float, complex, str)):
        return value if isinstance(value, enum.Enum) else type(value)()
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return np.zeros(value.shape, value.dtype)[()]
    return value if isinstance(value, enum.Enum) else None


INTEGER_LISTS = {
    **dict.fromkeys(("degrees", "in_degrees", "out_degrees", "sources", "targets"), 1),
    **dict.fromkeys(("adjacency", "incidence", "predecessors"), 2),
}
"""Fields of graphs that are lists of integers, so deep: without edges they do not show it."""


STRUCTURE = frozenset(("size", "labels", "sources", "targets", "edge_keys"))
"""Fields of graphs that say which nodes and edges there are."""


def _describe_sparse(matrix: Any) -> dict[str, Any]:
    rows = matrix.tocsr()
    return {
        "data": np.asarray(rows.data),
        "indices": np.asarray(rows.indices),
        "indptr": np.asarray(rows.indptr),
        "shape": tuple(int(n) for n in matrix.shape),
    }


def is_graph_class(cls: type) -> bool:
    """Are its instances networkx graphs?"""
    return issubclass(cls, nx.Graph)


def is_sparse_class(cls: type) -> bool:
    """Are its instances scipy sparse matrices or arrays?"""
    return cls.__module__.startswith("scipy.sparse")


def fill_graph(graph: Any, fields: dict[str, Any]) -> None:
    """Give an empty graph the nodes, edges and attributes that were described."""
    nodes, edges = (
        fields.get("labels", range(fields["size"])),
        list(zip(fields["sources"], fields["targets"], strict=True)),
    )
    attributes: dict[str, list[dict[str, Any]]] = {"node": [{} for _ in nodes], "edge": [{} for _ in edges]}
    for name, column in fields.items():
        prefix, _, attribute = name.partition("_")
        if prefix == "graph":
            graph.graph[attribute] = column
        if prefix in attributes and name != "edge_keys":
            missing = fields.get(f"without_{name}", [False] * len(column))
            for held, value, none in zip(attributes[prefix], column, missing, strict=True):
                if not none:
                    held[attribute] = value
    for label, held in zip(nodes, attributes["node"], strict=True):
        graph.add_node(label, **held)
    keys = fields.get("edge_keys")
    for i, ((u, v), held) in enumerate(zip(edges, attributes["edge"], strict=True)):
        if keys is None:
            graph.add_edge(nodes[u], nodes[v], **held)
        else:
            graph.add_edge(nodes[u], nodes[v], key=keys[i], **held)


def rebuild_sparse(cls: type, fields: dict[str, Any]) -> Any:
    """The sparse matrix that was described."""
    sparse = sys.modules["scipy.sparse"]  # imported, since its class is
    arrays = fields["data"], fields["indices"], fields["indptr"]
    rows = sparse.csr_array(arrays, shape=tuple(fields["shape"]))
    rows.check_format()  # SciPy's C++ trusts the indices
    return cls(rows)


def is_row_matrix(cls: type) -> bool:
    """Does a class of scipy keep sparse matrices by rows?"""
    return is_sparse_class(cls) and cls.__name__.startswith("csr")
