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
from typing import Literal

from autobatch.backends.llvm.text import LlvmFunction, broadcast, lanes_below

CHUNK = 64
"""Bytes of a row that are together in scratch memory: a cache line."""


Operation = Literal["product", "outer", "pack", "sum", "empty"]
"""The product of rows and a matrix (this module), the sum of outer products of rows (`outer.py`), matrices in panels
(`packing.py`), sums of rows by owner (`sums.py`), memory that nothing is written to."""


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

    `sources`: for each source two buffers, as `handler.py` has them. `k`: columns of all sources together. `room`:
    columns of scratch memory, k rounded up to chunks. `tile`: rows that scratch memory holds."""
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
