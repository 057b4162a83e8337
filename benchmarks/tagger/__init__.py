"""Speed of a BiLSTM tagger that spells rare words, beside DyNet; see `benchmarks/README.md`."""
