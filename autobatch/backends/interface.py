"""The protocol that every back end fulfils.

    source -> accepts -> what it compiles, or Declined and why
    work, load -> cost -> Cost
    what it accepted -> compile -> code -> run, gradient

Two forms of a function are compiled. A `WholeFunction` takes the numbers of one example and holds its control flow: its
code is given arrays of all rows (`llvm`, `cuda`). `RowEquations` are equations over rows, in the order in which they
run: the host plans which rows there are, and their code is given tables of integers too (`interpret`, `xla`).
`choice.py` has the table of all back ends, and decides between them by what they say of their costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from autobatch.data.columns import ColumnInput, WordInput
from autobatch.data.spec import Signature, TableRequest
from autobatch.errors import SourceError
from autobatch.ir.core import Module
from autobatch.ir.system import System, Variable
from autobatch.options import Options
from autobatch.passes.fission import Schedule
from autobatch.planning.plan import DataPlan

Mode = Literal["reverse", "reverse once", "forward"]
"""Which derivatives JAX may take of a computation: in reverse to any order; in reverse once, and of that forward;
forward. (What is differentiated in reverse by a rule of its own has no derivative forward.)"""


@dataclass(frozen=True)
class Declined:
    """A back end does not compile a function: the error says why, with the place in the source and a cure."""

    error: SourceError


@dataclass(frozen=True)
class WholeFunction:
    """The functions behind the passes that make control on computed numbers operations. `fails`: the last result of the
    entry says what an example has failed with. `inputs`: what the last shared inputs are, those that come with the
    examples."""

    module: Module
    fails: bool
    inputs: Sequence[ColumnInput | WordInput] = ()


@dataclass(frozen=True)
class RowEquations:
    """Equations over rows: as a system, and in the order in which they run. `request`: the tables that they read.
    `cut`: examples that failed have no derivative. `status`: the output that says which examples those are, where the
    reference has to leave them out."""

    system: System
    schedule: Schedule
    request: TableRequest
    constants: Sequence[Any]
    options: Options
    cut: bool = False
    status: Variable | None = None


# ---- costs


@dataclass(frozen=True)
class Work:
    """What one example computes: instructions, those of static loops as often as they run, of others once, and the
    numbers that come of them (`elements`); the multiplications of its products, those in loops that computed floats
    end apart (`inside`); and the largest array that functions of floats are applied to. `loops`: those that numbers
    end, and `decided` of them computed floats; `branches` on numbers; `own`: products of which no factor is shared by
    all examples, and sorts. `structured`: its examples are lists, objects or strings; `recursions`: on them, of which
    `following` floats choose the calls; `returned`: numbers in the result; `fails`: an example may; `dots`: how many
    products there are, those of static loops as often as they run; `own_multiplications`: of products whose
    factors each example has for itself, in loops and recursions too."""

    operations: int
    multiplications: int
    longest: int
    loops: int
    decided: int = 0
    inside: int = 0
    elements: int = 0
    branches: int = 0
    own: int = 0
    structured: bool = False
    recursions: int = 0
    following: int = 0
    returned: int = 0
    fails: bool = False
    dots: int = 0
    own_multiplications: int = 0

    @property
    def products(self) -> int:
        """The multiplications of all products."""
        return self.multiplications + self.inside

    def __str__(self) -> str:
        loops = "a loop that numbers end" if self.loops == 1 else f"{self.loops} loops that numbers end"
        words = [f"{self.operations:,} operations", loops if self.loops else ""]
        words += [f"products of {self.products:,} multiplications" if self.products else ""]
        words += [f"arrays of {self.longest:,} numbers" if self.longest > 1 else ""]
        return ", ".join(w for w in words if w)


@dataclass(frozen=True)
class Load:
    """A call whose cost is asked for: how many examples it has, whether a derivative is taken, and whether examples of
    structure are planned before (`planned`: they were packed) or in the call. `device`: where JAX computes."""

    rows: int
    derives: bool = False
    planned: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Cost:
    """Microseconds of a warm call, and seconds to compile."""

    call: float
    first: float


# ---- code


@dataclass(frozen=True)
class Placement:
    """Where code runs: `threads` of the processor, None for all; or in the order of a stream of a GPU."""

    threads: int | None = None
    stream: int | None = None


class FunctionCode(Protocol):
    """The code of a `WholeFunction`, or of its derivative. Any number of threads may run it."""

    @property
    def operands(self) -> Sequence[Any]:
        """The dtypes and shapes of what it reads."""

    @property
    def results(self) -> Sequence[Any]:
        """Those of what it computes."""

    @property
    def text(self) -> str:
        """The code, as the back end's assembler reads it."""

    def run(self, operands: Sequence[Any], rows: int, place: Placement) -> tuple[list[Any], bool]:
        """The arrays that it computes for `rows` rows, and whether one of them has failed. `operands`: arrays, or what
        becomes one."""


class FunctionProgram(FunctionCode, Protocol):
    """The code of a `WholeFunction` that has derivatives."""

    on_host: ClassVar[bool]
    """Does it read and write arrays of NumPy?"""

    @property
    def inputs(self) -> Sequence[ColumnInput | WordInput]:
        """Those of the `WholeFunction`."""

    @property
    def gradients(self) -> Mapping[tuple[int, tuple[int, ...]], FunctionCode | None]:
        """The derivatives that have been asked for."""

    def refusal(self) -> SourceError | None:
        """Why a derivative that was asked for has no code, told once."""

    @property
    def work(self) -> Work:
        """What one example computes."""

    @property
    def how(self) -> str:
        """How rows are computed, as `explain` says it."""

    def gradient(self, output: int, wrt: tuple[int, ...]) -> FunctionCode | None:
        """The derivative of result `output` with respect to the operands `wrt`, each row weighted by an operand more:
        of what varies row by row, of what is shared summed over rows. None where there is no code for it."""


class RowsProgram(Protocol):
    """The code of `RowEquations`, traceable by JAX; `tables` and `signature` are what `bind` has made of a `plan`."""

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> list[Any]:
        """The arrays that the results are made of: outputs of the system over the capacities of their spaces."""

    def gradient(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The same, and the pullback of their cotangents (of those that are floats; None for others) to shared inputs
        and columns of floats."""


Source = TypeVar("Source", contravariant=True)
Taken = TypeVar("Taken")
Code = TypeVar("Code", covariant=True)


class Backend(Protocol[Source, Taken, Code]):
    """A back end. `name` is what users ask for."""

    name: ClassVar[str]

    def accepts(self, source: Source) -> Taken | Declined:
        """What `compile` takes; or why there is no code for it."""

    def cost(self, work: Work, load: Load) -> Cost:
        """What a call costs, from constants that `python -m benchmarks.choice --fit` has measured."""

    def compile(self, taken: Taken) -> Code:
        """The code."""
