"""Derivatives: a schedule -> the schedule of its adjoint (FRAMES.md, section 3)."""

from autobatch.passes.autodiff.adjoint import Adjoint, RowCotangents, differentiate
from autobatch.passes.autodiff.rules import Policy

__all__ = ["Adjoint", "Policy", "RowCotangents", "differentiate"]
