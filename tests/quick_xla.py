"""XLA that compiles in about a third of the time: compiling is most of what the suite does, and most tests compare
results.

`make test` runs the suite this way: the code generator that XLA had before the present one, in one piece for each
program, few optimisations of LLVM. What each program costs beside that, however small it is, is left out too, for most
programs of the suite are one operation of plain Python: no MLIR context for each, no lines of Python in it, no name for
a cache that nobody asks. Tests marked `xla` read what XLA makes of a program, or check results as users get
them: they run in processes of their own, and so does everything where nobody asks for this (`pytest`, `make
test-long`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import jax

ASKED = os.environ.get("AUTOBATCH_TESTS_XLA") == "quick"
FLAGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
TRIED = "AUTOBATCH_TESTS_XLA_TRIED"
"""An environment variable that workers inherit: the flags are set, or are unknown here."""


def switch_on() -> None:
    """Before JAX has started XLA. XLA ends a process that names a flag it does not know, so another one tries first."""
    if TRIED not in os.environ:
        flags = " ".join([*FLAGS, os.environ.get("XLA_FLAGS", "")]).strip()
        attempt = [sys.executable, "-c", "import jax; jax.devices()"]
        if subprocess.run(attempt, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True).returncode == 0:
            os.environ["XLA_FLAGS"] = flags
        os.environ[TRIED] = "1"
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_enable_compilation_cache", False)
    if hasattr(jax.config, "jax_traceback_in_locations_limit"):
        jax.config.update("jax_traceback_in_locations_limit", 0)
    _keep_contexts()


PROGRAMS = 100
"""How many programs share an MLIR context: it keeps the types and constants of them all until it ends."""


def _keep_contexts() -> None:
    """JAX makes an MLIR context for each program, and loads all dialects into it: a third of what it takes until XLA
    has a small program. A program that is made while another one is gets its own."""
    from autobatch.ir.jax_compat import mlir  # asks XLA things, which has its flags by now

    if not hasattr(mlir, "ModuleContext") or not hasattr(mlir, "make_ir_context"):  # another JAX
        return
    kept, begin = threading.local(), mlir.ModuleContext.__init__

    def kept_context() -> Any:
        left = getattr(kept, "left", 0)
        if left == 0:
            kept.context, left = mlir.make_ir_context(), PROGRAMS
        kept.left = left - 1
        return None if kept.context.current else kept.context

    def begin_in_it(self: Any, *args: Any, context: Any = None, **kwargs: Any) -> None:
        begin(self, *args, context=context or kept_context(), **kwargs)

    mlir.ModuleContext.__init__ = begin_in_it
