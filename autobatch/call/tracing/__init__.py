"""Traced structure: Python that no compiler lowers, run once per example with symbols in the place of numbers.

calls        a call of a function whose structure is traced, as a call of the program over its traces
outline      the arguments of a call without their numbers; one run of the function
alike        examples that differ in their numbers alone, which have one trace
copying      an example again, with symbols where its floats are
free         closures and globals that a function reads
log          what a run did, as numbers: sites of operations, words of operands
symbols      what stands in the place of numbers: operators, methods and functions of JAX on it are noted
attributes, asked   what names of arrays are for symbols; questions for their values
filled       arrays of NumPy that a function fills
templates    what such an operation is for operands of some types: JAX says it once
intercepted  functions of JAX, as a function finds them while it is traced
record       one run where JAX has to record it
repeat       does a function do the same on the same example again?
structure    what all runs have shown, and the program over it
classes      operations of all examples that are the same one, from the same place in the source
printing     what a run prints, and the numbers in it
graphs       what a run returns, as a graph
returned     what results have in common, and as texts what they have not
compounds    classes that always come together become one
dispatch     which function finds the value that an operand is
source       the program over such records, as Python that the front end compiles
rows         the rows of a batch, as columns of the examples of that program
"""
