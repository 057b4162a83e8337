"""Write a Python function for one example; run it on a whole batch as one program.

>>> import autobatch as ab
>>> @ab.batched
... def total(words):
...     return sum(w * 2 for w in words)
>>> total([[1, 2], [3]]).tolist()
[6, 6]
"""

from autobatch.api import Batched, batched
from autobatch.arguments import stacked
from autobatch.batch import Batch
from autobatch.blueprints import Objects
from autobatch.cache import CacheInfo
from autobatch.compiled import lower
from autobatch.derivatives import grad, hvp, jvp, per_example_grad, value_and_grad, vjp
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
from autobatch.exported import Exported, load_exported
from autobatch.grouped import load, pack
from autobatch.host_memory import keep_memory
from autobatch.loader import Loader
from autobatch.objects import unbatch
from autobatch.options import options
from autobatch.plain import disable
from autobatch.results import Failures
from autobatch.runtime.ragged import Ragged
from autobatch.sparse_rows import SparseRows, apply_updates
from autobatch.sparse_updates import sparse

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
