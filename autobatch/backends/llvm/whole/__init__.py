"""A whole function for one example as one function of machine code over a batch, which Python calls.

`region.py` says what the function computes and what does not fit, `code.py` writes it, `program.py` runs it over the
rows of a batch, by several threads where there are many.
"""
