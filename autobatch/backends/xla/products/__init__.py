"""Matrix products of few rows by a kernel of our own, which the XLA program calls as a foreign function.

    z = concatenate(h[left], h[right]) @ U          rows that a level has just made, times a matrix that all rows share

XLA's CPU product packs the whole matrix anew for every window of a level loop, and reads rows that were first gathered
into a temporary. The kernel here reads a matrix that was packed once before the loop, and gathers the rows itself.

`kernel.py` writes the product as LLVM IR, `kernel.py` what XLA calls, `kernel.py` compiles them for this machine with
llvmlite and keeps the object, `rows.py` is the operation in JAX, `choice.py` says which products are worth it.
"""
