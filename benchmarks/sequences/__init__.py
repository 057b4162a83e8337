"""Speed of an LSTM tagger over sentences of any length beside PyTorch and DyNet; see `benchmarks/README.md`."""
