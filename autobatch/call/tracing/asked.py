"""Questions for the values of symbols, which have none."""

import jax

ASKED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
         jax.errors.TracerBoolConversionError, jax.errors.TracerIntegerConversionError)  # fmt: skip
"""What JAX raises where Python asks for the value of what is traced."""


class AskedError(TypeError):
    """Python has asked a symbol for its value."""
