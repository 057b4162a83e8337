"""Elements of a list that nothing is ever put into come from nowhere: the plan of a batch had no place for that."""

import autobatch as ab


@ab.batched(in_axes=(None, 0))
def main(p, t):
    rows = [[] for _ in range(2)]
    for _ in range(2):
        if p["w"] * t.x > 0.1037:
            rows.append([0.5])
    return sum([sum(r) for r in rows])
