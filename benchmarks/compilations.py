"""How often XLA compiles, by JAX's own monitoring."""

from __future__ import annotations

import jax


class Compilations:
    """Counts what XLA compiles while it is open, which may be many times; what its cache on disk holds counts too."""

    def __init__(self) -> None:
        self.count, self.open = 0, False
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if self.open and event.endswith("backend_compile_duration"):
            self.count += 1

    def __enter__(self) -> Compilations:
        self.open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False
