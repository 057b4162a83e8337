"""Packing matrices, as LLVM IR: several of them in the panels that `kernel.py` reads, as if they were one.

    straight    w0: [k0, n], w1: [k1, n], ...    ->    [n / panel][k0 + k1 + ...][panel]       w0 above w1
    turned      w0: [n0, k], w1: [n1, k], ...    ->    [(n0 + n1 + ...) / panel][k][panel]     the same, transposed

A program packs a matrix in every call, because it may be another one each time. XLA would put the matrices together,
fill them up to whole panels and transpose the blocks, element by element; here each row is read once, by vectors, and
written where it belongs, squares of rows transposed in registers. The last panel is filled up with zeros.
"""

from __future__ import annotations

from autobatch.backends.llvm.text import LlvmFunction, lanes_below
from autobatch.backends.xla.products.kernel import ProductKernel, masked_load, transposed

ROWS = 16
"""Rows that are copied to one panel before the next panel is written: as many pages as the processor keeps at hand."""


def text(kernel: ProductKernel) -> str:
    """The module but for the handler, which calls `straight` or `turned` for each matrix, `fill` behind the latter."""
    v, s = kernel.vector, kernel.suffix
    declared = [
        *(f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("umin", "umax")),
        f"declare {v} @llvm.masked.load.{s}.p0(ptr, i32, {kernel.mask}, {v})",
    ]
    return "\n".join([*declared, *(str(make(kernel)) for make in (straight, turned, fill))])


def straight(kernel: ProductKernel) -> LlvmFunction:
    """Rows of a matrix to rows `first` and those behind it, of `k`, in all panels."""
    f = LlvmFunction(
        "internal void @straight(ptr %w, i64 %rows, i64 %n, ptr %out, i64 %first, i64 %k) noinline nounwind"
    )
    with f.loop(0, "%rows", ROWS) as top:
        end = f.least(f.add(top, ROWS), "%rows")
        with f.loop(0, "%n", kernel.panel) as column:
            panel = f.at("%out", f.mul(f.mul(column, "%k"), kernel.bytes))
            left = f.sub("%n", column)
            rest = f.sub(f.let(f"call i64 @llvm.umax.i64(i64 {left}, i64 {kernel.lanes})"), kernel.lanes)
            masks = [lanes_below(f, kernel.lanes, count) for count in (left, rest)]
            with f.loop(top, end, 1) as row:
                origin = f.at("%w", f.mul(f.add(f.mul(row, "%n"), column), kernel.bytes))
                target = f.at(panel, f.mul(f.add("%first", row), kernel.panel * kernel.bytes))
                for c, mask in enumerate(masks):
                    lane = c * kernel.lanes * kernel.bytes
                    value = masked_load(f, kernel, f.at(origin, lane), mask)
                    f.do(f"store {kernel.vector} {value}, ptr {f.at(target, lane)}, align {kernel.bytes}")
    f.do("ret void")
    return f


def turned(kernel: ProductKernel) -> LlvmFunction:
    """Rows of a matrix of `k` columns to columns `first` and those behind it: squares of as many rows as a vector has
    elements where they begin at a vector of the panel, the others element by element."""
    f = LlvmFunction("internal void @turned(ptr %w, i64 %rows, ptr %out, i64 %first, i64 %k) noinline nounwind")
    row, lanes = f.slot(0), kernel.lanes
    whole = f.sub("%k", f.let(f"urem i64 %k, {lanes}"))
    with f.whilst(lambda: f.below(f.get(row), "%rows")):
        done = f.get(row)
        column = f.add("%first", done)
        begins = f.let(f"icmp eq i64 {f.let(f'urem i64 {column}, {lanes}')}, 0")
        fits = f.let(f"icmp ule i64 {f.add(done, lanes)}, %rows")
        square = f.let(f"and i1 {begins}, {fits}")
        single = f.let(f"xor i1 {square}, true")
        with f.when(square):
            with f.loop(0, whole, lanes) as top:
                _square(f, kernel, done, column, top)
            with f.loop(done, f.add(done, lanes), 1) as each:
                _elements(f, kernel, each, whole)
            f.set(row, f.add(done, lanes))
        with f.when(single):
            _elements(f, kernel, done, "0")
            f.set(row, f.add(done, 1))
    f.do("ret void")
    return f


def _elements(f: LlvmFunction, kernel: ProductKernel, row: str, first: str) -> None:
    """Elements `first` and those behind it of a row, one by one."""
    column = f.add("%first", row)
    with f.loop(first, "%k", 1) as k:
        origin = f.at("%w", f.mul(f.add(f.mul(row, "%k"), k), kernel.bytes))
        value = f.load(kernel.scalar, origin, align=kernel.bytes)
        f.do(f"store {kernel.scalar} {value}, ptr {_place(f, kernel, column, k)}, align {kernel.bytes}")


def _square(f: LlvmFunction, kernel: ProductKernel, row: str, column: str, top: str) -> None:
    """As many rows as a vector has elements, of as many columns."""
    lanes, v = kernel.lanes, kernel.vector
    rows = []
    for j in range(lanes):
        origin = f.at("%w", f.mul(f.add(f.mul(f.add(row, j), "%k"), top), kernel.bytes))
        rows.append(f.load(v, origin, align=kernel.bytes))
    target = _place(f, kernel, column, top)
    for j, value in enumerate(transposed(f, kernel, rows)):
        to = f.at(target, j * kernel.panel * kernel.bytes)
        f.do(f"store {v} {value}, ptr {to}, align {kernel.bytes}")


def fill(kernel: ProductKernel) -> LlvmFunction:
    """Zeros in the columns from `first` on, up to the end of the last of `panels`."""
    f = LlvmFunction("internal void @fill(ptr %out, i64 %first, i64 %panels, i64 %k) noinline nounwind")
    with f.loop("%first", f.mul("%panels", kernel.panel), 1) as column:
        target = _place(f, kernel, column, "0")
        with f.loop(0, "%k", 1) as k:
            to = f.at(target, f.mul(k, kernel.panel * kernel.bytes))
            f.do(f"store {kernel.scalar} 0.0, ptr {to}, align {kernel.bytes}")
    f.do("ret void")
    return f


def _place(f: LlvmFunction, kernel: ProductKernel, column: str, k: str) -> str:
    """The address of an element of `%out`, whose panels have `%k` rows."""
    panel, lane = f.let(f"udiv i64 {column}, {kernel.panel}"), f.let(f"urem i64 {column}, {kernel.panel}")
    row = f.add(f.mul(panel, "%k"), k)
    return f.at("%out", f.mul(f.add(f.mul(row, kernel.panel), lane), kernel.bytes))
