"""From the source of a function of one example, and the types of its arguments, to the per-example IR.

An abstract interpreter over the syntax tree that is a partial evaluator: what is static is computed, what is not
becomes instructions. The reading order:

    lower           the front end from outside: rounds until the results of recursive calls are known
    values, layouts what is known of a Python value; its leaves, which are what the IR has; where two values meet
    state           the module, function, block and variables at a point of the program
    sources, live_names     from a function to its syntax tree; where its variables are live
    statements, expressions, patterns, assignment, failures
    branches, joins `if` and what follows it
    loops, carrying, appending, scans, comprehensions
    calls, dispatch one IR function for each specialisation; what a call means by its callee
    tracing, rebuild    what JAX traces
    access, attributes, construct, fields, mutation     Python objects, fields of the examples, objects built inside
    graphs, sparse, views   networkx graphs and sparse matrices of the examples
    numbers, operators, indexing, tags, selection, sequences, reductions, stacking, builtin_functions, numpy_names
    needs           shared integers that have to be constants of the program
    refusals        what cannot be compiled, and what to write instead
"""

from autobatch.frontend.lowering.lower import LoweredModule, lower
from autobatch.frontend.lowering.state import FreeVariable

__all__ = ["FreeVariable", "LoweredModule", "lower"]
