"""Programs of rows as machine code: lanes of a gang under a mask, or one row after another.

`writer.py` writes instructions on numbers, `tensors.py` says what an array of them is, `ops.py` is
the table of what leaf operations do. `analysis.py` finds before what memory is free again, and which indices are in
range. `control.py` runs branches and loops, `blocks.py` programs of blocks, `reverse.py` derivatives; `program.py` puts
rows in and takes results out.
"""
