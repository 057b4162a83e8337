"""Derivatives are compared with those of plain Python: 64 bits, narrow windows, few optimisations."""

from tests.properties.conftest import sharp  # noqa: F401
