"""What the competitors of all workloads share: the protocol, how a workload is drawn, and how a library starts.

Competitors run in interpreters of their own, from Python 3.8 on:
`python -m benchmarks.WORKLOAD.competitors.SCRIPT FILE [FORM]`.
"""
