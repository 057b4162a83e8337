"""An explanation as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autobatch.tools.explain.facts import CallFactsShown, RecurrenceFacts, SourceText
from autobatch.tools.explain.words import (
    bytes_of,
    file_name,
    heading,
    label,
    margin,
    meanings,
    multipliers_of,
    place_of,
    products_title,
    row_name,
    rows_of,
    rows_title,
    shapes,
    summary,
    windows_of,
)

SHOWN_LEVELS = 16
SHOWN_FAILURES = 5


def as_text(facts: CallFactsShown) -> str:
    """The whole explanation."""
    parts = [[heading(facts)], *([f"{place_of(t)}  {t.name}", *_source(t, facts)] for t in facts.texts)]
    if facts.refusal is not None and not any(line.notes for t in facts.texts for line in t.lines):
        parts.append([facts.refusal.message, facts.refusal.cure])
    parts.append(_legend(facts))
    parts.append(_failed(facts))
    parts.append(_table("strategies", [(s.name, s.strategy, s.why) for s in facts.strategies]))
    rows = [(row_name(r), f"{r.found:,}", f"{r.computed:,}", f"{r.capacity:,}") for r in facts.rows]
    parts.append(_table(rows_title(facts), [("", "found", "computed", "capacity"), *rows] if rows else []))
    parts += [_levels(loop) for loop in facts.recurrences]
    loops = len(facts.recurrences)
    products = [
        (label(p.place, loops), shapes(p), windows_of(p, facts), f"{file_name(p.file)}:{p.line}", multipliers_of(p))
        for p in facts.products
    ]
    parts.append(_table(products_title(facts), [("", "shapes", "rows", "", ""), *products] if products else []))
    parts.append(_table("bytes", [(name, f"{size:,}") for name, size in bytes_of(facts)]))
    return "\n\n".join("\n".join(line.rstrip() for line in part if line) for part in parts if part)


def _source(text: SourceText, facts: CallFactsShown) -> Iterator[str]:
    """The lines with their margin: place, rows, number."""
    loops = len(facts.recurrences)
    margins = [margin(line, loops) for line in text.lines]
    width = max(map(len, margins), default=0)
    wide = max((len(rows_of(line)) for line in text.lines), default=0)
    digits = len(str(text.lines[-1].number))
    for word, line in zip(margins, text.lines, strict=True):
        before = f"  {word:<{width}}  {rows_of(line):>{wide}}  {line.number:>{digits}}  "
        yield f"{before}{line.text}"
        if line.columns is not None:
            first, last = line.columns
            yield " " * (len(before) + first - 1) + "^" * (last - first)
        yield from (" " * len(before) + note for note in line.notes)


def _legend(facts: CallFactsShown) -> list[str]:
    """What the words of the margin mean."""
    found = meanings(facts)
    width = max((len(word) for _, word, _ in found), default=0)
    return [f"  {word:<{width}}  {meaning}" for _, word, meaning in found]


def _failed(facts: CallFactsShown) -> list[str]:
    """Examples that failed while planning."""
    if not facts.failed:
        return []
    lines = [f"{len(facts.failed):,} of the {facts.examples:,} examples fail"]
    for f in facts.failed[:SHOWN_FAILURES]:
        where = f" at {file_name(f.file)}:{f.line}" if f.line else ""
        lines.append(f"  example {f.index}{where}: {f.kind}: {f.message}")
    return lines


def _levels(loop: RecurrenceFacts) -> list[str]:
    """A level loop: rows, occupancy, windows, and how wide its levels are."""
    lines = [f"levels of r{loop.index}", f"  {summary(loop)}"]
    for task in loop.tasks:
        windows = ", ".join(f"{w.count:,} of {w.width:,} rows" for w in task.windows) or "none"
        more = "" if loop.native else f", windows: {windows}"
        lines.append(f"  {task.name}: {task.rows:,} rows, {task.operations} operations{more}")
    widths = [f"{level.rows:,}" for level in loop.levels]
    if len(widths) > SHOWN_LEVELS:
        half = SHOWN_LEVELS // 2
        widths = [*widths[:half], "...", *widths[-half:]]
    return [*lines, "  rows on each level: " + " ".join(widths)] if widths else lines


def _table(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, numbers to the right."""
    if not rows:
        return []
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    number = [all(_is_number(row[k]) for row in rows[1:] or rows) for k in range(len(rows[0]))]
    cells = ([f"{c:>{w}}" if n else f"{c:<{w}}" for c, w, n in zip(row, widths, number, strict=True)] for row in rows)
    return [title, *("  " + "  ".join(row) for row in cells)]


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()
