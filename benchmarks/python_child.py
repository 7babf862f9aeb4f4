"""The process of one contestant: ``python -m benchmarks.python_child NAME CASE`` (a JSON object).

It prints a line of JSON when it has its first batch, and one for each line that it reads: ``rate SECONDS``, or
``memory CALLS``. It ends when its input does. ``python_host`` is the other side.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from types import ModuleType
from typing import Any


def main(name: str, case: dict[str, Any]) -> None:
    start = time.perf_counter()  # what the contestant needs is imported from here on
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import gymnasium

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    from benchmarks.python_envs import OURS, Case

    if name not in OURS:
        leave_out_stepmill()
    from benchmarks.python_contestants import build

    contestant = build(name, Case(**case))
    print(json.dumps({"start_s": time.perf_counter() - start}), file=answers)
    for line in sys.stdin:
        question, number = line.split()
        if question == "rate":
            from stepmill.tools.measuring.runners import steps_per_second  # not before: it is none of the contestant's

            rate = steps_per_second(contestant, float(number))
            answer = {"rate": rate, "backend": getattr(contestant.envs, "backend", None)}
        else:
            contestant.run(int(number))
            answer = {"memory": memory()}
        print(json.dumps(answer), file=answers)
    contestant.close()


def leave_out_stepmill() -> None:
    """Lets ``stepmill.tools.measuring`` be imported without the package around it: the others would pay for it."""
    package = importlib.util.find_spec("stepmill")  # finds it, and imports nothing
    if package is None:
        raise ModuleNotFoundError("stepmill is not installed: pip install .", name="stepmill")
    bare = ModuleType("stepmill")
    bare.__path__ = list(package.submodule_search_locations or ())
    sys.modules["stepmill"] = bare


def memory() -> dict[str, Any] | None:
    """The proportional set sizes of this session's processes, added up; None if the system does not say."""
    total = count = 0
    for pid in _family():
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except ProcessLookupError:
            continue  # it ended meanwhile
        except OSError:
            return None
        count += 1
    return {"bytes": total * 1024, "processes": count}


def _family() -> list[int]:
    """The process itself, all of its session, and all descendants."""
    parents = {}
    family = {os.getpid()}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                # After the name, which may hold anything: state, parent, group, session.
                _, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        parents[int(entry)] = int(parent)
        if int(session) == os.getsid(0):
            family.add(int(entry))
    for pid in parents:
        line = [pid]
        while line[-1] in parents and line[-1] not in family:
            line.append(parents[line[-1]])
        if line[-1] in family:
            family.update(line)
    return sorted(family)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
