"""Control that depends on computed numbers, against what one writes by hand in JAX."""
