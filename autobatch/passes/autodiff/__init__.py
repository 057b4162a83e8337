"""Derivatives: a schedule -> the schedule of its adjoint."""

from autobatch.passes.adjoint import Adjoint, RowCotangents, differentiate
from autobatch.passes.autodiff.rules import Policy

__all__ = ["Adjoint", "Policy", "RowCotangents", "differentiate"]
