"""`f.explain(...)`: what the compiler did with each line of a function, and what one call costs.

    written       functions as they are written
    places        where the operations of each line run
    levels        level loops: rows, levels, windows
    products      matrix products: where, and on what shapes
    strategies    how functions and loops are run

`collect.py` collects all of that as `facts.py`, which is what is shown: in a terminal, or as one HTML page with a
`picture` of the levels, that needs nothing from outside: no scripts, no fonts, no links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from autobatch.tools.facts import (
    PLACES,
    BackendFacts,
    CallFactsShown,
    LevelFacts,
    RecurrenceFacts,
    SourceLine,
    SourceText,
    as_text,
    bytes_of,
    file_name,
    heading,
    label,
    margin,
    meanings,
    multipliers_of,
    place_of,
    plain,
    products_title,
    row_name,
    rows_of,
    rows_title,
    shapes,
    summary,
    windows_of,
)

# ---- picture
#
# Level loops as pictures: a bar for each level, what its windows compute behind what it must compute (inline SVG).


WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 720, 180, 56, 24, 10
BARS = 120
"""Bars of a picture: levels of a deeper loop are drawn several in one bar, by their mean."""


@dataclass(frozen=True)
class Bar:
    """Levels `first` to `last`: the mean of the rows that they need, and of those that are computed."""

    first: int
    last: int
    rows: float
    computed: float

    def words(self) -> str:
        which = f"level {self.first}" if self.first == self.last else f"levels {self.first} to {self.last}, on average"
        return f"{which}: {self.rows:,.4g} rows of {self.computed:,.4g} computed"


def bars(levels: tuple[LevelFacts, ...]) -> list[Bar]:
    """At most `BARS` bars for all levels."""
    step = max(1, -(-len(levels) // BARS))
    made = []
    for first in range(0, len(levels), step):
        part = levels[first : first + step]
        rows, computed = sum(x.rows for x in part), sum(x.computed for x in part)
        made.append(Bar(first, first + len(part) - 1, rows / len(part), computed / len(part)))
    return made


def picture(loop: RecurrenceFacts) -> str:
    """An SVG element; each bar says its numbers to who points at it, the whole picture says its summary."""
    drawn = bars(loop.levels)
    highest = max((bar.computed for bar in drawn), default=0)
    if not highest:
        return ""
    plot_width, plot_height = WIDTH - LEFT, HEIGHT - ABOVE - BELOW
    slot = min(48.0, plot_width / len(drawn))
    gap = min(2.0, slot / 5)
    base = HEIGHT - BELOW
    lines = []
    for k, bar in enumerate(drawn):
        x, across = LEFT + k * slot, f'width="{slot - gap:.1f}"'
        done, used = (plot_height * n / highest for n in (bar.computed, bar.rows))
        lines.append(
            f"<g><title>{escape(bar.words())}</title>"
            f'<rect class="padded" fill="#f0b7b2" x="{x:.1f}" y="{base - done:.1f}" {across} height="{done:.1f}"/>'
            f'<rect class="useful" fill="#b3261e" x="{x:.1f}" y="{base - used:.1f}" {across} height="{used:.1f}"/></g>'
        )
    name = f"r{loop.index}"
    last = LEFT + (len(drawn) - 1) * slot + (slot - gap) / 2
    right = LEFT + len(drawn) * slot
    axis = [
        f'<line class="axis" stroke="#808080" x1="{LEFT - 4}" y1="{base}" x2="{right:.1f}" y2="{base}"/>',
        f'<text x="{LEFT - 8}" y="{ABOVE + 9}" text-anchor="end">{highest:,.4g}</text>',
        f'<text x="{LEFT - 8}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{LEFT + (slot - gap) / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle">0</text>',
    ]
    if len(loop.levels) > 1:
        number = f"{len(loop.levels) - 1:,}"
        axis.append(f'<text x="{last:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{number}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">Rows on each level of {name}</title>'
        f'<desc id="{name}-words">{escape(summary(loop))}</desc>' + "".join([*axis, *lines]) + "</svg>"
    )


STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #5c6570; --rule: #d8dee4; --code: #f6f8fa;
  --level: #b3261e; --frame: #0b6e4f; --example: #1f5fa8; --once: #6b3fa0; --host: #8a5a00; --refused: #b3261e;
  --padded: #f0b7b2; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181d; --text: #e4e8ec; --dim: #9aa5b1; --rule: #343c45; --code: #1b2128;
    --level: #ff8a80; --frame: #5fd3a8; --example: #7db8ff; --once: #c9a4f5; --host: #f0c060; --refused: #ff8a80;
    --padded: #5e3330; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.2rem 0 .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid var(--rule); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.source { background: var(--code); width: 100%; font: 14px/1.45 ui-monospace, monospace; }
.source th, .source td { padding: 0 .8rem; font-weight: 400; border: 0; white-space: pre; }
.source .margin { border-left: .35rem solid transparent; }
.source .line, .source .rows, .dim { color: var(--dim); }
.level, .stack { --ink: var(--level); } .frame { --ink: var(--frame); } .example { --ink: var(--example); }
.once { --ink: var(--once); } .host { --ink: var(--host); } .refused { --ink: var(--refused); }
.nothing, .not-reached { --ink: var(--dim); }
.source .margin[class~=level], .source .margin[class~=frame], .source .margin[class~=example],
.source .margin[class~=once], .source .margin[class~=host], .source .margin[class~=refused] {
  border-left-color: var(--ink); }
.margin, .word { color: var(--ink, inherit); }
.not-reached + td + td + td, .not-reached { opacity: .75; }
mark { background: none; color: inherit; text-decoration: underline wavy var(--refused); }
.note { color: var(--refused); white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; } dd { margin: 0; }
figure { margin: .5rem 0; } svg { width: 100%; max-width: 45rem; height: auto; }
svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
.useful { fill: var(--level); } .padded { fill: var(--padded); } .axis { stroke: var(--rule); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
.key.useful { background: var(--level); } .key.padded { background: var(--padded); }
"""
SHOWN_FAILURES = 100


def as_page(facts: CallFactsShown) -> str:
    """The whole page."""
    return _page(facts.function, as_body(facts))


def as_pages(function: str, title: str, groups: Sequence[tuple[str, CallFactsShown]]) -> str:
    """One page for the groups of a call: title and explanation of each."""
    bodies = [f"<h1>{escape(name)}</h1>\n{as_body(facts)}" for name, facts in groups]
    return _page(function, "\n<hr>\n".join([f"<h1>{escape(title)}</h1>", *bodies]))


def _page(function: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(function)} explained</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def as_body(facts: CallFactsShown) -> str:
    """What stands on the page."""
    parts = [f"<h1>{escape(heading(facts))}</h1>"]
    if facts.refusal is not None:
        parts.append(f'<p class="note">{escape(facts.refusal.message)}</p><p>{escape(facts.refusal.cure)}</p>')
    parts += [_section("Source", [*(_source(t, facts) for t in facts.texts), _legend(facts)])]
    parts.append(_failed(facts))
    if facts.recurrences:
        parts.append(_section("Levels", map(_levels, facts.recurrences)))
    parts.append(_strategies(facts))
    parts.append(_rows(facts))
    parts.append(_products(facts))
    sizes = [[escape(name), f"{size:,}"] for name, size in bytes_of(facts)]
    parts.append(_table("Bytes", ["what", "bytes"], sizes))
    return "\n".join(p for p in parts if p)


def _section(title: str, parts: Iterable[str]) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(p for p in parts if p) + "\n</section>"


def _source(text: SourceText, facts: CallFactsShown) -> str:
    """The lines of a function, as a table whose first column is the margin."""
    title = (
        f'<h3 title="{escape(text.file)}">{escape(text.name)} <span class="dim">{escape(place_of(text))}</span></h3>'
    )
    head = (
        '<thead><tr><th scope="col">runs</th><th scope="col" class="number">rows</th>'
        '<th scope="col" class="number">line</th><th scope="col">source</th></tr></thead>'
    )
    rows = "\n".join(_line(line, len(facts.recurrences)) for line in text.lines)
    return f'{title}\n<div class="wide"><table class="source">\n{head}\n<tbody>\n{rows}\n</tbody></table></div>'


def _line(line: SourceLine, loops: int) -> str:
    kind = line.place.kind.replace(" ", "-") if line.place is not None else ""
    word = margin(line, loops)
    all_ = "; ".join(
        f"{label(p, loops)}: {p.operations} operation{'' if p.operations == 1 else 's'}"
        + ("" if p.rows is None else f" on {p.rows:,} rows")
        for p in line.places
        if p.operations
    )
    meaning = PLACES[line.place.kind] if line.place is not None else ""
    row = (
        f'<tr><th scope="row" class="margin {kind}" title="{escape(all_ or meaning)}">{escape(word)}</th>'
        f'<td class="rows number">{rows_of(line)}</td><td class="line number">{line.number}</td>'
        f"<td><code>{_code(line)}</code></td></tr>"
    )
    notes = "\n".join(f'<tr><td></td><td></td><td></td><td class="note">{escape(n)}</td></tr>' for n in line.notes)
    return f"{row}\n{notes}" if notes else row


def _code(line: SourceLine) -> str:
    if line.columns is None:
        return escape(line.text)
    first, last = line.columns[0] - 1, line.columns[1] - 1
    parts = line.text[:first], line.text[first:last], line.text[last:]
    return f"{escape(parts[0])}<mark>{escape(parts[1])}</mark>{escape(parts[2])}"


def _legend(facts: CallFactsShown) -> str:
    items = [
        f'<dt class="word {kind.replace(" ", "-")}">{escape(word)}</dt><dd>{escape(meaning)}</dd>'
        for kind, word, meaning in meanings(facts)
    ]
    return f"<dl>{''.join(items)}</dl>" if items else ""


def _failed(facts: CallFactsShown) -> str:
    rows = [
        [str(f.index), escape(f"{file_name(f.file)}:{f.line}" if f.line else ""), escape(f"{f.kind}: {f.message}")]
        for f in facts.failed[:SHOWN_FAILURES]
    ]
    return _table(f"{len(facts.failed):,} examples fail", ["example", "line", "error"], rows)


def _levels(loop: RecurrenceFacts) -> str:
    """The picture of one loop, and its tasks as a table."""
    key = '<span class="key useful"></span>needed <span class="key padded"></span>computed to fill windows'
    caption = f"<figcaption>{escape(summary(loop))}.<br>Rows on each level: {key}</figcaption>"
    drawn = picture(loop)
    rows = [
        [
            escape(t.name),
            f"{t.rows:,}",
            f"{t.computed:,}",
            str(t.operations),
            ", ".join(f"{w.count:,} of {w.width:,}" for w in t.windows),
        ]
        for t in loop.tasks
    ]
    table = _cells(["task", "rows", "computed", "operations", "windows"], rows)
    return f"<h3>r{loop.index}</h3>\n" + (f"<figure>{drawn}{caption}</figure>\n" if drawn else "") + table


def _strategies(facts: CallFactsShown) -> str:
    rows = [[f"<code>{escape(s.name)}</code>", escape(s.strategy), escape(s.why)] for s in facts.strategies]
    return _table("Strategies", ["function", "strategy", "why"], rows)


def _rows(facts: CallFactsShown) -> str:
    rows = [
        [f"<code>{escape(row_name(r))}</code>", escape(r.kind), f"{r.found:,}", f"{r.computed:,}", f"{r.capacity:,}"]
        for r in facts.rows
    ]
    return _table(rows_title(facts).capitalize(), ["of", "kind", "found", "computed", "capacity"], rows)


def _products(facts: CallFactsShown) -> str:
    loops = len(facts.recurrences)
    rows = [
        [
            f'<span class="word {p.place.kind}">{escape(label(p.place, loops))}</span>',
            f"<code>{escape(shapes(p))}</code>",
            escape(windows_of(p, facts)),
            escape(f"{file_name(p.file)}:{p.line}"),
            escape(multipliers_of(p)),
        ]
        for p in facts.products
    ]
    return _table(products_title(facts).capitalize(), ["runs", "shapes", "rows", "line", "by"], rows)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return _section(title, [_cells(head, rows)]) if rows else ""


def _cells(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML; columns of numbers stand to the right."""
    number = [all(row[k].replace(",", "").isdigit() for row in rows) for k in range(len(head))]
    kind = [' class="number"' if n else "" for n in number]
    top = "".join(f'<th scope="col"{c}>{escape(h)}</th>' for h, c in zip(head, kind, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{c}>{cell}</td>" for cell, c in zip(row, kind, strict=True)) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


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
