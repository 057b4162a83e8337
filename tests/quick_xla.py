"""XLA that compiles in about a third of the time: compiling is most of what the suite does, and most tests compare
results.

`make test` runs the suite this way: the code generator that XLA had before the present one, in one piece for each
program, few optimisations of LLVM. Tests marked `xla` read what XLA makes of a program, or check results as users get
them: they run in processes of their own, and so does everything where nobody asks for this (`pytest`, `make
test-long`).
"""

from __future__ import annotations

import os
import subprocess
import sys

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
