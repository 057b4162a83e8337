"""The sum of outer products of gathered rows, as LLVM IR: the cotangent of a matrix from all rows that it multiplied.

    out[k, :] = sum over r < count of x[index[r], k] * g[r, :]        x: [any number of rows, k], g: [rows, n]

It is a product whose contracted axis are the rows, so the micro kernels of `kernel.py` compute it: what they take for
rows are columns of x, what they take for a matrix is g. Some hundred rows at a time, x is transposed into scratch
memory, squares of rows in registers, in blocks of up to `Vectors.rows` columns, `[rows / chunk][columns][chunk]`, and
of g one panel after another is copied, `[rows][panel]`; later rows are added to what the earlier ones gave. Rows from
`count` on are not read.
"""

from __future__ import annotations

from autobatch.backends.llvm.text import LlvmFunction, lanes_below
from autobatch.backends.xla.products.kernel import CHUNK, ProductKernel, masked_load, source_row, transposed


def text(kernel: ProductKernel) -> str:
    """The module but for the handler; `outer` is its entry."""
    return "\n".join([kernel.declarations(), *(str(make(kernel)) for make in (transpose, panel, outer))])


def transpose(kernel: ProductKernel) -> LlvmFunction:
    """Copy columns of `rows` rows of one source into blocks of scratch memory, from column `offset` of `all` on.

    `index`: which rows of `x`, or null where they are `first` and those behind it. `k`: columns of the source. `room`:
    rows that a block has room for."""
    f = LlvmFunction(
        "internal void @transpose(ptr %x, ptr %index, i64 %first, i64 %rows, i64 %k, i64 %offset, i64 %all, "
        "i64 %room, ptr %scratch) noinline nounwind"
    )
    most, lanes = kernel.vectors.rows, kernel.lanes
    sources = f.array_slot("ptr", lanes)
    with f.loop(0, "%rows", lanes) as top:
        last = f.sub(f.sub("%rows", top), 1)
        with f.loop(0, lanes, 1) as j:  # the last row in the place of those past it: nobody reads what comes of them
            source = source_row(f, kernel, f.add(top, f.least(j, last)))
            f.do(f"store ptr {source}, ptr {f.at(sources, f.mul(j, 8))}, align 8")
        chunk, lane = f.let(f"udiv i64 {top}, {kernel.chunk}"), f.let(f"urem i64 {top}, {kernel.chunk}")
        column = f.slot(0)
        with f.whilst(lambda: f.below(f.get(column), "%k")):
            done = f.get(column)
            at = f.add(done, "%offset")
            inside = f.let(f"urem i64 {at}, {most}")
            start = f.sub(at, inside)
            wide = f.least(f.sub("%all", start), most)  # columns of this block
            run = f.least(f.least(f.sub(wide, inside), f.sub("%k", done)), lanes)
            block = f.at("%scratch", f.mul(f.mul(start, "%room"), kernel.bytes))
            to = f.at(block, f.mul(f.add(f.mul(chunk, wide), inside), CHUNK))
            corner = f.at(to, f.mul(lane, kernel.bytes))
            _square(f, kernel, sources, f.mul(done, kernel.bytes), run, corner)
            f.set(column, f.add(done, run))
    f.do("ret void")
    return f


def _square(f: LlvmFunction, kernel: ProductKernel, sources: str, bytes: str, columns: str, to: str) -> None:
    """So many columns, at most as many as a vector has elements, of as many rows, `bytes` behind their addresses: each
    is a vector in a chunk of its own."""
    mask = lanes_below(f, kernel.lanes, columns)
    rows = [masked_load(f, kernel, f.at(f.load("ptr", sources, 8 * j), bytes), mask) for j in range(kernel.lanes)]
    for j, value in enumerate(transposed(f, kernel, rows)):
        with f.when(f.let(f"icmp ugt i64 {columns}, {j}")):
            f.do(f"store {kernel.vector} {value}, ptr {f.at(to, j * CHUNK)}, align {kernel.bytes}")


def panel(kernel: ProductKernel) -> LlvmFunction:
    """Copy a panel of `rows` rows that are `stride` bytes apart; `columns` are left from `g` on. What is past the last
    one is zero."""
    f = LlvmFunction("internal void @panel(ptr %g, i64 %stride, i64 %rows, i64 %columns, ptr %to) noinline nounwind")
    rest = f.sub(f.let(f"call i64 @llvm.umax.i64(i64 %columns, i64 {kernel.lanes})"), kernel.lanes)
    masks = [lanes_below(f, kernel.lanes, count) for count in ("%columns", rest)]
    with f.loop(0, "%rows", 1) as row:
        origin, target = f.at("%g", f.mul(row, "%stride")), f.at("%to", f.mul(row, kernel.panel * kernel.bytes))
        for c, mask in enumerate(masks):
            lane = c * kernel.lanes * kernel.bytes
            value = masked_load(f, kernel, f.at(origin, lane), mask)
            f.do(f"store {kernel.vector} {value}, ptr {f.at(target, lane)}, align {kernel.bytes}")
    f.do("ret void")
    return f


def outer(kernel: ProductKernel) -> LlvmFunction:
    """All rows, as many as there is room for at a time; zeros where there are none.

    `sources`: for each source two buffers, as `handler.py` has them. `k`: columns of all sources together. `left`:
    scratch memory for x, `right` for a panel, both for `room` rows, which is a multiple of a chunk."""
    f = LlvmFunction(
        "internal void @outer(ptr %sources, i64 %count, ptr %g, ptr %out, ptr %left, ptr %right, "
        "i64 %rows, i64 %n, i64 %k, i64 %room) noinline nounwind"
    )
    stride, most = f.mul("%n", kernel.bytes), kernel.vectors.rows
    with f.when(f.let("icmp eq i64 %rows, 0")), f.loop(0, f.mul("%k", "%n"), 1) as element:
        to = f.at("%out", f.mul(element, kernel.bytes))
        # volatile: LLVM would make a call of memset of the loop, and there is nobody to call
        f.do(f"store volatile {kernel.scalar} 0.0, ptr {to}, align {kernel.bytes}")
    with f.loop(0, "%rows", "%room") as top:
        rows = f.least(f.sub("%rows", top), "%room")
        f.do(f"call void @transposed(ptr %sources, i64 %count, i64 {top}, i64 {rows}, i64 %k, i64 %room, ptr %left)")
        with f.loop(0, "%n", kernel.panel) as column:
            columns = f.sub("%n", column)
            corner = f.at("%g", f.add(f.mul(top, stride), f.mul(column, kernel.bytes)))
            f.do(f"call void @panel(ptr {corner}, i64 {stride}, i64 {rows}, i64 {columns}, ptr %right)")
            with f.loop(0, "%k", most) as first:
                here = f.least(f.sub("%k", first), most)
                x = f.at("%left", f.mul(f.mul(first, "%room"), kernel.bytes))
                to = f.at("%out", f.add(f.mul(first, stride), f.mul(column, kernel.bytes)))
                operands = f"ptr {x}, ptr %right, i64 {rows}, ptr {to}, i64 {stride}, i64 {columns}, i64 {top}"
                kernel.micro(f, here, columns, operands)
    f.do("ret void")
    return f
