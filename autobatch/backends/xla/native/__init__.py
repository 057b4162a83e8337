"""Level loops as machine code of our own: one call runs all levels of a recurrence.

`level_tasks.py` says whether the kernel will run a schedule, before there are arrays; `before.py` what fills the
buffers of a loop before its levels. `level_tasks.py` has what a recurrence reads and where; `level_tasks.py` what a
task computes number by number, as expressions and loops over the numbers of a row; `numbers.py` functions of vectors;
`code.py` the whole as LLVM IR. `operation.py` is the call in a JAX program: the kernel on a CPU, the loops that XLA
compiles elsewhere.
"""
