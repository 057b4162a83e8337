"""Machine code through LLVM: text of functions, numbers in lanes, objects on disk, and their way into memory.

`text.py` writes functions, `formulas.py` and `float32.py`, `float64.py` what is computed number by number;
`machine_code.py` compiles, keeps and loads them, and is how XLA calls them. What computes rows is `lanes/`.
A whole function for one example is one function of machine code over a batch, which Python calls: `region.py` says what
it computes and what does not fit, `code.py` writes it, `program.py` runs it. `reading.py` reads Python objects,
`binding.py` binds minibatches.
"""
