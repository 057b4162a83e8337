"""Places in the user's source text: every instruction and every error carries one."""

from __future__ import annotations

import linecache

from autobatch.common.record import record


@record
class Span:
    """A range of the user's source: 1-based lines, 1-based columns, as editors count them."""

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """The source line with a caret under the range, or an empty string when there is no source."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return ""
        stop = self.end_column if self.end_line == self.line else len(text) + 1
        carets = "^" * max(1, stop - self.column)
        return f"    {text}\n    {' ' * (self.column - 1)}{carets}"


NOWHERE = Span("<no source>", 0, 0)
