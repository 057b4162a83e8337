"""Speed of random graphs of layers, whose results are shared, beside PyTorch and DyNet; see `benchmarks/README.md`."""
