"""What one round of lowering knows of failures that a `try` catches (`protected.py`, `raising.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from autobatch.frontend.types import values as v
from autobatch.ir.core import Instruction


@dataclass
class Caught:
    """Instructions whose failure is `handled`, the variables `before` each that may fail, and what calls of `guarded`
    functions have raised; instructions by identity, so that they are kept alive here."""

    handled: dict[int, Instruction] = field(default_factory=dict)
    before: dict[int, tuple[Instruction, dict[str, v.BoundVariable]]] = field(default_factory=dict)
    raisings: dict[int, dict[str, v.Abstract]] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
