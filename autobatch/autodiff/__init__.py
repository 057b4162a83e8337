"""Derivatives: a schedule -> the schedule of its adjoint (FRAMES.md, section 3)."""

from autobatch.autodiff.adjoint import Adjoint, differentiate

__all__ = ["Adjoint", "differentiate"]
