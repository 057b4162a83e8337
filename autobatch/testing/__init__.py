"""Check your own batched functions against plain Python, as autobatch checks itself.

    check_equivalence(f, examples)    every back end and the plain loop agree: results, failures, gradients, under jit
    examples_like(annotation)         a Hypothesis strategy of examples of an annotated type
    programs()                        a Hypothesis strategy of random per-example programs, with data to run them on

Needs Hypothesis: `pip install 'autobatch[testing]'`. `import autobatch` does not import it.

>>> from dataclasses import dataclass
>>> from hypothesis import given, settings
>>> from hypothesis import strategies as st
>>> import autobatch as ab
>>> from autobatch.testing import check_equivalence, examples_like
>>> @dataclass
... class Node:
...     x: float
...     left: "Node | None" = None
...     right: "Node | None" = None
>>> @ab.batched(in_axes=(None, 0))
... def total(scale, node):
...     below = [total(scale, kid) for kid in (node.left, node.right) if kid is not None]
...     return scale * node.x + sum(below)
>>> @settings(max_examples=2, database=None, deadline=None)
... @given(st.lists(examples_like(Node), min_size=3, max_size=3))
... def test_total(trees):
...     check_equivalence(total, trees, (0.5,))
>>> test_total()
"""

try:
    import hypothesis  # noqa: F401  the modules below import parts of it
except ImportError as error:
    raise ImportError("autobatch.testing needs Hypothesis: pip install 'autobatch[testing]'") from error

from autobatch.testing.examples import Difference, assert_same, differences, examples_like
from autobatch.testing.programs import Program, Tree, programs, trees
from autobatch.testing.ways import NotEquivalent, check_equivalence

__all__ = [
    "Difference",
    "NotEquivalent",
    "Program",
    "Tree",
    "assert_same",
    "check_equivalence",
    "differences",
    "examples_like",
    "programs",
    "trees",
]
