"""Programs of rows as machine code: lanes of a gang under a mask, or one row after another.

`writer.py` writes instructions on numbers, `tensors.py` says what an array of them is, `ops.py`, `operators.py` and
`ops.py` are what leaf operations do, `ops.py` what those do that are written with others. `control.py` runs
branches and loops, `blocks.py` programs of blocks, `reverse.py` derivatives; `program.py` puts rows in and takes
results out.
"""
