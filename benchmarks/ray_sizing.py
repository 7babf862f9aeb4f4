"""``python -m benchmarks.ray_sizing``: what a cluster would give, computed from what was measured on one machine.

``python -m benchmarks --parts ray-sizing`` measures the costs (``ray_costs.py``) and prints the same tables;
this command computes them again for another network or other numbers of nodes.

The calculation. A node has one actor with E envs, which steps r of them per second by itself. A request carries m
rows of b bytes each. It takes a time, call, and some of the driver's thread: d for the request and w for each row. The
network brings B bytes per second to the driver.

- Step and rollout: all nodes work, then their answers come one after another. With m = E, or E times the steps of the
  rollout, a round of n nodes takes::

      call - d + m / r + n * max(d + m * w, m * b / B)

  For a rollout, call is that of a bare call which brings its arrays: it has no d to take off.

- Async, with batches of at most half of the envs: an actor has two requests of m = E / 2 rows and works on one while
  the answer to the other travels. The slowest part decides::

      min(n * m / (call2 + m / r),  m / (d + m * w),  B / b)      steps per second

``call`` is the time of a request for few rows of cheap envs, and how much longer a bare call of an actor takes that
carries the bytes of m rows; ``call2`` with two of them under way. Not in it are the time that your policy and your
learner take, and what Ray itself needs for many nodes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import store
from benchmarks.cells import Results, Table, number, rate, time_of

NODES = (1, 10, 100, 1000)
NETWORK_GBIT = 10.0  # of the driver's machine
ROLLOUT_STEPS = 128


@dataclass(frozen=True)
class Way:
    """One way to run envs of one kind on a cluster, with its costs."""

    rows: float  # of a request
    steps_per_s: float  # of a node by itself
    call_s: float
    driver_s: float  # of the driver's thread, for a request
    bytes: float  # of a row, both directions
    overlaps: bool  # whether nodes work while their answers travel

    def transfer_s(self, network: float) -> float:
        """How long the driver is busy with a request: its thread or its network, whichever takes longer."""
        return max(self.driver_s, self.rows * self.bytes / network)

    def rate(self, nodes: int, network: float) -> float:
        """Steps per second of ``nodes`` nodes. ``network``: bytes per second of the driver's machine."""
        alone = self.call_s + self.rows / self.steps_per_s
        if self.overlaps:
            return min(nodes * self.rows / alone, self.limit(network))
        return nodes * self.rows / (alone + nodes * self.transfer_s(network))

    def limit(self, network: float) -> float:
        """What no number of nodes exceeds."""
        return self.rows / self.transfer_s(network)

    def limited_by(self, network: float) -> str:
        return "driver" if self.driver_s >= self.rows * self.bytes / network else "network"

    def nodes_at_limit(self, network: float) -> float:
        """From how many nodes on the driver or its network, rather than the nodes, decides."""
        return self.limit(network) * (self.call_s + self.rows / self.steps_per_s) / self.rows


def ways(part: dict[str, Any], case: dict[str, Any], rollout_steps: int = ROLLOUT_STEPS) -> dict[str, Way]:
    """The three ways, by name, from what was measured: all of the part, and of one kind of env."""
    driver_call = part["driver_call_s"]
    envs = case["num_envs"]
    rows = {"step": envs, "async": envs / 2, "rollout": envs * rollout_steps}
    row_s, rollout_row_s = case["driver_row_s"], case["driver_rollout_row_s"]
    travels = case["order_bytes"] + case["answer_bytes"]
    return {
        "step": Way(
            rows["step"],
            case["steps_per_s"],
            max(case["call_s"] - driver_call, 0.0),
            driver_call + envs * row_s,
            travels,
            False,
        ),
        "async": Way(
            rows["async"], case["steps_per_s"], case["call2_s"], driver_call + envs / 2 * row_s, travels, True
        ),
        "rollout": Way(
            rows["rollout"],
            case["policy_steps_per_s"],
            case["rollout_call_s"] * rollout_steps,
            driver_call + rows["rollout"] * rollout_row_s,
            case["rollout_bytes"],
            False,
        ),
    }


def bytes_per_s(gbit: float) -> float:
    return gbit * 1e9 / 8


# ---- tables ----------------------------------------------------------------------------------------


def ray(results: Results) -> Table:
    """Pools on Ray beside what does the same without."""
    rows = [
        (
            row["case"],
            str(row["actors"]),
            rate(row["ours"]),
            f"{rate(row['other'])} ({row['others']})",
            f"{row['ratio']:.2f}",
            "" if row["goal"] is None else f"{row['goal']:g}",
        )
        for row in results["parts"]["ray"]
    ]
    columns = ("", "actors", "on Ray, steps per second", "beside it", "ratio", "goal")
    return Table("Pools on Ray, on one machine", columns, rows)


RAY_WAYS = {"step": "`step`", "async": "async", "rollout": "`rollout`"}


def ray_costs(results: Results) -> Table:
    """What was measured: the inputs of the calculation."""
    part = results["parts"]["ray-sizing"]
    rows = [
        (
            f"{case['num_envs']:,} x {case['name']}",
            number(case["steps_per_s"]),
            number(case["policy_steps_per_s"]),
            f"{case['order_bytes'] + case['answer_bytes']:,.0f}",
            time_of(1e9 * case["call_s"]),
            time_of(1e9 * case["driver_row_s"]),
            f"{case['rollout_bytes']:,.0f}",
            time_of(1e9 * case["driver_rollout_row_s"]),
        )
        for case in part["cases"]
    ]
    columns = (
        *("envs of a node", "steps per second by itself", "in rollouts", "bytes of a row"),
        *("a request for all", "driver, per row"),
        *("bytes of a row of a rollout", "driver, per row of a rollout"),
    )
    return Table("Ray: what a step costs", columns, rows)


def ray_calls(results: Results) -> Table:
    """What each request costs, whatever it carries."""
    part = results["parts"]["ray-sizing"]
    names = {
        "call_s": "a request, one by one",
        "call2_s": "with two under way, per request",
        "driver_call_s": "time of the driver's thread for a request",
    }
    rows = [(label, time_of(1e9 * part[key])) for key, label in names.items()]
    return Table("Ray: what a request costs that carries next to nothing", ("", "takes"), rows)


def sizing(results: Results, nodes: Sequence[int] = NODES, network_gbit: float = NETWORK_GBIT) -> Table:
    """Computed: what nodes like this machine would give."""
    part, network = results["parts"]["ray-sizing"], bytes_per_s(network_gbit)
    rows = []
    for case in part["cases"]:
        for name, way in ways(part, case).items():
            rates = (number(way.rate(count, network)) for count in nodes)
            limit = f"{number(way.limit(network))}, {way.limited_by(network)}"
            enough = f"{math.ceil(way.nodes_at_limit(network)):,}"
            rows.append((f"{case['name']}: {RAY_WAYS[name]}", *rates, limit, enough))
    counts = [f"{count:,} node{'s' if count != 1 else ''}" for count in nodes]
    columns = ("computed, steps per second", *counts, "limit", "reached by nodes")
    return Table("Ray: computed, steps per second", columns, rows)


def ray_check(results: Results) -> Table:
    """What the same calculation says of one actor on this machine, beside what it does there."""
    part = results["parts"]["ray-sizing"]
    rows = []
    for case in part["cases"]:
        for name, way in ways(part, case).items():
            if (measured_rate := case.get(f"ray_{name}_per_s")) is not None:
                rate_here = way.rate(1, float("inf"))
                cells = number(rate_here), number(measured_rate), f"{measured_rate / rate_here:.2f}"
                rows.append((f"{case['name']}: {RAY_WAYS[name]}", *cells))
    columns = ("one actor, on the driver's machine", "computed", "measured", "measured over computed")
    return Table("Ray: computed and measured on one machine, steps per second", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_sizing", description=__doc__.partition("\n")[0])
    parser.add_argument("--network-gbit", type=float, default=NETWORK_GBIT, help="of the driver (%(default)g)")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), help="how many, by comma (%(default)s)")
    options = parser.parse_args(arguments)
    found = False
    for results in store.load_all():
        if not results["parts"].get("ray-sizing"):
            continue
        found = True
        nodes = [int(count) for count in options.nodes.split(",")]
        print(f"nodes as {results['machine']['machine']}, {options.network_gbit:g} Gbit/s at the driver\n")
        print(sizing(results, nodes, options.network_gbit).markdown(), end="\n\n")
    if not found:
        print("nothing was measured yet: python -m benchmarks --parts ray-sizing", file=sys.stderr)
    return 0 if found else 2


if __name__ == "__main__":
    sys.exit(main())
