"""Programs that keep what they compute in dicts: charts, memos, graphs. Each checks itself against plain Python."""
