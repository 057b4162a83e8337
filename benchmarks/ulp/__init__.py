"""How far the functions of machine code are off, in units in the last place, and how long they take beside NumPy's."""
