"""From the source of a function of one example, and the types of its arguments, to the per-example IR.

An abstract interpreter over the syntax tree that is a partial evaluator: what is static is computed, what is not
becomes instructions. The reading order:

    lowering/lower          the front end from outside: rounds until the results of recursive calls are known
    types/                  values (what is known of a Python value, and its leaves, which are what the IR has), unify
                            (where two values meet), statics, specialisation (shared integers that are constants)
    lowering/state          the module, function, block and variables at a point of the program
    syntax/                 sources, scopes, cells (from a function to its syntax tree and variables), flattening,
                            generators, state_machines, iterator_variables, invalidation
    lowering/               statements, assignment, exceptions; branches, joins; loops, carrying, comprehensions,
                            iterators; operators, numbers, sequences, attributes, unions, selection, reductions,
                            printing; construct, functions, results; calls (one IR function a specialisation), dispatch
                            (what a call means by its callee), tracing (what JAX traces)
    memory/                 heap, heaps (objects that have memory), list_heap, container_heap, mutation, rebinding,
                            array_stores
    library/                what a name means: builtin_functions, prelude, strings, sets, tables, equality, priorities,
                            numpy_arrays, dynamic_arrays, stacking, graphs, groups, object_graphs, domains, gradients
"""

from autobatch.frontend.lowering.lower import LoweredModule, lower
from autobatch.frontend.lowering.state import FreeVariable

__all__ = ["FreeVariable", "LoweredModule", "lower"]
