"""Programs over language, each written for one sentence. Each checks itself against plain Python."""
