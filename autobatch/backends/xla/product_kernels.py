"""The product of gathered rows and a packed matrix, as LLVM IR.

    out[r, :] = x[index[r], :] @ w        x: [any number of rows, k], possibly several side by side; w: [k, n]

The matrix is packed in panels of two vectors of columns, `[n / panel][k][panel]`, the last one filled up with zeros. A
tile of rows is gathered into scratch memory, in blocks of up to `Vectors.rows` rows, `[k / chunk][rows][chunk]` with
chunks of 64 bytes: whole cache lines are copied, and all elements that one step of the product reads are at constant
distances from one address. Then, for each panel and each block, the micro kernel keeps rows x 2 vectors of sums in
registers: a step loads two vectors of the panel, and multiplies them by one element of each row. (The scheme is that
of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, without packing per call.)

There is a micro kernel for each number of rows and one or two vectors. The last columns are stored under a mask;
columns past the end are computed from zeros of the packed matrix, and stored nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import (
    HANDLER,
    Code,
    UnavailableError,
    buffer,
    data,
    dimension,
    handler,
    host,
    is_known,
    lock,
    make_known,
    target_name,
)
from autobatch.backends.llvm.text import LlvmFunction, broadcast, lanes_below

CHUNK = 64
"""Bytes of a row that are together in scratch memory: a cache line."""


Operation = Literal["product", "outer", "pack", "sum", "empty"]
"""The product of rows and a matrix (this module), the sum of outer products of rows, matrices in
panels, sums of rows by owner, memory that nothing is written to."""


@dataclass(frozen=True)
class VectorRegisters:
    """The vector registers of a machine: their bits, and how many rows' sums fit beside what else is in use."""

    bits: int
    rows: int


AVX512 = VectorRegisters(512, 14)  # 28 sums, 2 vectors of the panel, an element: 31 of 32 registers
AVX2 = VectorRegisters(256, 6)  # 12 sums, 2 vectors of the panel, an element: 15 of 16 registers


@dataclass(frozen=True)
class ProductKernel:
    """The kernel for one type of numbers, 4 or 8 bytes, on one kind of machine."""

    dtype: str
    vectors: VectorRegisters
    operation: Operation = "product"

    @property
    def bytes(self) -> int:
        return {"float32": 4, "float64": 8}[self.dtype]

    @property
    def lanes(self) -> int:
        return self.vectors.bits // 8 // self.bytes

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return 2 * self.lanes

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK // self.bytes

    @property
    def scalar(self) -> str:
        return {4: "float", 8: "double"}[self.bytes]

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.scalar}>"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"

    @property
    def suffix(self) -> str:
        """The name of the vector type in the names of LLVM's intrinsics."""
        return f"v{self.lanes}f{8 * self.bytes}"

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Rows and vectors of each micro kernel."""
        return [(rows, vectors) for rows in range(1, self.vectors.rows + 1) for vectors in (1, 2)]

    def intrinsics(self) -> str:
        v, s = self.vector, self.suffix
        declared = [
            "declare i64 @llvm.umin.i64(i64, i64)",
            f"declare {v} @llvm.fma.{s}({v}, {v}, {v})",
            f"declare {v} @llvm.masked.load.{s}.p0(ptr, i32, {self.mask}, {v})",
            f"declare void @llvm.masked.store.{s}.p0({v}, ptr, i32, {self.mask})",
        ]
        return "\n".join(declared)

    def declarations(self) -> str:
        """Intrinsics, and the micro kernels."""
        micro = (str(micro_kernel(self, rows, vectors)) for rows, vectors in self.sizes)
        return "\n".join([self.intrinsics(), "", *micro])

    def text(self) -> str:
        """The module but for the handler; `product` is its entry."""
        return "\n".join([self.declarations(), str(gather(self)), str(panels(self)), str(multiply(self))])

    def micro(self, f: LlvmFunction, rows: str, columns: str, operands: str) -> None:
        """Call the micro kernel for so many rows, and for so many columns of a panel, or more."""
        wide = f.let(f"icmp ule i64 {columns}, {self.lanes}")
        key = f.add(f.mul(rows, 2), f.let(f"select i1 {wide}, i64 1, i64 2"))
        f.choose(key, [(2 * r + v, f"call void @micro_{r}_{v}({operands})") for r, v in self.sizes])


def micro_kernel(kernel: ProductKernel, rows: int, vectors: int) -> LlvmFunction:
    """`rows` x `vectors` sums over all of k, in registers.

    `x`: a block of scratch memory. `w`: a panel. `out`: the first element, rows `stride` bytes apart; `columns` of them
    are left to the right. `more`: the sums are added to what is there, where it is not zero."""
    grid = [(r, c) for r in range(rows) for c in range(vectors)]
    v = kernel.vector
    f = LlvmFunction(
        f"internal void @micro_{rows}_{vectors}"
        "(ptr %x, ptr %w, i64 %k, ptr %out, i64 %stride, i64 %columns, i64 %more) noinline nounwind"
    )
    f.block("chunk")
    f.do("%x.chunk = phi ptr [%x, %entry], [%x.after, %next]")
    f.do("%w.chunk = phi ptr [%w, %entry], [%w.next, %next]")
    f.do("%left = phi i64 [%k, %entry], [%left.after, %next]")
    for r, c in grid:
        f.do(f"%start.{r}.{c} = phi {v} [zeroinitializer, %entry], [%sum.{r}.{c}, %next]")
    f.do(f"%count = call i64 @llvm.umin.i64(i64 %left, i64 {kernel.chunk})")
    f.do(f"%bytes = mul i64 %count, {kernel.bytes}")
    f.do("%x.end = getelementptr i8, ptr %x.chunk, i64 %bytes")
    f.block("step")
    f.do("%x.step = phi ptr [%x.chunk, %chunk], [%x.next, %step]")
    f.do("%w.step = phi ptr [%w.chunk, %chunk], [%w.next, %step]")
    for r, c in grid:
        f.do(f"%held.{r}.{c} = phi {v} [%start.{r}.{c}, %chunk], [%sum.{r}.{c}, %step]")
    panel = [f.load(v, "%w.step", c * kernel.lanes * kernel.bytes, kernel.bytes) for c in range(vectors)]
    for r in range(rows):
        element = broadcast(f, kernel.lanes, kernel.scalar, f.load(kernel.scalar, "%x.step", r * CHUNK, kernel.bytes))
        for c in range(vectors):
            operands = f"{v} {element}, {v} {panel[c]}, {v} %held.{r}.{c}"
            f.do(f"%sum.{r}.{c} = call {v} @llvm.fma.{kernel.suffix}({operands})")
    f.do(f"%x.next = getelementptr i8, ptr %x.step, i64 {kernel.bytes}")
    f.do(f"%w.next = getelementptr i8, ptr %w.step, i64 {kernel.panel * kernel.bytes}")
    f.branch(f.let("icmp ult ptr %x.next, %x.end"), "step", "next")
    f.block("next", falls=False)
    f.do(f"%x.after = getelementptr i8, ptr %x.chunk, i64 {rows * CHUNK}")
    f.do("%left.after = sub i64 %left, %count")
    f.branch(f.let("icmp ne i64 %left.after, 0"), "chunk", "done")
    f.block("done", falls=False)
    adds = f.let("icmp ne i64 %more, 0")
    for c in range(vectors):
        lane = c * kernel.lanes
        mask = lanes_below(f, kernel.lanes, f.let(f"sub i64 %columns, {lane}"))
        held = f.let(f"select i1 {adds}, {kernel.mask} {mask}, {kernel.mask} zeroinitializer")
        for r in range(rows):
            to = f.at(f.at("%out", f.mul("%stride", r)), lane * kernel.bytes)
            total = f.let(f"fadd {v} %sum.{r}.{c}, {masked_load(f, kernel, to, held)}")
            operands = f"{v} {total}, ptr {to}, i32 {kernel.bytes}, {kernel.mask} {mask}"
            f.do(f"call void @llvm.masked.store.{kernel.suffix}.p0({operands})")
    f.do("ret void")
    return f


def masked_load(f: LlvmFunction, kernel: ProductKernel, address: str, mask: str) -> str:
    """A vector from memory, zeros where the mask is not set: there nothing is read."""
    operands = f"ptr {address}, i32 {kernel.bytes}, {kernel.mask} {mask}, {kernel.vector} zeroinitializer"
    return f.let(f"call {kernel.vector} @llvm.masked.load.{kernel.suffix}.p0({operands})")


def transposed(f: LlvmFunction, kernel: ProductKernel, rows: list[str]) -> list[str]:
    """As many vectors as each has elements, transposed in registers: element j of all is one vector, after as many
    rounds as it takes to have interleaved the first half with the second until each is next to all others."""
    lanes = kernel.lanes
    for _ in range(lanes.bit_length() - 1):
        pairs = zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True)
        rows = [_interleaved(f, kernel, a, b, half) for a, b in pairs for half in range(2)]
    return rows


def _interleaved(f: LlvmFunction, kernel: ProductKernel, a: str, b: str, half: int) -> str:
    """a0, b0, a1, b1, ... of the first or the second half of two vectors."""
    lanes, start = kernel.lanes, half * kernel.lanes // 2
    numbers = ", ".join(f"i32 {at}" for n in range(start, start + lanes // 2) for at in (n, n + lanes))
    return f.let(f"shufflevector {kernel.vector} {a}, {kernel.vector} {b}, <{lanes} x i32> <{numbers}>")


def gather(kernel: ProductKernel) -> LlvmFunction:
    """Copy `rows` rows of one source into a block of scratch memory, its columns from column `offset` on.

    `index`: which rows of `x`, or null where they are `first` and those behind it. `k`: columns of the source."""
    f = LlvmFunction(
        "void @gather(ptr %x, ptr %index, i64 %first, i64 %rows, i64 %k, i64 %offset, ptr %block) noinline nounwind"
    )
    distance = f.mul("%rows", CHUNK)
    with f.loop(0, "%rows", 1) as row:
        source = source_row(f, kernel, row)
        first_chunk = f.at("%block", f.mul(row, CHUNK))
        copy_row(f, kernel, source, first_chunk, distance)
    f.do("ret void")
    return f


def source_row(f: LlvmFunction, kernel: ProductKernel, row: str) -> str:
    """The address of the row of `%x`, of `%k` columns, that `%index` names at `row`; of `%first` + `row` where there is
    no index."""
    number = f.slot(f.add("%first", row))
    with f.when(f.let("icmp ne ptr %index, null")):
        entry = f.at("%index", f.mul(row, 4))
        f.set(number, f.let(f"sext i32 {f.load('i32', entry, align=4)} to i64"))
    return f.at("%x", f.mul(f.mul(f.get(number), "%k"), kernel.bytes))


def copy_row(f: LlvmFunction, kernel: ProductKernel, source: str, first_chunk: str, distance: str) -> None:
    """Element by element up to the first boundary of chunks, then whole chunks, then the rest."""
    column = f.slot(0)

    def place() -> tuple[str, str]:
        """Where the present column comes from and goes to."""
        at = f.get(column)
        to = f.add(at, "%offset")
        chunk, inside = f.let(f"udiv i64 {to}, {kernel.chunk}"), f.let(f"urem i64 {to}, {kernel.chunk}")
        chunk_start = f.at(first_chunk, f.mul(chunk, distance))
        return f.at(source, f.mul(at, kernel.bytes)), f.at(chunk_start, f.mul(inside, kernel.bytes))

    def copy(type: str, elements: int) -> None:
        origin, target = place()
        f.do(f"store {type} {f.load(type, origin, align=kernel.bytes)}, ptr {target}, align {kernel.bytes}")
        f.set(column, f.add(f.get(column), elements))

    def before_boundary() -> str:
        inside = f.let(f"urem i64 {f.add(f.get(column), '%offset')}, {kernel.chunk}")
        return f.let(f"and i1 {f.below(f.get(column), '%k')}, {f.let(f'icmp ne i64 {inside}, 0')}")

    with f.whilst(before_boundary):
        copy(kernel.scalar, 1)
    with f.whilst(lambda: f.let(f"icmp ule i64 {f.add(f.get(column), kernel.chunk)}, %k")):
        copy(f"<{kernel.chunk} x {kernel.scalar}>", kernel.chunk)
    with f.whilst(lambda: f.below(f.get(column), "%k")):
        copy(kernel.scalar, 1)


def panels(kernel: ProductKernel) -> LlvmFunction:
    """All panels of the matrix, and for each the blocks of a tile of rows.

    `scratch`: the blocks, of `block` rows each but for the last. `k`: columns of the rows; `room`: the same rounded
    up to chunks. `out`: the first row of the result, rows `stride` bytes apart."""
    f = LlvmFunction(
        "void @panels(ptr %scratch, i64 %rows, i64 %block, i64 %room, ptr %w, i64 %k, i64 %n, ptr %out, i64 %stride) "
        "noinline nounwind"
    )
    row_bytes = f.mul("%room", kernel.bytes)
    with f.loop(0, "%n", kernel.panel) as column:
        left = f.sub("%n", column)
        panel = f.at("%w", f.mul(f.mul(column, "%k"), kernel.bytes))
        with f.loop(0, "%rows", "%block") as first:
            here = f.least(f.sub("%rows", first), "%block")
            x = f.at("%scratch", f.mul(first, row_bytes))
            corner = f.at("%out", f.add(f.mul(first, "%stride"), f.mul(column, kernel.bytes)))
            kernel.micro(f, here, left, f"ptr {x}, ptr {panel}, i64 %k, ptr {corner}, i64 %stride, i64 {left}, i64 0")
    f.do("ret void")
    return f


def multiply(kernel: ProductKernel) -> LlvmFunction:
    """All tiles of rows: gather the rows of one, then all panels of the matrix.

    `sources`: for each source two buffers, as `product_kernels.py` has them. `k`: columns of all sources together.
    `room`: columns of scratch memory, k rounded up to chunks. `tile`: rows that scratch memory holds."""
    f = LlvmFunction(
        "internal void @product(ptr %sources, i64 %count, ptr %w, ptr %out, ptr %scratch, "
        "i64 %m, i64 %n, i64 %k, i64 %room, i64 %tile) noinline nounwind"
    )
    stride, row_bytes = f.mul("%n", kernel.bytes), f.mul("%room", kernel.bytes)
    with f.loop(0, "%m", "%tile") as top:
        rows = f.least(f.sub("%m", top), "%tile")
        block = f.ceiling(rows, f.ceiling(rows, kernel.vectors.rows))
        with f.loop(0, rows, block) as first:
            here = f.least(f.sub(rows, first), block)
            place, start = f.at("%scratch", f.mul(first, row_bytes)), f.add(top, first)
            f.do(f"call void @sources(ptr %sources, i64 %count, i64 {start}, i64 {here}, ptr {place})")
        out = f.at("%out", f.mul(top, stride))
        f.do(
            f"call void @panels(ptr %scratch, i64 {rows}, i64 {block}, i64 %room, ptr %w, i64 %k, i64 %n, ptr {out}, "
            f"i64 {stride})"
        )
    f.do("ret void")
    return f


# ---- outer
#
# The sum of outer products of gathered rows, as LLVM IR: the cotangent of a matrix from all rows that it multiplied.
#
#     out[k, :] = sum over r < count of x[index[r], k] * g[r, :]        x: [any number of rows, k], g: [rows, n]
#
# It is a product whose contracted axis are the rows, so the micro kernels of `product_kernels.py` compute it: what they
# take for rows are columns of x, what they take for a matrix is g. Some hundred rows at a time, x is transposed into
# scratch memory, squares of rows in registers, in blocks of up to `Vectors.rows` columns, `[rows /
# chunk][columns][chunk]`, and of g one panel after another is copied, `[rows][panel]`; later rows are added to what the
# earlier ones gave. Rows from `count` on are not read.


def outer_text(kernel: ProductKernel) -> str:
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
        with f.loop(0, lanes, 1) as j:  # the last row in the place of those past it: nobody reads their results
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

    `sources`: for each source two buffers, as `product_kernels.py` has them. `k`: columns of all sources together.
    `left`: scratch memory for x, `right` for a panel, both for `room` rows, which is a multiple of a chunk."""
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


# ---- packing
#
# Packing matrices, as LLVM IR: several of them in the panels that `product_kernels.py` reads, as if they were one.
#
#     straight    w0: [k0, n], w1: [k1, n], ...    ->    [n / panel][k0 + k1 + ...][panel]       w0 above w1
#     turned      w0: [n0, k], w1: [n1, k], ...    ->    [(n0 + n1 + ...) / panel][k][panel]     the same, transposed
#
# A program packs a matrix in every call, because it may be another one each time. XLA would put the matrices together,
# fill them up to whole panels and transpose the blocks, element by element; here each row is read once, by vectors, and
# written where it belongs, squares of rows transposed in registers. The last panel is filled up with zeros.


ROWS = 16
"""Rows that are copied to one panel before the next panel is written: as many pages as the processor keeps at hand."""


def packing_text(kernel: ProductKernel) -> str:
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
                _packed_square(f, kernel, done, column, top)
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


def _packed_square(f: LlvmFunction, kernel: ProductKernel, row: str, column: str, top: str) -> None:
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


# ---- sums
#
# Sums of rows by owner, as LLVM IR: what rows have read a row, added up where many may have read one.
#
#     out[r, :] = sum over e with owner[e] = r of x[source[e], :]        x: [any number of rows, n], out: [rows, n]
#
# Entries whose owner is no row of `out` count for nothing, and nothing is read for them. The others are added in their
# order, so that the sum is the same each time. (XLA's scatter goes number by number, and copies the rows before.)


def sums_text(kernel: ProductKernel) -> str:
    """The module but for the handler; `sum_rows` is its entry."""
    return "\n".join([kernel.intrinsics(), str(add_row(kernel)), str(sum_rows(kernel))])


def add_row(kernel: ProductKernel) -> LlvmFunction:
    """Add `n` numbers at `from` to those at `to`."""
    f = LlvmFunction("internal void @add_row(ptr %from, ptr %to, i64 %n) alwaysinline nounwind")
    with f.loop(0, "%n", kernel.lanes) as column:
        mask = lanes_below(f, kernel.lanes, f.sub("%n", column))
        at = f.mul(column, kernel.bytes)
        origin, target = f.at("%from", at), f.at("%to", at)
        total = f.let(
            f"fadd {kernel.vector} {masked_load(f, kernel, target, mask)}, {masked_load(f, kernel, origin, mask)}"
        )
        f.do(
            f"call void @llvm.masked.store.{kernel.suffix}.p0"
            f"({kernel.vector} {total}, ptr {target}, i32 {kernel.bytes}, {kernel.mask} {mask})"
        )
    f.do("ret void")
    return f


def sum_rows(kernel: ProductKernel) -> LlvmFunction:
    """Zeros first, then one entry after another."""
    f = LlvmFunction(
        "internal void @sum_rows(ptr %x, ptr %source, ptr %owner, ptr %out, i64 %entries, i64 %rows, i64 %n) "
        "noinline nounwind"
    )
    size = f.mul("%rows", "%n")
    with f.loop(0, size, kernel.lanes) as first:
        to = f.at("%out", f.mul(first, kernel.bytes))
        mask = lanes_below(f, kernel.lanes, f.sub(size, first))
        f.do(
            f"call void @llvm.masked.store.{kernel.suffix}.p0"
            f"({kernel.vector} zeroinitializer, ptr {to}, i32 {kernel.bytes}, {kernel.mask} {mask})"
        )
    with f.loop(0, "%entries", 1) as entry:
        place = f.mul(entry, 4)
        owner = f.let(f"sext i32 {f.load('i32', f.at('%owner', place), align=4)} to i64")
        with f.when(f.below(owner, "%rows")):
            source = f.let(f"sext i32 {f.load('i32', f.at('%source', place), align=4)} to i64")
            origin = f.at("%x", f.mul(f.mul(source, "%n"), kernel.bytes))
            to = f.at("%out", f.mul(f.mul(owner, "%n"), kernel.bytes))
            f.do(f"call void @add_row(ptr {origin}, ptr {to}, i64 %n)")
    f.do("ret void")
    return f


# ---- handler
#
# The functions that XLA calls: kernels on the arguments and results of a call. They allocate nothing and call nothing.
#
#     product     arguments   x0: [any, k0], index0: int32[m], x1: [any, k1], index1: int32[m], ...,
#                             packed matrix: [panels, k, panel], and perhaps count: int32[]
#                 results     out: [m, n], scratch: [tile, room]
#     outer       arguments   x0, index0, x1, index1, ..., g: [m, n], count: int32[]
#                 results     out: [k, n], left: [k rounded up to blocks, room], right: [room, panel]
#     pack        arguments   turned: int32[t], matrices, which are transposed if t is not zero
#                 results     packed matrix: [panels, k, panel]
#     sum         arguments   x: [any, n], source: int32[entries], owner: int32[entries]
#                 results     out: [rows, n]
#     empty       arguments   none
#                 results     out, which stays as it is
#
# An index of no elements stands for rows 0 to m - 1.


def module(kernel: ProductKernel) -> str:
    """Everything: the kernel and its handler."""
    if kernel.operation == "outer":
        declared = [f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("umax", "smax")]
        return "\n".join([*declared, outer_text(kernel), str(sources("transposed")), str(handler(run_outer))])
    if kernel.operation == "pack":
        return "\n".join([packing_text(kernel), str(handler(run_pack))])
    if kernel.operation == "sum":
        return "\n".join([sums_text(kernel), str(handler(run_sum))])
    if kernel.operation == "empty":
        return str(handler(lambda f, arguments, number, results: None))
    declared = ["declare i64 @llvm.smax.i64(i64, i64)"]
    parts = [*declared, kernel.text(), str(zeros(kernel)), str(sources("sources")), str(handler(run_product))]
    return "\n".join(parts)


def sources(name: Literal["sources", "transposed"]) -> LlvmFunction:
    """Gather rows first:first+rows of all sources, side by side, into a block of scratch memory; or transpose them."""
    more = "i64 %all, i64 %room, " if name == "transposed" else ""
    f = LlvmFunction(
        f"internal void @{name}(ptr %buffers, i64 %count, i64 %first, i64 %rows, {more}ptr %block) noinline nounwind"
    )
    offset = f.slot(0)
    with f.loop(0, "%count", 1) as number:
        x = buffer(f, "%buffers", f.mul(number, 2))
        index = buffer(f, "%buffers", f.add(f.mul(number, 2), 1))
        entries = f.at(data(f, index), f.mul("%first", 4))
        none = f.let(f"icmp eq i64 {dimension(f, index, 0)}, 0")
        chosen = f.let(f"select i1 {none}, ptr null, ptr {entries}")
        k, at = dimension(f, x, 1), f.get(offset)
        operands = f"ptr {data(f, x)}, ptr {chosen}, i64 %first, i64 %rows, i64 {k}, i64 {at}, {more}ptr %block"
        f.do(f"call void @{'gather' if name == 'sources' else 'transpose'}({operands})")
        f.set(offset, f.add(at, k))
    f.do("ret void")
    return f


def zeros(kernel: ProductKernel) -> LlvmFunction:
    """Zeros in the elements first:end."""
    f = LlvmFunction("internal void @zeros(ptr %out, i64 %first, i64 %end) noinline nounwind")
    done = f.slot("%first")
    # volatile: LLVM would make a call of memset of the loop, and there is nobody to call

    def room(elements: int) -> str:
        return f.let(f"icmp ule i64 {f.add(f.get(done), elements)}, %end")

    for elements, type in ((kernel.lanes, kernel.vector), (1, kernel.scalar)):
        with f.whilst(partial(room, elements)):
            to = f.at("%out", f.mul(f.get(done), kernel.bytes))
            f.do(
                f"store volatile {type} {'zeroinitializer' if elements > 1 else '0.0'}, ptr {to}, align {kernel.bytes}"
            )
            f.set(done, f.add(f.get(done), elements))
    f.do("ret void")
    return f


def run_product(f: LlvmFunction, arguments: str, number: str, results: str) -> None:
    """Pairs and the matrix are an odd number of arguments; where there is one more, it is the count of rows."""
    pairs = f.let(f"udiv i64 {f.sub(number, 1)}, 2")
    at = f.mul(pairs, 2)
    packed, out, scratch = buffer(f, arguments, at), buffer(f, results, 0), buffer(f, results, 1)
    all_rows = dimension(f, out, 0)
    rows = f.slot(all_rows)
    with f.when(f.let(f"icmp ugt i64 {f.sub(number, at)}, 1")):
        count = data(f, buffer(f, arguments, f.add(at, 1)))
        live = f.let(f"sext i32 {f.load('i32', count, align=4)} to i64")
        f.set(rows, f.least(f.let(f"call i64 @llvm.smax.i64(i64 {live}, i64 0)"), all_rows))
    m, n = f.get(rows), dimension(f, out, 1)
    sizes = [m, n, dimension(f, packed, 1), dimension(f, scratch, 1), dimension(f, scratch, 0)]
    pointers = ", ".join(f"ptr {data(f, b)}" for b in (packed, out, scratch))
    numbers = ", ".join(f"i64 {size}" for size in sizes)
    f.do(f"call void @product(ptr {arguments}, i64 {pairs}, {pointers}, {numbers})")
    f.do(f"call void @zeros(ptr {data(f, out)}, i64 {f.mul(m, n)}, i64 {f.mul(all_rows, n)})")


def run_outer(f: LlvmFunction, arguments: str, number: str, results: str) -> None:
    pairs = f.let(f"udiv i64 {f.sub(number, 2)}, 2")
    g, live = buffer(f, arguments, f.sub(number, 2)), buffer(f, arguments, f.sub(number, 1))
    out, left, right = (buffer(f, results, k) for k in range(3))
    rows = f.let(f"sext i32 {f.load('i32', data(f, live), align=4)} to i64")
    rows = f.let(f"call i64 @llvm.smax.i64(i64 {rows}, i64 0)")
    sizes = [f.least(rows, dimension(f, g, 0)), dimension(f, out, 1), dimension(f, out, 0), dimension(f, right, 0)]
    pointers = ", ".join(f"ptr {data(f, b)}" for b in (g, out, left, right))
    numbers = ", ".join(f"i64 {size}" for size in sizes)
    f.do(f"call void @outer(ptr {arguments}, i64 {pairs}, {pointers}, {numbers})")


def run_pack(f: LlvmFunction, arguments: str, number: str, results: str) -> None:
    turned, out = buffer(f, arguments, 0), buffer(f, results, 0)
    transposed = f.let(f"icmp ne i64 {dimension(f, turned, 0)}, 0")
    as_it_is = f.let(f"xor i1 {transposed}, true")
    to, panels, k = f"ptr {data(f, out)}", dimension(f, out, 0), dimension(f, out, 1)
    before = f.slot(0)
    with f.loop(1, number, 1) as each:
        w = buffer(f, arguments, each)
        rows, done = dimension(f, w, 0), f.get(before)
        with f.when(as_it_is):
            columns = dimension(f, w, 1)
            f.do(f"call void @straight(ptr {data(f, w)}, i64 {rows}, i64 {columns}, {to}, i64 {done}, i64 {k})")
        with f.when(transposed):
            f.do(f"call void @turned(ptr {data(f, w)}, i64 {rows}, {to}, i64 {done}, i64 {k})")
        f.set(before, f.add(done, rows))
    with f.when(transposed):
        f.do(f"call void @fill({to}, i64 {f.get(before)}, i64 {panels}, i64 {k})")


def run_sum(f: LlvmFunction, arguments: str, number: str, results: str) -> None:
    x, source, owner = (buffer(f, arguments, k) for k in range(3))
    out = buffer(f, results, 0)
    pointers = ", ".join(f"ptr {data(f, b)}" for b in (x, source, owner, out))
    sizes = [dimension(f, owner, 0), dimension(f, out, 0), dimension(f, out, 1)]
    f.do(f"call void @sum_rows({pointers}, {', '.join(f'i64 {size}' for size in sizes)})")


# ---- build
#
# The kernels of products as machine code for this machine, registered with XLA.


@dataclass(frozen=True)
class Registered:
    """A kernel that XLA can call, by the name of its target."""

    kernel: ProductKernel
    target: str


_code: dict[ProductKernel, Code] = {}
"""The last that was loaded of each kernel."""
LIBRARY = ("gather", "panels")
"""Functions of the kernel of products that other code calls."""


def vectors() -> VectorRegisters:
    """Those of this machine; UnavailableError where there is no kernel for it."""
    found = {512: AVX512, 256: AVX2}.get(host().bits)
    if found is None:
        raise UnavailableError(f"there is no kernel for {host().target.name}")
    return found


def registered(dtype: str, operation: Operation = "product") -> Registered:
    """The kernel for numbers of a type, compiled and made known to XLA; UnavailableError where that cannot be."""
    return _registered(ProductKernel(dtype, vectors(), operation))


@cache
def _registered(kernel: ProductKernel) -> Registered:
    return register(kernel)


def register(kernel: ProductKernel) -> Registered:
    """Make a kernel known to XLA. Once in a process: XLA keeps the first address that it gets for a name."""
    with lock:
        target, address = load(kernel)
        make_known(target, address)
        return Registered(kernel, target)


def registered_code(stem: str, text: str, dtype: str) -> str:
    """The target of a handler that calls functions of the kernel of products, compiled and made known to XLA;
    UnavailableError where that cannot be. `text`: its module."""
    product = registered(dtype).kernel
    with lock:
        name = target_name(f"{stem}_{product.dtype}x{product.lanes}", "\n".join([text, module(product)]))
        if not is_known(name):
            outside = {f: _code[product].functions[f] for f in LIBRARY}
            make_known(name, machine_code.load(name, text, (HANDLER,), outside).functions[HANDLER])
        return name


def load(kernel: ProductKernel) -> tuple[str, int]:
    """The name and the address of a handler, compiled now or before."""
    text = module(kernel)
    name = target_name(f"{kernel.operation}_{kernel.dtype}x{kernel.lanes}", text)
    functions = (HANDLER, *(LIBRARY if kernel.operation == "product" else ()))
    _code[kernel] = machine_code.load(name, text, functions)
    return name, _code[kernel].functions[HANDLER]
