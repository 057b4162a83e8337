"""From the source of a function of one example, and the types of its arguments, to the per-example IR.

An abstract interpreter over the syntax tree that is a partial evaluator: what is static is computed, what is not
becomes instructions. Start reading at `lower.py`, then `values.py` and `state.py`.
"""

from autobatch.frontend.lower import Lowered, lower
from autobatch.frontend.state import FreeVariable

__all__ = ["FreeVariable", "Lowered", "lower"]
