"""`f.explain(...)`: what the compiler did with each line of a function, and what one call costs.

written       functions as they are written
places        where the operations of each line run
levels        level loops: rows, levels, windows
products      matrix products: where, and on what shapes
strategies    how functions and loops are run
collect       all of that as `facts`, which is what is shown
text, page    shown in a terminal; as one HTML page, with a `picture` of the levels
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import jax

from autobatch.errors import BatchError, SourceError
from autobatch.runtime.plan import DataPlan
from autobatch.specialise import Program
from autobatch.tools.explain.collect import INTEGERS, of_call, of_refusal
from autobatch.tools.explain.facts import Backend, Facts, plain
from autobatch.tools.explain.page import as_page
from autobatch.tools.explain.text import as_text

__all__ = ["Explanation", "backend_of", "explain_call", "explain_refusal", "refuse_traced"]


class Explanation:
    """What the compiler does with each line of a function for one call: `str(...)`, `.html()`, `.data`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the text and the page show, as dicts, lists, strings and numbers alone. Its keys are the
        fields of `autobatch.tools.explain.facts.Facts`, which says what they mean."""
        made: dict[str, Any] = plain(self._facts)
        return made

    def __str__(self) -> str:
        return as_text(self._facts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The page inside a notebook, apart from the notebook's own styles."""
        page = escape(self.html())
        return f'<iframe title="explanation" srcdoc="{page}" style="width: 100%; height: 40rem; border: 0"></iframe>'

    def html(self) -> str:
        """One HTML page, which needs nothing from outside: the source with a coloured margin, pictures of the levels
        of each recurrence, the tables."""
        return as_page(self._facts)


def backend_of(asked: str, taken: str) -> Backend:
    """The back end of a call, and why it is that one."""
    if taken == "interpret":
        why = "asked for; row by row: the levels and windows are those of xla"
    elif asked == taken:
        why = "asked for"
    else:
        why = f"{asked!r} takes the fastest there is"
    return Backend(asked, taken, why)


def explain_call(
    name: str, backend: Backend, program: Program, plan: DataPlan, tables: Mapping[str, Any], signature: Any
) -> Explanation:
    """The explanation of a call that is ready to run."""
    return Explanation(of_call(name, backend, program, plan, tables, signature))


def explain_refusal(
    name: str, function: Callable[..., Any], examples: int, backend: Backend, error: SourceError
) -> Explanation:
    """The explanation of a function that cannot be compiled."""
    return Explanation(of_refusal(name, function, examples, backend, error))


def refuse_traced(name: str, tables: Mapping[str, Any]) -> None:
    """BatchError where the plan of a call is known to JAX alone."""
    if isinstance(tables[INTEGERS], jax.core.Tracer):
        raise BatchError(f"{name}.explain reads the numbers of the call's plan: call it outside jax.jit")
