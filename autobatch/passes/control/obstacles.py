"""What stands in the way of control that computed numbers decide: what is no arithmetic, and where it is written."""

from __future__ import annotations

from typing import assert_never

from autobatch.ir import leaf
from autobatch.ir.core import Apply, Call, For, If, Instruction, Map, While, regions, walk
from autobatch.ir.types import Array, List
from autobatch.source import Span

Obstacle = tuple[str, Span]
"""Why control is no masked operation, and where that is written."""

READS = frozenset(("load", "load_is_none", "item", "length", "is_none", "is_class", "tag_index", "tag_equal", "word"))

LIST_IN_IT = (
    "it hands on a list, of which only numbers say how long it is or which it is: write into an array of a fixed size "
    "(out = out.at[k].set(x)) and count in k"
)
OBJECT_IN_IT = "it hands on an object that numbers choose: choose between what is read of each (x = a.x if c else b.x)"


def obstacle_in(instruction: Instruction) -> Obstacle | None:
    """The first thing inside that is no operation on arrays, no branch and no loop; None where there is none."""
    for i in [instruction, *(i for r in regions(instruction) for i in walk(r))]:
        if (what := what_stands_in_the_way(i)) is not None:
            return what, i.span
    return None


def what_stands_in_the_way(instruction: Instruction) -> str | None:
    """Why this instruction by itself is no arithmetic; None where it is."""
    match instruction:
        case Call(callee=callee):
            return f"{callee} is called in it, which calls itself"
        case Map():
            return "a list is made in it"
        case Apply(op=op) if op.name == "check":
            return None
        case Apply(op=op) if not (op.is_jax or op.name in leaf.NUMERIC or op.name in ("masked", "gradient_of")):
            return "an object or a list is read in it" if op.name in READS else "a list, an object or a string is in it"
        case Apply() | If() | For() | While():
            carried = (*instruction.results, *(a for r in regions(instruction) for a in r.args))
            if any(isinstance(x.type, List) for x in carried):
                return LIST_IN_IT
            return None if all(isinstance(x.type, Array) for x in carried) else OBJECT_IN_IT
        case _:
            assert_never(instruction)
