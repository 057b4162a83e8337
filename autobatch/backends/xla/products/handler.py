"""The functions that XLA calls: kernels on the arguments and results of a call. They allocate nothing and call nothing.

    product     arguments   x0: [any, k0], index0: int32[m], x1: [any, k1], index1: int32[m], ...,
                            packed matrix: [panels, k, panel], and perhaps count: int32[]
                results     out: [m, n], scratch: [tile, room]
    outer       arguments   x0, index0, x1, index1, ..., g: [m, n], count: int32[]
                results     out: [k, n], left: [k rounded up to blocks, room], right: [room, panel]
    pack        arguments   turned: int32[t], matrices (`packing.py`), which are transposed if t is not zero
                results     packed matrix: [panels, k, panel]
    sum         arguments   x: [any, n], source: int32[entries], owner: int32[entries]
                results     out: [rows, n]
    empty       arguments   none
                results     out, which stays as it is

An index of no elements stands for rows 0 to m - 1.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from autobatch.backends.llvm.ffi import buffer, data, dimension, handler
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.xla.products import outer, packing, sums
from autobatch.backends.xla.products.kernel import ProductKernel


def module(kernel: ProductKernel) -> str:
    """Everything: the kernel and its handler."""
    if kernel.operation == "outer":
        declared = [f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("umax", "smax")]
        return "\n".join([*declared, outer.text(kernel), str(sources("transposed")), str(handler(run_outer))])
    if kernel.operation == "pack":
        return "\n".join([packing.text(kernel), str(handler(run_pack))])
    if kernel.operation == "sum":
        return "\n".join([sums.text(kernel), str(handler(run_sum))])
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
