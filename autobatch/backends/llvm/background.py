"""LLVM's passes over a text, and its machine code: in this process, or in one of its own while the caller computes.

A long text takes LLVM seconds. So it is compiled twice: at once with the few passes that take a tenth of the time
(the baseline tier, as engines of JavaScript call it), and in the background, by a process of its own, with all of them.
That code takes the place of the first when it is there, and is kept for later processes.

This file is what that process runs, which imports llvmlite and nothing of autobatch: its description comes as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

Machine = Mapping[str, Any]
"""The arguments of `create_target_machine`."""


def optimised(llvm: Any, text: str, target: Any, vectorize: bool) -> Any:
    """The module of a text after the passes of LLVM's level 2."""
    parsed = parsed_of(llvm, text)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.slp_vectorization = False
    tuning.loop_unrolling = tuning.loop_vectorization = vectorize  # else it is written as wanted
    passes = llvm.create_pass_builder(target, tuning)
    passes.getModulePassManager().run(parsed, passes)
    return parsed


def baseline(llvm: Any, text: str, target: Any) -> Any:
    """The same after what a module of many instructions needs: variables as registers, and no constants that loops
    carry."""
    parsed = parsed_of(llvm, text)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_sccp_pass()
    passes.add_dead_code_elimination_pass()
    passes.run(parsed, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2)))
    return parsed


def parsed_of(llvm: Any, text: str) -> Any:
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    return parsed


def main(description: str) -> None:
    """Compile the text of a file into another one."""
    llvm = importlib.import_module("llvmlite.binding")
    os.nice(10)  # who waits for results comes first
    told = json.loads(description)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(**told["machine"])
    with open(told["text"], encoding="utf-8") as file:
        parsed = optimised(llvm, file.read(), target, told["vectorize"])
    with open(told["object"], "wb") as file:
        file.write(bytes(target.emit_object(parsed)))


if __name__ == "__main__":
    main(sys.argv[1])
