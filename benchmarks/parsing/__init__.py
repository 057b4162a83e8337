"""Speed of a shift-reduce parser whose scores decide, beside DyNet; see `benchmarks/README.md`."""
