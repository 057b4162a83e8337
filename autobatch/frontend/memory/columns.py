"""What stands in a column of memory (`heap.py`): numbers, arrays, and numbers that stand for something.

token.text = word     text[row] = word(%word)      a string or enum member by its number
word = token.text     %word = word_of(text[row])
item.node = node      node[row] = row(%node)       an object or list of the examples by that of its row
node = item.node      %node = row_of(node[row])
"""

from __future__ import annotations

from autobatch.frontend.lowering.state import LoweringState
from autobatch.ir.core import Operand
from autobatch.ir.ops import own
from autobatch.ir.types import INT, Array, List, Ref, Tag, Type


def column_type(type: Type) -> Array | None:
    """The type of one row of the column for values of a type; None where there is no such column."""
    match type:
        case Array():
            return None if type.dtype.startswith("key") else type
        case Tag() | Ref() | List(store=str()):
            return INT
        case _:
            return None


def as_stored(s: LoweringState, x: Operand) -> Operand:
    """What stands in a column for a value."""
    match x.type:
        case Tag():
            return s.apply(own("word"), (x,), INT)
        case Ref() | List(store=str()):
            return s.apply(own("row"), (x,), INT)
        case _:
            return x


def as_read(s: LoweringState, x: Operand, type: Type) -> Operand:
    """The value of a type that what stands in a column stands for."""
    match type:
        case Tag():
            return s.apply(own("word_of"), (x,), type)
        case Ref() | List(store=str()):
            return s.apply(own("row_of"), (x,), type)
        case _:
            return x
