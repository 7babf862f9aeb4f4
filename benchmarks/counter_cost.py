"""``python -m benchmarks.counter_cost``: what the counters that ``stepmill top`` reads add to each call.

Where valgrind is installed, also the instructions of each call, which do not depend on what else the machine does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile

from benchmarks.bare import counter_program

LIMIT_NS = 30.0


def main() -> int:
    program = counter_program()
    if program is None:
        print("no C++ compiler: nothing was measured", file=sys.stderr)
        return 2
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    costs = {name: float(ns) for name, ns in (line.split("\t") for line in lines)}
    for name, ns in costs.items():
        print(f"{name:16} {ns:5.1f} ns")
    if (counted := instructions(program)) is not None:
        print(f"all four together: {counted:.0f} instructions")
    within = max(costs.values()) <= LIMIT_NS
    print(f"{'within' if within else 'MORE THAN'} the {LIMIT_NS:.0f} ns that a call may cost more")
    return 0 if within else 1


def instructions(program: str) -> float | None:
    """The instructions of one call of each kind, by the difference of two runs; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    totals = []
    for calls in (1_000, 11_000):
        with tempfile.TemporaryDirectory() as folder:
            command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, str(calls)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        found = re.search(r"Collected : (\d+)", said)
        if found is None:
            return None
        totals.append(int(found[1]))
    rounds = 9
    return (totals[1] - totals[0]) / (10_000 * rounds)


if __name__ == "__main__":
    sys.exit(main())
