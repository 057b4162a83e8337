"""Derivatives: a schedule -> the schedule of its adjoint (FRAMES.md, section 3)."""

from autobatch.autodiff.adjoint import Adjoint, Rows, differentiate

__all__ = ["Adjoint", "Rows", "differentiate"]
