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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import jax

from autobatch.backends.interface import FunctionProgram
from autobatch.call.examples import Examples
from autobatch.call.inspection import Parts, shapes_of
from autobatch.call.prepared import Prepared
from autobatch.call.specialise import SpecialisedProgram
from autobatch.compiler import choice
from autobatch.data.columns import Ints
from autobatch.data.ragged import group_title
from autobatch.errors import BatchError, SourceError
from autobatch.ir.jax_compat import integers_are_wide
from autobatch.tools.collect import INTEGERS, of_call, of_machine_code, of_refusal
from autobatch.tools.explain.page import as_page, as_pages
from autobatch.tools.facts import BackendFacts, CallFactsShown, as_text, plain


class Explanation:
    """What the compiler does with each line of a function for one call: `str(...)`, `.html()`, `.data`."""

    def __init__(self, facts: CallFactsShown) -> None:
        self._facts = facts

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the text and the page show, as dicts, lists, strings and numbers alone. Its keys are the
        fields of `autobatch.tools.facts.Facts`, which says what they mean."""
        made: dict[str, Any] = plain(self._facts)
        return made

    def __str__(self) -> str:
        return as_text(self._facts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The page inside a notebook, apart from the notebook's own styles."""
        return _framed(self.html())

    def html(self) -> str:
        """One HTML page, which needs nothing from outside: the source with a coloured margin, pictures of the levels
        of each recurrence, the tables."""
        return as_page(self._facts)

    @property
    def facts(self) -> CallFactsShown:
        """What is shown, as dataclasses."""
        return self._facts


class GroupedExplanation:
    """The explanations of one call whose examples are in groups by the shapes of their arrays: each is a program of its
    own. `groups` are those of each group, `members` the numbers of its examples, `shapes` what tells it from the
    others."""

    def __init__(
        self,
        function: str,
        groups: Sequence[Explanation],
        members: Sequence[Ints],
        shapes: Sequence[Mapping[str, str]],
    ) -> None:
        self._function, self.groups, self.shapes = function, tuple(groups), tuple(map(dict, shapes))
        self.members = tuple(members)

    @property
    def data(self) -> dict[str, Any]:
        """For each group: which "examples" it has, the "shapes" that tell it from the others, its "explanation"."""
        groups = [
            {"examples": m.tolist(), "shapes": s, "explanation": g.data}
            for m, s, g in zip(self.members, self.shapes, self.groups, strict=True)
        ]
        return {"function": self._function, "examples": sum(map(len, self.members)), "groups": groups}

    def _title(self) -> str:
        count = sum(map(len, self.members))
        return f"{self._function}: {count:,} examples in {len(self.groups)} groups by the shapes of their arrays"

    def _titles(self) -> list[str]:
        count = len(self.groups)
        return [group_title(k, count, m, s) for k, (m, s) in enumerate(zip(self.members, self.shapes, strict=True))]

    def __str__(self) -> str:
        titles = self._titles()
        parts = [f"{title}\n{'=' * len(title)}\n\n{group}" for title, group in zip(titles, self.groups, strict=True)]
        return "\n\n".join([self._title() + "\n" + "\n".join(f"  {title}" for title in titles), *parts])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The page inside a notebook."""
        return _framed(self.html())

    def html(self) -> str:
        """One HTML page, with the groups one after another."""
        facts = [g.facts for g in self.groups]
        return as_pages(self._function, self._title(), list(zip(self._titles(), facts, strict=True)))


def _framed(page: str) -> str:
    return (
        f'<iframe title="explanation" srcdoc="{escape(page)}" style="width: 100%; height: 40rem; border: 0"></iframe>'
    )


def backend_of(asked: str, taken: str, why: str = "") -> BackendFacts:
    """The back end of a call, and why it is that one. `why`: what decided where none is asked for."""
    if taken == "interpret":
        why = "asked for; row by row: the levels and windows are those of xla"
    elif asked == taken:
        why = "asked for"
    else:
        why = f"{asked!r}: {why or 'the function is no machine code as a whole'}"
    return BackendFacts(asked, taken, why)


def explain_parts(
    name: str, asked: str, taken: str, why: Callable[[SpecialisedProgram, Examples], str], parts: Parts
) -> Explanation | GroupedExplanation:
    """The explanation of a call that is ready to run, or those of its groups. `why` XLA takes one that nobody asked it
    for."""
    found = [_explained(name, backend_of(asked, taken, why(p.program, p.examples)), p) for _, p in parts]
    return found[0] if len(found) == 1 else GroupedExplanation(name, found, [m for m, _ in parts], shapes_of(parts))


def _explained(name: str, backend: BackendFacts, prepared: Prepared) -> Explanation:
    native, count = prepared.program.compiled.native, prepared.examples.count
    try:
        planned = prepared.with_tables()
    except Exception as error:  # machine code has run: what XLA would do with these examples is beside the point
        if native is None:
            raise
        said = error.message if isinstance(error, SourceError) else (str(error).splitlines() or [""])[0]
        none = f"no rows and tables: there is no program of XLA: {said}"
        return Explanation(of_machine_code(name, count, _by_native(backend, native, prepared, none), prepared.program))
    ready, program = planned.ready, planned.program
    signature: Any = ready.signature
    if isinstance(ready.tables[INTEGERS], jax.core.Tracer):
        raise BatchError(f"{name}.explain reads the numbers of the call's plan: call it outside jax.jit")
    if native is not None:
        backend = _by_native(
            backend,
            native,
            prepared,
            "rows and tables are those of xla under jax.jit, which calls this code for batches without a plan",
        )
    plan: Any = ready.plan or prepared.examples.on_host().plan(program)
    return Explanation(of_call(name, backend, program, plan, ready.tables, signature))


def _by_native(backend: BackendFacts, native: FunctionProgram, prepared: Prepared, tables: str) -> BackendFacts:
    """The back end of a call by machine code, with why it was chosen and how it runs. `tables`: what is said of
    those."""
    if backend.asked == "auto":
        use, taken = prepared.use, "llvm" if native.on_host else "cuda"
        on_host = "integers need 64 bits" if integers_are_wide() else "a recursion takes many steps"
        other = on_host if native.on_host else "an argument is on a GPU"
        chosen = choice.in_words(choice.Use(use), native.work) if choice.is_use(use) else other
        backend = backend_of("auto", taken, chosen)
    return replace(backend, why=f"{backend.why}; {native.how}; {tables}")


def explain_refusal(
    name: str, function: Callable[..., Any], examples: int, backend: BackendFacts, error: SourceError
) -> Explanation:
    """The explanation of a function that cannot be compiled."""
    return Explanation(of_refusal(name, function, examples, backend, error))
