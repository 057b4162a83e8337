"""Write a Python function for one example; run it on a whole batch as one program.

>>> import autobatch as ab
>>> @ab.batched
... def total(words):
...     return sum(w * 2 for w in words)
>>> total([[1, 2], [3]]).tolist()
[6, 6]
"""

from autobatch.api.batched import Batched, batched
from autobatch.api.derivatives import grad, hvp, jvp, per_example_grad, value_and_grad, vjp
from autobatch.call.arguments import stacked
from autobatch.call.batch import Batch, load, pack
from autobatch.call.exporting import Exported, load_exported
from autobatch.call.inspection import lower
from autobatch.call.loader import Loader
from autobatch.call.plain import disable
from autobatch.call.results import Failures, Objects, unbatch
from autobatch.common.cache import CacheInfo
from autobatch.common.runtime import keep_memory
from autobatch.common.sparse_rows import SparseRows, apply_updates, sparse
from autobatch.data.ragged import Ragged
from autobatch.errors import (
    BatchError,
    DeviceError,
    Error,
    ExampleError,
    Failure,
    FileError,
    PerformanceWarning,
    PlanError,
    StructureWarning,
    TargetError,
    TypeConflictError,
    UnsupportedError,
)
from autobatch.options import options

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchError",
    "Batched",
    "CacheInfo",
    "DeviceError",
    "Error",
    "ExampleError",
    "Exported",
    "Failure",
    "Failures",
    "FileError",
    "Loader",
    "Objects",
    "PerformanceWarning",
    "PlanError",
    "Ragged",
    "SparseRows",
    "StructureWarning",
    "TargetError",
    "TypeConflictError",
    "UnsupportedError",
    "apply_updates",
    "batched",
    "disable",
    "grad",
    "hvp",
    "jvp",
    "keep_memory",
    "load",
    "load_exported",
    "lower",
    "options",
    "pack",
    "per_example_grad",
    "sparse",
    "stacked",
    "unbatch",
    "value_and_grad",
    "vjp",
]
