"""Programs that keep what they have computed in dicts: charts, memos, graphs. Each checks itself against plain Python."""
