"""What an executable of JAX needs of memory."""

from __future__ import annotations

from typing import Any


def of(compiled: Any) -> dict[str, int]:
    """Bytes by XLA's analysis. What a derivative keeps of the forward pass is in `temporaries`; an output that takes
    the place of a donated argument counts once at the `peak`."""
    found = compiled.memory_analysis()
    parts = {
        "arguments": int(found.argument_size_in_bytes),
        "outputs": int(found.output_size_in_bytes),
        "donated": int(found.alias_size_in_bytes),
        "temporaries": int(found.temp_size_in_bytes),
    }
    return {**parts, "peak": parts["arguments"] + parts["outputs"] - parts["donated"] + parts["temporaries"]}
