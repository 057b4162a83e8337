"""What a competitor in a process of its own answers. `python with_NAME.py FOLDER` reads what goes into a kernel from
FOLDER/KERNEL.npz and writes what comes out to FOLDER/KERNEL.NAME.npz; each line "KERNEL REPEATS" of its standard input
is answered with the seconds of processor time that one run takes, or with why there is none. The first answer has
compiling in it.
"""

import sys
import time

import numpy as np

ANSWERS = sys.stdout
sys.stdout = sys.stderr  # of what competitors print themselves


def read(file, kind):
    return [file[f"{kind}{k}"] for k in range(sum(key.startswith(kind) for key in file))]


def serve(peer, prepare):
    """`prepare(name, given, made)` gives a function that runs a kernel once and returns its results; `made`: arrays
    like these. None: the competitor has no such kernel."""
    folder, held = sys.argv[1], {}
    for line in sys.stdin:
        name, repeats = line.split()
        if name not in held:
            with np.load(f"{folder}/{name.removesuffix('.gradient')}.npz") as file:
                given, made = read(file, "in"), read(file, "out")
            held[name] = prepare(name, given, made)
            if held[name] is None:
                print(f"missing: {peer} has no such kernel", file=ANSWERS, flush=True)
                continue
            start = time.process_time()
            try:
                found = held[name]()
            except Exception as error:  # whatever a competitor refuses
                print(f"missing: {' '.join(str(error).split())}", file=ANSWERS, flush=True)
                continue
            taken = time.process_time() - start
            np.savez(f"{folder}/{name}.{peer}.npz", **{f"out{k}": np.asarray(x) for k, x in enumerate(found)})
        else:
            start = time.process_time()
            for _ in range(int(repeats)):
                held[name]()
            taken = (time.process_time() - start) / int(repeats)
        print(taken, file=ANSWERS, flush=True)
