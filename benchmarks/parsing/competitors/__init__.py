"""One script for each competitor, and what all of them compute in `workload.py`."""
