"""What equations compute on rows: leaf operations, gathers, reductions of runs, and products of gathered rows.

The products are operations in JAX:

    multiply([(x0, index0), (x1, None)], pack([weight], False, packing), kernel)
        = concatenate([x0[index0], x1], axis=1) @ weight                                float[m, n]
    multiply(..., count)            the same; rows from `count` on are zero

    outer([(x0, index0), (x1, None)], g, count, kernel)
        = concatenate([x0[index0], x1], axis=1)[:count].T @ g[:count]                   float[k, n]

    sum_rows(x, source, owner, rows, kernel)
        = zeros[rows, n].at[owner].add(x[source])                                       float[rows, n]

    empty(shape, dtype, number, kernel)     whatever is in the memory

XLA's CPU product packs the whole matrix anew for every window of a level loop, and reads rows that were first gathered
into a temporary. The kernel (`product_kernels.py`) reads a matrix that was packed once before the loop, and gathers the
rows itself. It runs where the program is lowered for a CPU. On other platforms, under `jax.vmap` and in derivatives the
operations are what it says on the right, by XLA's own product; so every transformation of JAX goes through them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.xla import product_kernels
from autobatch.backends.xla.masks import LiveRows, on_rows
from autobatch.backends.xla.product_kernels import Operation, Registered
from autobatch.backends.xla.row_operations import over_rows
from autobatch.ir import jax_compat
from autobatch.ir.core import Array
from autobatch.ir.leaf import NEUTRAL
from autobatch.ir.regions import is_masked
from autobatch.ir.system import Atom, Compute, Equation, Fold, Gather, Variable, results
from autobatch.options import OptionError
from autobatch.passes.equations import RowProduct, filling, row_indices, row_product, row_values, values_of_rows
from autobatch.passes.fission import Recurrence

# ---- rows


def take(array: Any, index: Any) -> Any:
    """Rows of an array; the planner guarantees the range. It is what `array.at[index].get` makes of integers that are
    not negative. It is traced for each window of each loop, and NumPy's rules of indexing take ten times as long."""
    inner = array.shape[1:]
    offsets = tuple(range(index.ndim, index.ndim + len(inner)))
    numbers = jax.lax.GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=(0,), start_index_map=(0,))
    mode = jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return jax.lax.gather(array, jax.lax.expand_dims(index, (index.ndim,)), numbers, (1, *inner), mode=mode)


def segment_reduce(kind: str, values: Any, owner: Any, rows: int, *, ordered: bool = True) -> Any:
    """Reduce values by owners, which are sorted where `ordered`; an owner of `rows` is dropped."""
    logical = kind in ("any", "all")
    held = values.astype(jnp.int32) if logical else values
    neutral = jnp.asarray(NEUTRAL[kind](values.dtype)).astype(held.dtype)
    at = jnp.full((rows + 1, *values.shape[1:]), neutral, held.dtype).at[owner]
    scatters: dict[str, Any] = {
        "sum": at.add,
        "prod": at.multiply,
        "max": at.max,
        "any": at.max,
        "min": at.min,
        "all": at.min,
    }
    reduced = scatters[kind](held, indices_are_sorted=ordered, mode="promise_in_bounds")[:rows]
    return reduced.astype(values.dtype)


def counted(fold: Fold, values: Any, owner: Any) -> Any:
    """The elements of the runs of a fold without those that do not count: a NaN behind the first element, as
    `leaf.extreme` has it. The least (greatest) number is in their place."""
    if fold.even or fold.kind not in ("max", "min"):
        return values
    first = jnp.concatenate([jnp.ones(1, bool), owner[1:] != owner[:-1]])
    counts = (values == values) | first.reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(counts, values, NEUTRAL[fold.kind](values.dtype))


def compute_live(
    equation: Compute, xs: Sequence[Any], rows: int, live: Any, first: Any = 0, loops: str = "xla"
) -> Sequence[Any]:
    """As `compute`, on `rows` rows of which those of `first:live` matter: an operation that holds a loop runs on the
    operands of the row `first` in place of the others, whose loops might never end. `loops`: the option."""
    varying = _varying(equation)
    if not any(varying):
        return [jnp.broadcast_to(y, (rows, *y.shape)) for y in compute(equation, xs)]
    masked = is_masked(equation.op)
    if not (masked or jax_compat.holds_loop(equation.op)):
        return compute(equation, xs)
    row = jnp.arange(rows)
    lives = (row >= first) & (row < live)
    if masked:
        return on_rows(equation.op, xs, varying, LiveRows(rows, lives, loops))
    chosen = jnp.where(lives, row, first)

    def run() -> list[Any]:
        return list(compute(equation, [take(x, chosen) if v else x for v, x in zip(varying, xs, strict=True)]))

    def skip() -> list[Any]:
        return [jax_compat.zeros(a.shape, a.dtype) for a in jax.eval_shape(run)]

    found: Sequence[Any] = jax.lax.cond(live > first, run, skip)
    return found


def compute(equation: Compute, xs: Sequence[Any]) -> Sequence[Any]:
    """The results of a computation on all rows: a leading axis where an operand has one (`lanes.over_rows`)."""
    if is_masked(equation.op):
        return on_rows(equation.op, xs, _varying(equation), None)
    return over_rows(equation.op, [r.type for r in equation.results], xs, _varying(equation))


def _varying(equation: Compute) -> list[bool]:
    return [isinstance(x, Variable) and x.space is not None for x in equation.operands]


# ---- inverse
#
# The inverse of tables of pointers: what has read each row.
#
# Cotangents go from the rows that have read to the rows that were read; the tables of the primal say the opposite.


@dataclass(frozen=True)
class ReadEntries:
    """What the entries of tables have read: `row` is the row that each has read, past the last one where it does not
    count; `source` where its cotangent lies. `count`: how often each row has been read; `once`: none more than once."""

    row: Any
    source: Any
    count: Any
    once: Any

    @property
    def rows(self) -> int:
        rows: int = self.count.shape[0]
        return rows

    def placed(self, room: int) -> Any:
        """The entry that has read each row, where no row has been read more than once."""
        at = jnp.arange(self.row.shape[0], dtype=self.row.dtype)
        where = jnp.where(self.row < self.rows, self.row, room)
        return jnp.zeros(room, self.row.dtype).at[where].set(at, mode="drop")


@dataclass(frozen=True)
class Inverse:
    """Which entries have read each row: `count[row]` ones from `first[row]` on in `entry`, and in `index`, where their
    cotangents lie."""

    first: Any
    count: Any
    index: Any
    entry: Any


def as_rows(weight: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Factors, one for each row or each number of it, for rows of this shape."""
    wide = weight.reshape(weight.shape[0], *(weight.shape[1:] or (1,) * len(shape)))
    return jnp.broadcast_to(wide, (weight.shape[0], *shape)).astype(dtype)


def scaled(values: Any, factors: Any) -> Any:
    """Cotangents times factors. A factor of zero says that nothing was read: zero, whatever the cotangent is."""
    return jnp.where(factors == 0, jnp.zeros_like(values), values * factors)


def entries_of(row: Any, source: Any, rows: int) -> ReadEntries:
    count = jnp.zeros(rows + 1, row.dtype).at[row].add(1, mode="promise_in_bounds")[:rows]
    return ReadEntries(row, source, count, jnp.max(count, initial=0) <= 1)


def invert(found: ReadEntries) -> Inverse:
    """The entries that have read each row, in their order. Where no row is read twice, as in trees, nothing is
    sorted."""
    entries, rows = found.row.shape[0], found.rows
    dtype = found.row.dtype
    room = max(entries, rows)

    def placed() -> tuple[Any, Any]:
        return found.placed(room), jnp.arange(rows, dtype=dtype)

    def ordered() -> tuple[Any, Any]:
        order = jnp.argsort(found.row, stable=True).astype(dtype)
        return jnp.pad(order, (0, room - entries)), jnp.cumsum(found.count, dtype=dtype) - found.count

    entry, first = jax.lax.cond(found.once, placed, ordered)
    return Inverse(first, found.count, take(found.source, entry), entry)


@dataclass(frozen=True)
class Runs:
    """What each row of a loop adds up: `count[row]` entries from `first[row]` on, which are the rows `index` of a
    buffer (negative: none), each multiplied by its factor where there are any. `first` None: one entry a row."""

    first: Any
    count: Any
    index: Any
    factors: Any


# ---- row reads
#
# Rows that were read of a table, from all rows of a space: their indices, and their cotangents.
#
# of = dynamic_slice(table, word)    word [7, 2, _]    cotangent [[a], [b], [_]]    live 2
#                                    indices [7, 2, V]        rows [a, b, 0]        V: no row of the table


def rows_read(of: Compute, indices: Sequence[Any], cotangent: Any, live: Any, clean: bool) -> tuple[Any, Any]:
    """`indices` int32[n] and `rows` [n, ...] of what `of` has read: the operands behind the table, and the cotangent.

    `live` bool[rows] says which rows count, None where it was read once. The index of the others is one past the last
    row of the table; what lies there is zero if it is to be `clean`."""
    if live is None:
        return row_indices(of, indices, _count(of)), row_values(of, cotangent)
    found = _of_all(of, indices, len(live))
    rows = jax.vmap(lambda ct: row_values(of, ct))(cotangent)
    if clean:
        rows = jnp.where(live.reshape(-1, *(1,) * (rows.ndim - 1)), rows, jnp.zeros_like(rows))
    found = jnp.where(live[:, None], found, _count(of))
    return found.reshape(-1), rows.reshape(-1, *rows.shape[2:])


def rows_of_each(of: Compute, indices: Sequence[Any], tables: Any, which: Any) -> Any:
    """What `of` reads where row k has the table `tables[which[k]]`: no row has a copy of its own."""
    count = _count(of)
    found = _of_all(of, indices, len(which))
    held = tables.reshape(-1, *tables.shape[2:])
    rows = take(held, which[:, None] * count + jnp.clip(found, 0, count - 1))
    if (other := filling(of)) is not None:
        inside = (found >= 0) & (found < count)
        rows = jnp.where(inside.reshape(*inside.shape, *(1,) * (rows.ndim - 2)), rows, jnp.asarray(other, rows.dtype))
    return jax.vmap(lambda r: values_of_rows(of, r))(rows)


def in_tables(indices: Any, which: Any, shape: tuple[int, ...]) -> Any:
    """Indices of rows, as many for each of `which`, the table that it reads, in all tables end to end; past the end
    where either is out of range. `shape`: tables, rows, ..."""
    tables, count = shape[:2]
    held = jnp.repeat(which, indices.shape[0] // which.shape[0], total_repeat_length=indices.shape[0])
    inside = (indices >= 0) & (indices < count) & (held < tables)
    return jnp.where(inside, held * count + indices, tables * count)


def _count(of: Compute) -> int:
    table = of.operands[0]
    assert isinstance(table, Variable)
    return table.type.shape[0]


def _of_all(of: Compute, indices: Sequence[Any], rows: int) -> Any:
    """int32[rows, n]: `row_indices` of all rows."""
    varying = [isinstance(x, Variable) and x.space is not None for x in of.operands[1:]]

    def one(*own: Any) -> Any:
        rest = iter(own)
        return row_indices(of, [next(rest) if v else x for v, x in zip(varying, indices, strict=True)], _count(of))

    if not any(varying):
        found = one()
        return jnp.broadcast_to(found, (rows, *found.shape))
    return jax.vmap(one)(*(x for v, x in zip(varying, indices, strict=True) if v))


# ---- products


Source = tuple[Any, Any | None]
"""Rows: an array [rows, k], and int32[m], which rows of it are meant; None for all of them, and m is their number."""

SCRATCH = 1024 * 1024
"""Bytes of gathered rows that are worked on together, at most: they stay in the second level of cache."""
TILE = 112
"""Rows that are worked on together, at most: 8 blocks of the widest kernel."""
TRANSPOSED = 768 * 1024
"""Bytes of transposed rows, at most: beside a panel of other rows, in the second level of cache."""


class Matrix(NamedTuple):
    """A matrix [k, n]: `parts` one above the other, transposed then if it is `turned`; and `panels`, the same packed.
    What multiplies by it reads one of both, so the parts stay apart where only the panels are read."""

    parts: tuple[Any, ...]
    turned: bool
    panels: Any

    @property
    def shape(self) -> tuple[int, int]:
        return _shape(self.parts, self.turned)

    @property
    def dtype(self) -> Any:
        return self.parts[0].dtype


def _shape(parts: Sequence[Any], turned: bool) -> tuple[int, int]:
    above, beside = sum(w.shape[0] for w in parts), parts[0].shape[1]
    return (beside, above) if turned else (above, beside)


def _whole(parts: Sequence[Any], turned: bool) -> Any:
    together = jax.lax.concatenate(parts, 0) if len(parts) > 1 else parts[0]
    return jax.lax.transpose(together, (1, 0)) if turned else together


def pack(parts: Sequence[Any], turned: bool, made: Registered) -> Matrix:
    """A matrix in panels `[panels, k, panel]`, zeros past the last column."""
    panel = made.kernel.panel
    k, n = _shape(parts, turned)
    panels = -(-n // panel)

    def plain(*weights: Any) -> Any:
        filled = jnp.pad(_whole(weights, turned), ((0, 0), (0, panels * panel - n)))
        return filled.reshape(k, panels, panel).transpose(1, 0, 2)

    def kernel(*weights: Any) -> Any:
        call = jax.ffi.ffi_call(made.target, jax.ShapeDtypeStruct((panels, k, panel), weights[0].dtype))
        return call(jnp.zeros((int(turned),), jnp.int32), *weights)

    return Matrix(tuple(parts), turned, _operation(plain, kernel, moving=range(len(parts)))(*parts))


def rows_of(source: Source) -> Any:
    """The rows of a source; the planner guarantees the range of an index."""
    array, index = source
    return array if index is None else take(array, index)


def multiply(sources: Sequence[Source], matrix: Matrix, made: Registered, count: Any = None) -> Any:
    """The product, of the dtype of the matrix: see above. All arrays have that dtype; k and n are at least 1.

    `count`: how many rows are multiplied, the first ones; zeros stand for the others. None: all of them."""
    arrays = tuple(array for array, _ in sources)
    indices = tuple(index for _, index in sources)
    rows = next((a.shape[0] if i is None else i.shape[0] for a, i in sources))
    counts = () if count is None else (jnp.asarray(count, jnp.int32),)

    def plain(arrays: Any, indices: Any, parts: Any, panels: Any, *counts: Any) -> Any:
        found = jax.lax.dot(side_by_side(arrays, indices), _whole(parts, matrix.turned))
        return jnp.where(jnp.arange(rows)[:, None] < counts[0], found, jnp.zeros_like(found)) if counts else found

    def kernel(arrays: Any, indices: Any, parts: Any, panels: Any, *counts: Any) -> Any:
        call = jax.ffi.ffi_call(made.target, _shapes(rows, matrix, made))
        return call(*_operands(arrays, indices), panels, *counts)[0]

    # what is packed follows from the parts
    operation = _operation(plain, kernel, moving=(0, 2))
    return operation(arrays, indices, matrix.parts, matrix.panels, *counts)


def outer(sources: Sequence[Source], g: Any, count: Any, made: Registered) -> Any:
    """The sum of outer products of the first `count` rows: see above. All arrays have the dtype of `g`; k and n are at
    least 1. Nothing of the other rows reaches the result."""
    arrays = tuple(array for array, _ in sources)
    indices = tuple(index for _, index in sources)
    shape = (sum(a.shape[1] for a in arrays), g.shape[1])

    def plain(arrays: Any, indices: Any, g: Any, count: Any) -> Any:
        live = (jnp.arange(g.shape[0]) < count)[:, None]
        x, held = side_by_side(arrays, indices), jnp.where(live, g, jnp.zeros_like(g))
        return jnp.where(live, x, jnp.zeros_like(x)).T @ held

    def kernel(arrays: Any, indices: Any, g: Any, count: Any) -> Any:
        block, chunk = made.kernel.vectors.rows, made.kernel.chunk
        columns = -(-shape[0] // block) * block
        fitting = max(4 * chunk, TRANSPOSED // (columns * made.kernel.bytes) // chunk * chunk)
        room = min(fitting, -(-g.shape[0] // chunk) * chunk)
        shapes = [jax.ShapeDtypeStruct(s, g.dtype) for s in (shape, (columns, room), (room, made.kernel.panel))]
        return jax.ffi.ffi_call(made.target, shapes)(*_operands(arrays, indices), g, jnp.asarray(count, jnp.int32))[0]

    return _operation(plain, kernel, moving=(0, 2))(arrays, indices, g, count)


def sum_rows(x: Any, source: Any, owner: Any, rows: int, made: Registered) -> Any:
    """The sums, of the dtype of `x`: see above. `x`: [any, n]. An owner that is no row counts for nothing."""

    def plain(x: Any, source: Any, owner: Any) -> Any:
        live = (owner >= 0) & (owner < rows)
        read = rows_of((x, jnp.where(live, source, 0)))
        read = jnp.where(live[:, None], read, jnp.zeros_like(read))
        total = jnp.zeros((rows + 1, x.shape[1]), x.dtype)
        return total.at[jnp.where(live, owner, rows)].add(read, mode="promise_in_bounds")[:rows]

    def kernel(x: Any, source: Any, owner: Any) -> Any:
        return jax.ffi.ffi_call(made.target, jax.ShapeDtypeStruct((rows, x.shape[1]), x.dtype))(x, source, owner)

    return _operation(plain, kernel, moving=(0,))(x, source.astype(jnp.int32), owner.astype(jnp.int32))


def empty(shape: tuple[int, ...], dtype: Any, number: int, made: Registered) -> Any:
    """Memory that is written before it is read. `number` tells those of one program apart: XLA would make one of two
    that are alike, and copy it. On platforms without the kernel, zeros."""

    def kernel() -> Any:
        return jax.ffi.ffi_call(made.target, jax.ShapeDtypeStruct(shape, dtype))(number=np.int64(number))

    return jax.lax.platform_dependent(cpu=kernel, default=lambda: jnp.zeros(shape, dtype))


def side_by_side(arrays: Sequence[Any], indices: Sequence[Any]) -> Any:
    parts = [rows_of(source) for source in zip(arrays, indices, strict=True)]
    return jax.lax.concatenate(parts, 1) if len(parts) > 1 else parts[0]


def _operands(arrays: Sequence[Any], indices: Sequence[Any]) -> list[Any]:
    whole = jnp.zeros((0,), jnp.int32)
    return [x for a, i in zip(arrays, indices, strict=True) for x in (a, whole if i is None else i)]


def _operation(plain: Callable[..., Any], kernel: Callable[..., Any], moving: Sequence[int]) -> Callable[..., Any]:
    """An operation that the kernel computes on a CPU, and `plain` under transformations and elsewhere. It has
    derivatives by its operands `moving`."""

    def choose(*operands: Any) -> Any:
        return jax.lax.platform_dependent(*operands, cpu=kernel, default=plain)

    def batched(size: int, over: Any, *operands: Any) -> tuple[Any, bool]:
        axes = jax.tree.map(lambda batched: 0 if batched else None, over)
        return jax.vmap(plain, in_axes=axes, axis_size=size)(*operands), True

    def differentiated(primals: Any, tangents: Any) -> tuple[Any, Any]:
        def of_moving(*moved: Any) -> Any:
            operands = list(primals)
            for k, x in zip(moving, moved, strict=True):
                operands[k] = x
            return plain(*operands)

        _, out = jax.jvp(of_moving, [primals[k] for k in moving], [tangents[k] for k in moving])
        return operation(*primals), out

    over_examples = jax.custom_batching.custom_vmap(choose)
    over_examples.def_vmap(batched)
    operation = jax.custom_jvp(over_examples)
    operation.defjvp(differentiated)
    return operation


def _shapes(rows: int, matrix: Matrix, made: Registered) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Of the result, and of the scratch memory that XLA gives the kernel."""
    k, n = matrix.shape
    kernel = made.kernel
    room = -(-k // kernel.chunk) * kernel.chunk
    most = max(kernel.vectors.rows, min(TILE, SCRATCH // (room * kernel.bytes)))
    tiles = -(-rows // most)
    scratch = (-(-rows // tiles), room)
    return jax.ShapeDtypeStruct((rows, n), matrix.dtype), jax.ShapeDtypeStruct(scratch, matrix.dtype)


# ---- choice
#
# Which products the kernel computes, and which XLA: by the option `products`, and by what was measured.
#
# On one core with AVX-512 (XLA's product of JAX 0.10; the same rows gathered in both), the kernel takes 0.5 to 0.9 of
# XLA's time from 8 rows on, for matrices from 16x16 to 1024x1024, 1.0 for 2048x2048, and 1.4 for 4096x4096: it packs
# nothing in the loop, and needs no gathered rows in memory. One row, and matrices of a few numbers, are as fast by the
# loops that XLA writes into the program. The kernel runs on one core, XLA cuts large products among all cores there
# are.


logger = logging.getLogger("autobatch")

DTYPES = ("float32", "float64")
LEAST = 1024
"""Multiply-adds from which a call of the kernel is worth it."""
MANY = 12_000_000
"""Multiply-adds that XLA cuts among cores."""
LARGEST = 2**21
"""Numbers in a matrix from which XLA's product is as fast on one core, or faster: it packs for more levels of cache."""

FEW, FEW_OUTER, UNPACKED = 8, 32, 2**16
"""Rows below which XLA's product, and that of two columns of rows, is faster where the matrix has so many numbers and
is not packed already: 0.8 of the time for 4 rows and 256x256, forwards, and 0.7 to 0.8 backwards for 4 and 16."""


@dataclass(frozen=True)
class ProductChoice:
    """The kernel, or None for XLA's product, and why; with the one that packs the matrix for it."""

    kernel: Registered | None
    why: str
    packing: Registered | None = None


def require(option: str) -> None:
    """OptionError where the option wants kernels and there are none on this machine."""
    if option == "native":
        try:
            product_kernels.registered("float32")
        except UnavailableError as error:
            raise OptionError(f"option 'products' is 'native', but there is no kernel: {error}") from None


def choose(option: str, product: RowProduct, rows: int, once: bool = False) -> ProductChoice:
    """What computes a product of so many rows at once. `once`: the matrix is packed for it alone."""
    size = product.contracted * product.columns
    slower = "XLA's is as fast for so large a matrix" if size >= LARGEST else _slower(rows * size)
    if once and rows < FEW and size >= UNPACKED:
        slower = "to pack the matrix takes as long as the product of so few rows"
    return _choose(option, _dtype(product), "product", _not_covered(product), slower)


def choose_outer(option: str, product: RowProduct, rows: int) -> ProductChoice:
    """What computes the cotangent of the matrix of a product from so many rows, or fewer: the number is known when the
    program runs, and the kernel reads no others. (On one core, for 1171 of 1456 rows of 300 and 750 numbers, it takes
    0.7 of the time of XLA's product of masked copies.)"""
    size = product.contracted * product.columns
    slower = _slower(rows * size)
    if rows < FEW_OUTER and size >= UNPACKED:
        slower = "XLA's is faster for so few rows"
    return _choose(option, _dtype(product), "outer", _not_covered(product), slower)


def choose_sum(option: str, dtype: Any, entries: int, numbers: int) -> ProductChoice:
    """What adds up rows of so many numbers by owner, of so many entries at most."""
    slower = "too little work for a call" if entries * numbers < LEAST else None
    why = None if str(dtype) in DTYPES else f"the kernel is for float32 and float64 alone, not for {dtype}"
    why = "the rows are empty" if not numbers else why
    return _choose(option, str(dtype), "sum", why, slower)


def choose_empty(option: str, dtype: Any, bytes: int) -> ProductChoice:
    """What makes memory that will be written before it is read. Floats alone: whatever is there, it is a number."""
    slower = "too few bytes for a call" if bytes < LEAST else None
    why = None if str(dtype) in DTYPES else f"the kernel is for float32 and float64 alone, not for {dtype}"
    return _choose(option, str(dtype), "empty", why, slower)


def _choose(option: str, dtype: str, operation: Operation, never: str | None, slower: str | None) -> ProductChoice:
    if option == "xla":
        return ProductChoice(None, "asked for")
    why = slower if never is None and option == "auto" else never
    if why is not None:
        return ProductChoice(None, why)
    try:
        packing = product_kernels.registered(dtype, "pack") if operation == "product" else None
        return ProductChoice(product_kernels.registered(dtype, operation), "the faster one here", packing)
    except UnavailableError as error:
        if option == "native":
            raise OptionError(f"option 'products' is 'native', but there is no kernel: {error}") from None
        return ProductChoice(None, str(error))


def _dtype(product: RowProduct) -> str:
    return str(jax_compat.device_dtype(product.weight.type))


def _not_covered(product: RowProduct) -> str | None:
    """Why the kernel cannot compute a product."""
    result = product.equation.results[0].type
    assert isinstance(result, Array)
    dtypes = {str(jax_compat.device_dtype(t)) for t in (product.row.type, product.weight.type, result)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return f"the kernel is for float32 and float64 alone, not for {' and '.join(sorted(dtypes))}"
    if not product.contracted or not product.columns:
        return "the matrix is empty"
    return None


def _slower(work: int) -> str | None:
    """Why XLA's product is taken to be the faster one."""
    if work < LEAST:
        return "too little work for a call"
    if work >= MANY and available_cores() > 1:
        return f"XLA cuts so much work among {available_cores()} cores"
    return None


def available_cores() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- window
#
# The products that the kernel computes. In level loops: matrices packed before, rows gathered in the loop. Of all rows
# of a space: as many as there are, whatever there is room for.


__all__ = ["LoopProducts", "Matrices", "Source", "product_of_rows"]


class Matrices:
    """The matrices of a program, packed once each."""

    def __init__(self, values: Mapping[Variable, Any], makers: Mapping[Variable, Equation]) -> None:
        """`values`: of the variables that are known so far, and what made them: more of them as the program is traced,
        outside of its loops."""
        self.values, self.makers = values, makers
        self.packed: dict[tuple[Variable, int, str], Matrix] = {}

    def get(self, product: RowProduct, kernel: Registered) -> Matrix | None:
        """The matrix of a product as a kernel reads it, where it was packed."""
        return self.packed.get((product.weight, product.axis, kernel.target))

    def pack(self, product: RowProduct, choice: ProductChoice) -> Matrix | None:
        """The same, packed now where it was not; None where no kernel is chosen."""
        if choice.kernel is None or choice.packing is None:
            return None
        if (found := self.get(product, choice.kernel)) is None:
            found = pack(self._parts(product.weight), product.axis == 1, choice.packing)
            self.packed[product.weight, product.axis, choice.kernel.target] = found
        return found

    def _parts(self, weight: Variable) -> list[Any]:
        """The matrices of which a matrix is put together, one above the other: perhaps nobody else needs it whole."""
        maker = self.makers.get(weight)
        if isinstance(maker, Compute) and maker.op.name == "concatenate" and maker.op["dimension"] == 0:
            parts = [self.values.get(x) for x in maker.operands if isinstance(x, Variable)]
            if len(parts) == len(maker.operands) and all(p is not None and p.shape[0] for p in parts):
                return parts
        return [self.values[weight]]


def product_of_rows(
    option: str, equation: Equation, matrices: Matrices, capacity: int, rows: Callable[[Variable], Any], count: Any
) -> Any | None:
    """The result of an equation over all rows of a space, where it is a product that the kernel computes; else None.

    `rows`: those of an operand. Only the first `count` are multiplied, the others are zero."""
    product = row_product(equation)
    if product is None or product.weight not in matrices.values:
        return None
    choice = choose(option, product, capacity, once=True)
    if choice.kernel is None or (matrix := matrices.pack(product, choice)) is None:
        return None
    return multiply([(rows(product.row), None)], matrix, choice.kernel, count)


class LoopProducts:
    """Which products of a recurrence are the kernel's at which width, and their matrices, packed."""

    def __init__(self, option: str, recurrence: Recurrence, widths: Sequence[int], matrices: Matrices) -> None:
        """`matrices`: of the variables that are known before the loop."""
        require(option)
        self.makers: dict[Variable, Equation] = {
            r: e for t in recurrence.tasks for e in t.equations for r in results(e)
        }
        self.option, self.matrices = option, matrices
        for task in recurrence.tasks:
            for equation in task.equations:
                product = row_product(equation)
                if product is not None and product.weight in matrices.values:
                    self._prepare(product, widths)

    def _prepare(self, product: RowProduct, widths: Sequence[int]) -> None:
        """Pack the matrix of a product where the kernel computes it at some width."""
        for width in widths:
            choice = choose(self.option, product, width)
            shape = f"[{width}, {product.contracted}] x [{product.contracted}, {product.columns}]"
            by = "XLA" if choice.kernel is None else choice.kernel.target
            logger.debug("product %s of the line %s by %s: %s", shape, product.equation.span.line, by, choice.why)
            self.matrices.pack(product, choice)

    def of(
        self,
        equation: Equation,
        width: int,
        row: Callable[[Atom], Any],
        gathered: Callable[[Gather], Source],
    ) -> Any | None:
        """The result of an equation for one window, where it is a product that the kernel computes; else None.

        `row`: the window's rows of an operand. `gathered`: what a gather reads, and which rows."""
        product = row_product(equation)
        if product is None:
            return None
        kernel = choose(self.option, product, width).kernel
        if kernel is None or (matrix := self.matrices.get(product, kernel)) is None:
            return None
        return multiply(self._sources(product.row, matrix.dtype, row, gathered), matrix, kernel)

    def _sources(
        self, x: Variable, dtype: Any, row: Callable[[Atom], Any], gathered: Callable[[Gather], Source]
    ) -> list[Source]:
        """The rows of an operand, as the kernel gathers them itself: straight from where they come from."""
        maker = self.makers.get(x)
        if isinstance(maker, Gather):
            source = gathered(maker)
            if source[0].dtype == dtype:
                return [source]
        if isinstance(maker, Compute) and maker.op.name == "concatenate":
            parts = [p for p in maker.operands if isinstance(p, Variable) and p.space is not None]
            if len(parts) == len(maker.operands) and all(p.type.shape[0] for p in parts):
                return [s for p in parts for s in self._sources(p, dtype, row, gathered)]
        return [(row(x), None)]
