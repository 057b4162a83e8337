"""Machine code through LLVM: text of functions, numbers in lanes, objects on disk, and their way into memory.

`text.py` writes functions, `formulas.py` what is computed number by number, `machine_code.py` compiles and keeps,
`machine_code.py` loads, `frames.py` is how XLA calls it. What computes rows is `lanes/`.
"""
