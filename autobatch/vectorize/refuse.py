"""What frames cannot run: control that depends on computed numbers, found before any code is made."""

from __future__ import annotations

from autobatch.analysis.structure import Structure
from autobatch.errors import UnsupportedError
from autobatch.ir.core import Apply, If, Map, Module, Operand, walk
from autobatch.ir.types import List, Ref, Tag
from autobatch.source import Span

CURE = (
    "write the choice as data (`jnp.where(condition, a, b)`), or decide it from the example itself: "
    "its fields, lengths, classes and integers"
)


def refuse_numeric_control(module: Module, facts: Structure) -> None:
    """Raise UnsupportedError for the first instruction whose control or index is known to the device alone."""
    for function in module.functions:
        for instruction in walk(function.region):
            match instruction:
                case If(condition=c, span=span):
                    _demand(facts, c, span, "this condition depends on numbers that are computed in the batch")
                case Map(count=n, span=span):
                    _demand(facts, n, span, "the length of this loop depends on numbers computed in the batch")
                case Apply(op=op, operands=xs, span=span) if op.name == "check":
                    for x in xs:
                        _demand(facts, x, span, f"this {op['kind']} depends on numbers that are computed in the batch")
                case Apply(op=op, operands=xs, span=span) if not op.is_jax:
                    for x in xs:
                        if isinstance(x.type, Ref | Tag) or (isinstance(x.type, List) and x.type.store is not None):
                            _demand(facts, x, span, "this object depends on numbers that are computed in the batch")
                    if op.name == "item":
                        _demand(facts, xs[1], span, "this index depends on numbers that are computed in the batch")
                    if op.name == "stack":
                        raise UnsupportedError(
                            "a list whose length differs between examples cannot become an array",
                            span,
                            "reduce it instead (sum, max, min, any, all), or return the list itself",
                        )
                case _:
                    pass


def _demand(facts: Structure, x: Operand, span: Span, message: str) -> None:
    if not facts.is_host(x):
        raise UnsupportedError(message, span, CURE)
