"""Python objects, read by machine code."""
