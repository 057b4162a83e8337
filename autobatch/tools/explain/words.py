"""The words that the text and the page have in common."""

from __future__ import annotations

import re
from pathlib import PurePath

from autobatch.tools.explain.facts import (
    PLACES,
    CallFactsShown,
    LinePlace,
    ProductFacts,
    RecurrenceFacts,
    RowFacts,
    SourceLine,
    SourceText,
)


def label(place: LinePlace, loops: int) -> str:
    """A place in two or three words; `loops` is the number of level loops there are."""
    match place.kind:
        case "level":
            return f"level r{place.recurrence}"
        case "frame" if place.when == "after" and loops > 1:
            return f"frame after r{place.recurrence}"
        case "frame" if place.when is not None:
            return f"frame {place.when}"
        case "masked" if place.when is None and place.recurrence is not None:
            return f"masked r{place.recurrence}"
        case "nothing":
            return "-"
        case kind:
            return kind


def margin(line: SourceLine, loops: int) -> str:
    """The place of a line; a plus where other operations of it run elsewhere on the device."""
    if line.place is None:
        return ""
    on_device = {label(p, loops) for p in line.places if p.kind in ("level", "frame", "example", "masked")}
    return label(line.place, loops) + (" +" if len(on_device) > 1 else "")


def meanings(facts: CallFactsShown) -> list[tuple[str, str, str]]:
    """What the margin says: each kind of place that occurs, its word, what it means."""
    named = {"level": "level rN", "masked": "masked, rN in a level loop", "nothing": "-"}
    found = [(kind, named.get(kind, kind), PLACES[kind]) for kind in kinds(facts) if kind != "refused"]
    if any(margin(line, len(facts.recurrences)).endswith("+") for text in facts.texts for line in text.lines):
        found.append(("", "+", "other operations of the line run elsewhere"))
    return found


def row_name(rows: RowFacts) -> str:
    """What the rows are."""
    if rows.kind == "data":
        words = {"#root": "examples", "#argument": "argument"}
        name = re.sub("|".join(words), lambda found: words[found[0]], rows.name)
        return f"elements of {name.removesuffix('.#values')}" if name.endswith(".#values") else name
    return rows.name


def rows_title(facts: CallFactsShown) -> str:
    """Whether equal rows were found."""
    shared = any(r.computed < r.found for r in facts.rows)
    return "rows: equal ones are computed once" if shared else "rows"


def products_title(facts: CallFactsShown) -> str:
    """How many products are in no level loop."""
    outside = sum(p.place.kind != "level" for p in facts.products)
    return f"matrix products: {outside} of {len(facts.products)} outside the level loops"


def file_name(path: str) -> str:
    """A file without its folders."""
    return PurePath(path).name


def kinds(facts: CallFactsShown) -> list[str]:
    """The kinds of places that occur, in the order of `PLACES`."""
    found = {line.place.kind for text in facts.texts for line in text.lines if line.place is not None}
    return [kind for kind in PLACES if kind in found]


def heading(facts: CallFactsShown) -> str:
    """What was explained: examples and back end, or that it is refused."""
    if facts.refusal is not None:
        return f"{facts.function}: refused ({facts.refusal.kind})"
    backend = facts.backend
    count = f"{facts.examples:,} example{'' if facts.examples == 1 else 's'}"
    return f"{facts.function}: {count} on {backend.taken} ({backend.why})"


def rows_of(line: SourceLine) -> str:
    """The rows of the most expensive operation of a line."""
    return "" if line.place is None or line.place.rows is None else f"{line.place.rows:,}"


def place_of(text: SourceText) -> str:
    """File and first line."""
    return f"{file_name(text.file)}:{text.lines[0].number}"


def shapes(product: ProductFacts) -> str:
    """`[rows, 8] x [8, 24]`: an operand with its own value in each row has an axis of rows."""

    def one(shape: tuple[int, ...], varies: bool) -> str:
        return "[" + ", ".join([*(["rows"] if varies else []), *map(str, shape)]) + "]"

    if not product.left and not product.right:
        return f"{product.operation} to {one(product.result, product.rows is not None)}"
    both = f"{one(product.left, product.left_varies)} x {one(product.right, product.right_varies)}"
    return both if product.operation == "dot_general" else f"{product.operation} {both}"


def windows_of(product: ProductFacts, facts: CallFactsShown) -> str:
    """The rows of a product; in a level loop, how many at once and how often."""
    if product.task is None or product.place.recurrence is None:
        return "" if product.rows is None else f"{product.rows:,}"
    loop = facts.recurrences[product.place.recurrence]
    task = next(t for t in loop.tasks if t.name == product.task)
    if loop.native:
        return f"{task.rows:,}"
    return " + ".join(f"{w.count:,} of {w.width:,}" for w in task.windows) or "none"


def multipliers_of(product: ProductFacts) -> str:
    """What computes a product at each width of windows, where there is a choice: `native at 16, 8; xla at 64 (why)`."""
    by: dict[tuple[str, str], list[int]] = {}
    for m in product.multipliers:
        by.setdefault((m.by, m.why), []).append(m.width)
    words = [
        f"{name} at {', '.join(map(str, widths))}" + (f" ({why})" if name == "xla" else "")
        for (name, why), widths in by.items()
    ]
    return "; ".join(words)


def percent(part: float | None) -> str:
    """A share, never rounded to nothing or to all."""
    if part is None:
        return "-"
    if 0 < part < 0.01:
        return "under 1 %"
    return f"{min(int(part * 100 + 0.5), 99 if part < 1 else 100)} %"


def summary(loop: RecurrenceFacts) -> str:
    """A level loop in one sentence."""
    if not loop.levels:
        return "no rows, no levels"
    levels = f"{len(loop.levels):,} level{'' if len(loop.levels) == 1 else 's'}"
    rows = f"{loop.rows:,} row{'' if loop.rows == 1 else 's'}"
    if loop.native:
        return f"{rows} on {levels}; machine code, one call, no windows"
    return f"{rows} on {levels}; {loop.computed:,} computed in windows: occupancy {percent(loop.occupancy)}"


def bytes_of(facts: CallFactsShown) -> list[tuple[str, int]]:
    """What is held, and how many bytes it has."""
    if facts.bytes is None:
        return []
    b = facts.bytes
    named = [
        ("tables of integers", b.tables),
        ("columns of the examples", b.columns),
        ("shared arguments", b.shared),
        ("results made on the host", b.results),
        ("buffers of the level loops", b.buffers),
    ]
    return [(name, size) for name, size in named if size]
