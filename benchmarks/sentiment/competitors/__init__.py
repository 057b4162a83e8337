"""One script for each competitor; they run in interpreters of their own and share `workload.py` and `worker.py`."""
