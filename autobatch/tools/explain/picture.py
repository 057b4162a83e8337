"""Level loops as pictures: a bar for each level, what its windows compute behind what it must compute (inline SVG)."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from autobatch.tools.explain.facts import LevelFacts, RecurrenceFacts
from autobatch.tools.explain.words import summary

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
