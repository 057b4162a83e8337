"""Sums of rows by owner, as LLVM IR: what rows have read a row, added up where many may have read one.

    out[r, :] = sum over e with owner[e] = r of x[source[e], :]        x: [any number of rows, n], out: [rows, n]

Entries whose owner is no row of `out` count for nothing, and nothing is read for them. The others are added in their
order, so that the sum is the same each time. (XLA's scatter goes number by number, and copies the rows before.)
"""

from __future__ import annotations

from autobatch.backends.llvm.text import LlvmFunction, lanes_below
from autobatch.backends.xla.products.kernel import ProductKernel, masked_load


def text(kernel: ProductKernel) -> str:
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
