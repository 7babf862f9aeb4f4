"""The results as tables: in a terminal, and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import cuda_parts, ray_sizing, waiting_parts, world_parts, xla_parts
from benchmarks.cells import (
    MISSING,
    Results,
    Row,
    Table,
    by_row,
    envpool,
    number,
    percent,
    rate,
    three_digits,
    time_of,
    times,
)
from benchmarks.python_envs import ENV_NAMES, LABELS, POOLS

Column = tuple[str, Callable[[Row], str]]


def all_tables(results: Results, parts: Sequence[str]) -> Iterator[Table]:
    """The tables of the parts that have results, in reading order."""
    for part, make in TABLES.values():
        if part in parts and results["parts"].get(part) and (table := make(results)).rows:
            yield table


# ---- columns ---------------------------------------------------------------------------------------


def rate_of(name: str, heading: str = "") -> Column:
    return heading or name, lambda row: rate(row.get(name))


def faster_than(other: str) -> Column:
    return "stepmill is faster", lambda row: times(row, other)


def reaches(loops: str) -> Column:
    return "stepmill reaches", lambda row: percent(row, "stepmill", loops)


def cpu_time_of(name: str, heading: str = "") -> Column:
    return heading or name, lambda row: f"{row[name]['cpu_us']:,.0f} µs" if name in row else ""


def seconds_of(name: str, heading: str) -> Column:
    return heading, lambda row: f"{row[name]['seconds']:.3f} s"


SYNC_ENV = rate_of("gymnasium", "Gymnasium SyncVectorEnv")
ASYNC_ENV = rate_of("gymnasium_async", "Gymnasium AsyncVectorEnv")
MEETING = rate_of("meeting", "C++ loops that meet after each step")
FREE = rate_of("free", "C++ loops that never meet")


def _envpool_of(results: Results, part: str) -> list[Column]:
    return [rate_of("envpool", envpool(results, part)), faster_than("envpool")]


def _searched_envpool_of(results: Results, part: str) -> list[Column]:
    """With the number of threads that was best for it."""
    speed, faster = _envpool_of(results, part)
    threads = "with its best number of threads", lambda row: str(row.get("envpool", {}).get("num_threads", MISSING))
    return [speed, threads, faster]


# ---- native envs -----------------------------------------------------------------------------------


def sync(results: Results) -> Table:
    columns = rate_of("stepmill"), *_searched_envpool_of(results, "sync"), SYNC_ENV, faster_than("gymnasium")
    title = "CartPole-v1, all envs in each step, steps per second"
    return by_row(title, results["parts"]["sync"], ("CartPoles", _count), *columns)


def sizes(results: Results) -> Table:
    """One row, a column per number of envs."""
    rows = results["parts"]["sync"]
    cells = [("steps per second", *(rate(row["stepmill"]) for row in rows))]
    return Table("CartPole-v1, steps per second", ("CartPoles", *map(_count, rows)), cells)


def async_(results: Results) -> Table:
    columns = rate_of("stepmill"), *_searched_envpool_of(results, "async")
    title = "CartPole-v1, those that are done first, steps per second"
    return by_row(title, results["parts"]["async"], ("CartPoles", _count_at_a_time), *columns)


def sync_limits(results: Results) -> Table:
    title = "CartPole-v1, all envs in each step, beside plain C++ loops on all cores, steps per second"
    return _limits(title, results["parts"]["sync"], _count)


def async_limits(results: Results) -> Table:
    title = "CartPole-v1, async, beside plain C++ loops on all cores, steps per second"
    return _limits(title, results["parts"]["async"], _count_at_a_time)


def _limits(title: str, part: Sequence[Row], name: Callable[[Row], str]) -> Table:
    """What plain loops over the same envs do on all cores: the upper limit."""
    rows = [row for row in part if "meeting" in row]
    return by_row(
        title, rows, ("CartPoles", name), rate_of("stepmill"), MEETING, reaches("meeting"), FREE, reaches("free")
    )


def envs(results: Results) -> Table:
    title = "The other native envs, 1,024 of each, all in each step, steps per second"
    columns = rate_of("stepmill"), *_envpool_of(results, "envs")
    return by_row(title, results["parts"]["envs"], ("1,024 of", lambda row: row["env"]), *columns)


def own_envs(results: Results) -> Table:
    share = "of the C++ class", lambda row: f"{row['share']:.0%}" if "share" in row else ""
    columns = (
        rate_of("c++", "a C++ class"),
        rate_of("c", "C"),
        rate_of("rust", "Rust"),
        rate_of("numba", "stepmill.jit"),
        share,
        SYNC_ENV,
    )
    title = "An env of one's own, 1,024 of each, steps per second"
    return by_row(title, results["parts"]["own-envs"], ("1,024 of", lambda row: row["env"]), *columns)


def mujoco(results: Results) -> Table:
    columns = rate_of("stepmill"), *_envpool_of(results, "mujoco"), SYNC_ENV, ASYNC_ENV
    return by_row("MuJoCo tasks, steps per second", results["parts"]["mujoco"], ("", _name_of), *columns)


def mujoco_limits(results: Results) -> Table:
    rows = [row for row in results["parts"]["mujoco"] if "free" in row]
    batch = rate_of("mujoco_batch", "`mujoco.batch`, physics alone"), reaches("mujoco_batch")
    columns = rate_of("stepmill"), MEETING, reaches("meeting"), FREE, reaches("free"), *batch
    return by_row("MuJoCo tasks beside what the machine can do, steps per second", rows, ("", _name_of), *columns)


def mujoco_memory(results: Results) -> Table:
    labels = {
        "stepmill": "stepmill",
        "envpool": envpool(results, "mujoco-memory"),
        "gymnasium": "Gymnasium SyncVectorEnv",
    }
    return by_row(
        "Resident memory of 1,024 Ant-v5",
        results["parts"]["mujoco-memory"],
        ("", lambda row: labels[row["name"]]),
        ("1,024 Ant-v5", lambda row: f"{row['bytes'] / 1e6:,.0f} MB"),
        ("per env", lambda row: f"{row['bytes'] / row['num_envs'] / 1e3:,.0f} kB"),
    )


def saving(results: Results) -> Table:
    def cost(name: str) -> Callable[[Row], str]:
        return lambda row: _call_time(row, 1e6 / row[name]["steps_per_s"]) if name in row else ""

    return by_row(
        "Saved states, time of the calls for all envs",
        results["parts"]["saving"],
        ("", lambda row: f"{row['what']}, {_count(row)} {row['env']}, {row['backend']}"),
        ("stepmill", cost("stepmill")),
        ("goal", lambda row: _call_time(row, row["goal_us"])),
        ("the simulator's own calls, from Python", cost("simulator")),
    )


def _call_time(row: Row, per_env: float) -> str:
    return f"{per_env * row['num_envs']:,.0f} µs"


def forked_states(results: Results) -> Table:
    return by_row(
        "States by fork, of one env in a worker process",
        results["parts"]["forked-states"],
        ("it has", lambda row: row["holds"]),
        ("save", lambda row: f"{row['save_s'] * 1e3:,.1f} ms"),
        ("os.fork in its process", lambda row: f"{row['fork_s'] * 1e3:,.1f} ms"),
        ("memory of the copy alone, right after", lambda row: f"{row['private_bytes'] / 1e6:,.1f} MB"),
        ("restore", lambda row: f"{row['restore_s'] * 1e3:,.1f} ms"),
    )


def atari(results: Results) -> Table:
    columns = (
        *(rate_of("stepmill"), *_envpool_of(results, "atari"), rate_of("ale", "ALE's vector env"), faster_than("ale")),
        *(ASYNC_ENV, rate_of("meeting", "Python loops that meet after each step"), reaches("meeting")),
    )
    return by_row("Atari games, steps per second", results["parts"]["atari"], ("", _name_of), *columns)


def atari_cost(results: Results) -> Table:
    columns = (
        *(
            cpu_time_of("meeting", "plain loops"),
            cpu_time_of("stepmill"),
            cpu_time_of("envpool", envpool(results, "atari")),
        ),
        *(cpu_time_of("ale", "ALE's vector env"), cpu_time_of("gymnasium_async", "Gymnasium AsyncVectorEnv")),
    )
    return by_row("CPU time of one step of one game", results["parts"]["atari"], ("", _name_of), *columns)


def atari_start(results: Results) -> Table:
    names = {"stepmill": "stepmill", "envpool": envpool(results, "atari-start"), "ale": "ALE's vector env"}
    part = results["parts"]["atari-start"]
    rows = [(label, f"{part[name]['seconds']:.1f} s") for name, label in names.items() if name in part]
    return Table("From the first import to the first batch of 64 Pong-v5", ("", "seconds"), rows)


def doom(results: Results) -> Table:
    return _families("doom", "ViZDoom, steps per second", results)


def doom_cost(results: Results) -> Table:
    return _families_cost("doom", "CPU time of one step of one game", results)


def game_steps(results: Results) -> Table:
    rows = [
        (game, part, f"{us:,.1f} µs" if us < 1e4 else f"{us / 1e6:.2f} s")
        for game, parts in results["parts"]["game-steps"].items()
        for part, us in parts.items()
    ]
    return Table("CPU time of the parts of one step", ("", "part", "CPU time"), rows)


def families(results: Results) -> Table:
    return _families("families", "Envs of other packages, steps per second", results)


def families_cost(results: Results) -> Table:
    return _families_cost("families", "CPU time of one step of one env", results)


def _families(part: str, title: str, results: Results) -> Table:
    rows = results["parts"][part]
    theirs = _envpool_of(results, part) if any("envpool" in row for row in rows) else []

    def most(row: Row) -> float:
        return float(row["cores"] * row["loop"]["steps_per_s"])

    return by_row(
        title,
        rows,
        ("", _count_of),
        *(rate_of("stepmill"), ASYNC_ENV, faster_than("gymnasium_async"), *theirs),
        ("one plain loop, times the cores", lambda row: number(most(row))),
        ("stepmill reaches", lambda row: f"{row['stepmill']['steps_per_s'] / most(row):.0%}"),
    )


def _families_cost(part: str, title: str, results: Results) -> Table:
    """What a step costs, and how many steps the cores could do if they did nothing but the loop's work."""

    def most(row: Row) -> float:
        return float(row["cores"] / row["loop"]["cpu_us"] * 1e6)

    return by_row(
        title,
        results["parts"][part],
        ("", _count_of),
        *(cpu_time_of("loop", "a plain loop"), cpu_time_of("stepmill")),
        cpu_time_of("gymnasium_async", "Gymnasium AsyncVectorEnv"),
        ("steps per second if all cores did the loop's work", lambda row: number(most(row))),
        ("stepmill reaches", lambda row: f"{row['stepmill']['steps_per_s'] / most(row):.0%}"),
    )


def sb3(results: Results) -> Table:
    columns = (
        *(rate_of("stepmill"), rate_of("dummy", "DummyVecEnv"), faster_than("dummy")),
        *(rate_of("subproc", "SubprocVecEnv"), faster_than("subproc")),
    )
    title = "Stable-Baselines3's VecEnv without a policy, steps per second"
    return by_row(title, results["parts"]["sb3"], ("", _count_of), *columns)


def sb3_training(results: Results) -> Table:
    names = {"stepmill": "stepmill", "dummy": "DummyVecEnv", "subproc": "SubprocVecEnv"}
    columns = [column for name, label in names.items() for column in _training_of(name, label)]
    return by_row(
        "PPO of Stable-Baselines3, time per step of one env", results["parts"]["sb3"], ("", _count_of), *columns
    )


def _training_of(name: str, label: str) -> tuple[Column, Column]:
    def inside(row: Row) -> str:
        whole, part = row[name]["training_us"], row[name]["training_env_us"]
        return f"{time_of(part * 1e3)} ({part / whole:.0%})"

    return (label, lambda row: time_of(row[name]["training_us"] * 1e3)), ("of it in envs", inside)


def training(results: Results) -> Table:
    """The last column: what the whole training gains over the better of Gymnasium's two."""
    names = {"stepmill": "stepmill", "gymnasium": "SyncVectorEnv", "gymnasium_async": "AsyncVectorEnv"}

    def share_of(name: str) -> Column:
        return "of the time in envs", lambda row: f"{row[name]['env_share']:.0%}"

    def faster(row: Row) -> str:
        best = max(row[name]["steps_per_s"] for name in ("gymnasium", "gymnasium_async"))
        return f"{three_digits(row['stepmill']['steps_per_s'] / best)}x"

    return by_row(
        "PPO (examples/ppo.py), steps per second of the whole training",
        results["parts"]["training"],
        ("", lambda row: _count_of(row) + ("" if row["device"] == "cpu" else ", on the GPU")),
        *(column for name, label in names.items() for column in (rate_of(name, label), share_of(name))),
        ("stepmill trains faster than the better one", faster),
    )


def overhead(results: Results) -> Table:
    part = results["parts"]["overhead"]
    rows = []
    for name, label in NAMES.items():
        if name in part:
            above = part[name].get("above_env_ns")
            rows.append((label, time_of(part[name]["step_ns"]), time_of(part.get("env_ns")), time_of(above)))
    columns = ("", "one call of step", "of it the env itself", "of it the library")
    return Table("One CartPole-v1, one step", columns, rows)


def latency(results: Results) -> Table:
    rows = []
    for row in results["parts"]["latency"]:
        for name, label in NAMES.items():
            if name in row:
                cells = (time_of(row[name][p]) for p in ("p50", "p90", "p99", "p99.9"))
                rows.append((f"{row['num_envs']:,}, {label}", *cells))
    columns = ("CartPoles", "half of the calls take at most", "90 %", "99 %", "99.9 %")
    return Table("CartPole-v1, time of one call of step", columns, rows)


def torch_output(results: Results) -> Table:
    rows = []
    for row in results["parts"]["torch-output"]:
        times = (time_of(row.get(name, {}).get(key)) for name in ("torch", "jax") for key in ("step_ns", "tensor_ns"))
        rows.append((f"{row['num_envs']:,} {row['env']}", time_of(row["numpy"]["step_ns"]), *times))
    columns = ("envs", "numpy: one step", "torch: one step", "added per tensor", "JAX: one step", "added per array")
    return Table("The same step with arrays and with tensors", columns, rows)


def gpu_copies(results: Results) -> Table:
    rows = [
        (
            f"{row['batch_size']} of {row['num_envs']}: {row['env']}",
            *(time_of(row[name]["batch_ns"]) for name in ("steps", "copies", "both")),
            f"{row['over_slower']:.2f}",
            time_of(row["by_hand"]["batch_ns"]),
        )
        for row in results["parts"]["gpu-copies"]
    ]
    columns = ("one batch", "steps alone", "copy alone", "device='cuda'", "times the slower", "obs.to('cuda') by hand")
    gpus = sorted({row["gpu"] for row in results["parts"]["gpu-copies"]})
    return Table(f"A batch of frames that goes to a GPU ({', '.join(gpus)})", columns, rows)


def scaling(results: Results) -> Table:
    part = results["parts"]["scaling"]
    sizes = sorted({row["num_envs"] for row in part})
    rows = []
    for name, label in NAMES.items():
        for count in sorted({row["num_threads"] for row in part}):
            cells = []
            for size in sizes:
                found = [row for row in part if row["num_envs"] == size and row["num_threads"] == count]
                cells.append(rate(found[0].get(name)) if found else "")
            if any(cell not in ("", MISSING) for cell in cells):
                rows.append((f"{label}, {count} thread{'s' * (count > 1)}", *cells))
    columns = ("", *(f"{size:,} CartPoles" for size in sizes))
    return Table("CartPole-v1, by number of threads, steps per second", columns, rows)


def bare(results: Results) -> Table:
    rows = [
        (f"{row['num_envs']:,}", time_of(row["env_ns"]), number(1e9 / row["env_ns"]))
        for row in results["parts"]["bare"]
    ]
    columns = ("CartPoles", "one step of one of them", "steps per second")
    return Table("CartPole-v1 in a plain C++ loop on one core", columns, rows)


def imports(results: Results) -> Table:
    part = results["parts"]["imports"]
    rows = [(f"`import {name}`", MISSING if seconds is None else f"{seconds:.2f} s") for name, seconds in part.items()]
    return Table("Import in a fresh interpreter", ("", "takes"), rows)


# ---- Python envs -----------------------------------------------------------------------------------


def python(results: Results) -> Table:
    """One row per contestant, then how stepmill's default compares with them."""
    part = results["parts"]["python"]
    rows = [(LABELS[name], *(rate(row.get(name)) for row in part)) for name in POOLS if _any(part, name)]
    if any(row.get("auto", {}).get("backend") for row in part):
        rows.append(("stepmill's default chose", *(row.get("auto", {}).get("backend") or MISSING for row in part)))
    for key, label in PYTHON_RATIOS.items():
        if _any(part, key):
            shown = [row.get(key) for row in part]
            rows.append((label, *(MISSING if x is None else _ratio_or_share(key, x) for x in shown)))
    return Table("Python envs, steps per second", ("", *map(_case, part)), rows)


def python_limits(results: Results) -> Table:
    """The same envs in plain loops: on all cores; those that meet next to sync, those that never meet next to async."""
    part = [row for row in results["parts"]["python"] if "meeting" in row]
    rows: list[tuple[str, ...]] = []
    title = "Python envs beside plain loops over the same envs, steps per second"
    if not part:
        return Table(title, (), rows)
    for pool, label, loops in (("auto", "stepmill, sync", "meeting"), ("async", "stepmill, async", "free")):
        rows.append((label, *(rate(row.get(pool)) for row in part)))
        rows.append((LABELS[loops], *(rate(row.get(loops)) for row in part)))
        rows.append(("stepmill reaches", *(percent(row, pool, loops) for row in part)))
    rows.append((LABELS["bare"], *(rate(row.get("bare")) for row in part)))
    return Table(title, ("", *map(_case, part)), rows)


def python_start(results: Results) -> Table:
    part = results["parts"]["python-start"]
    rows = [(LABELS[name], f"{part[name]['seconds']:.2f} s") for name in POOLS if name in part]
    columns = ("", "from the first import to the first batch")
    return Table("64 Python CartPoles, start-up", columns, rows)


def start(results: Results) -> Table:
    columns = (
        *(seconds_of("cold", "stepmill, cold"), seconds_of("warm", "stepmill, warm")),
        seconds_of("gymnasium_async", LABELS["gymnasium_async"]),
    )
    title = "Python CartPoles in processes, from make to the first observations"
    return by_row(title, results["parts"]["start"], ("CartPoles", _count), *columns)


def python_memory(results: Results) -> Table:
    part = results["parts"]["python-memory"]
    rows = [
        (LABELS[name], f"{part[name]['bytes'] / 1e6:,.0f} MB", str(part[name]["processes"]))
        for name in POOLS
        if name in part
    ]
    columns = ("", "memory of all processes", "processes")
    return Table("64 Python CartPoles, memory", columns, rows)


def python_async(results: Results) -> Table:
    rows = [
        (
            LABELS[row["name"]],
            rate(row["even"]),
            rate(row["work"]),
            f"{row['work_of_even']:.0%}",
            rate(row["wait"]),
            f"{row['wait_of_even']:.0%}",
        )
        for row in results["parts"]["python-async"]
    ]
    columns = ("", "all alike", "one works 20x longer", "speed kept", "one sleeps 20x longer", "speed kept")
    title = "64 Python envs of 100 µs, the first 32 that are done, steps per second"
    return Table(title, columns, rows)


def uneven(results: Results) -> Table:
    part = results["parts"]["uneven"]
    rows = [
        (
            f"{row['name']}, workers: {row['workers']}, the slow env {row['slow_one']}",
            *(three_digits(steps / row["seconds"]) for steps in row["steps"]),
        )
        for row in part
    ]
    columns = ("", "slow env: 50 ms a step", "its neighbour: 0.5 ms", "third env: 0.5 ms", "fourth env: 0.5 ms")
    return Table("Four Python envs, one of them 100 times slower, steps per second of each", columns, rows)


def managers(results: Results) -> Table:
    part = results["parts"]["managers"]
    rows = []
    for pool, name in MANAGER_POOLS.items():
        rows.append((f'bare pool, backend="{pool}"', *(rate(row[f"pool_{pool}"]) for row in part)))
        rows.append((MANAGER_LABELS[name], *(rate(row[name]) for row in part)))
        rows.append(("a step takes longer by", *(time_of(row["above_pool_ns"][name]) for row in part)))
    rows.append((MANAGER_LABELS["async_subprocess"], *(rate(row["async_subprocess"]) for row in part)))
    columns = ("", *(row["case"] for row in part))
    return Table("Env managers and the pools inside them, steps per second", columns, rows)


def ding(results: Results) -> Table:
    part = results["parts"]["ding"]
    rows = []
    for name in DING_MANAGERS:
        rows.append((f"DI-engine's {name}", *(rate(case[name]) for case in part.values())))
        rows.append((f"stepmill_{name}", *(rate(case[f"stepmill_{name}"]) for case in part.values())))
        rows.append(("is faster", *(f"{three_digits(case['ratio'][name])}x" for case in part.values())))
    serial = [case["stepmill_subprocess"]["steps_per_s"] / case["base"]["steps_per_s"] for case in part.values()]
    rows.append(("stepmill_subprocess over DI-engine's base", *(f"{three_digits(ratio)}x" for ratio in serial)))
    for pool, name in MANAGER_POOLS.items():
        rows.append((f'our bare pool, backend="{pool}"', *(rate(case[f"pool_{pool}"]) for case in part.values())))
        longer = (time_of(case["above_pool_ns"][name]) for case in part.values())
        rows.append((f"a step of stepmill_{name} takes longer by", *longer))
    title = "Env managers, ours beside DI-engine's of the same name, steps per second"
    return Table(title, ("", *part), rows)


# By name: the part that it shows, and the function that makes it.
TABLES: dict[str, tuple[str, Callable[[Results], Table]]] = {
    "sync": ("sync", sync),
    "sync-limits": ("sync", sync_limits),
    "sizes": ("sync", sizes),
    "async": ("async", async_),
    "async-limits": ("async", async_limits),
    "envs": ("envs", envs),
    "own-envs": ("own-envs", own_envs),
    "mujoco": ("mujoco", mujoco),
    "mujoco-limits": ("mujoco", mujoco_limits),
    "mujoco-memory": ("mujoco-memory", mujoco_memory),
    "saving": ("saving", saving),
    "atari": ("atari", atari),
    "atari-cost": ("atari", atari_cost),
    "atari-start": ("atari-start", atari_start),
    "doom": ("doom", doom),
    "doom-cost": ("doom", doom_cost),
    "game-steps": ("game-steps", game_steps),
    "families": ("families", families),
    "families-cost": ("families", families_cost),
    "overhead": ("overhead", overhead),
    "latency": ("latency", latency),
    "torch-output": ("torch-output", torch_output),
    "gpu-copies": ("gpu-copies", gpu_copies),
    "scaling": ("scaling", scaling),
    "bare": ("bare", bare),
    "imports": ("imports", imports),
    "python": ("python", python),
    "python-limits": ("python", python_limits),
    "python-start": ("python-start", python_start),
    "start": ("start", start),
    "forked-states": ("forked-states", forked_states),
    "python-memory": ("python-memory", python_memory),
    "python-async": ("python-async", python_async),
    "managers": ("managers", managers),
    "uneven": ("uneven", uneven),
    "waiting": ("waiting", waiting_parts.waiting_table),
    "sessions": ("sessions", waiting_parts.sessions_table),
    "xla": ("xla", xla_parts.xla_table),
    "worlds": ("worlds", world_parts.worlds_table),
    "cuda": ("cuda", cuda_parts.cuda_table),
    "sb3": ("sb3", sb3),
    "sb3-training": ("sb3", sb3_training),
    "training": ("training", training),
    "ding": ("ding", ding),
    "ray": ("ray", ray_sizing.ray),
    "ray-calls": ("ray-sizing", ray_sizing.ray_calls),
    "ray-costs": ("ray-sizing", ray_sizing.ray_costs),
    "ray-sizing": ("ray-sizing", ray_sizing.sizing),
    "ray-check": ("ray-sizing", ray_sizing.ray_check),
}

# What stepmill reaches with its defaults, relative to others.
PYTHON_RATIOS = {
    "over_async": "default over Gymnasium AsyncVectorEnv",
    "over_parallel": "default over the best of others that use processes",
    "over_best": "default over the best of others",
    "of_better": "default, of the better of its two backends",
}
DING_MANAGERS = ("base", "subprocess", "async_subprocess", "base_v2", "subprocess_v2")
MANAGER_POOLS = {"inline": "base", "process": "subprocess"}  # by the manager that has such a pool inside
MANAGER_LABELS = {
    "base": "BaseEnvManager",
    "subprocess": "SyncSubprocessEnvManager",
    "async_subprocess": "SubprocessEnvManager (async)",
}
NAMES = {"stepmill": "stepmill", "envpool": "EnvPool"}


def _ratio_or_share(key: str, value: float) -> str:
    return f"{value:.0%}" if key.startswith("of_") else f"{three_digits(value)}x"


def _any(part: Sequence[dict[str, Any]], key: str) -> bool:
    return any(key in row for row in part)


def _case(row: dict[str, Any]) -> str:
    return f"{row['num_envs']} x {ENV_NAMES[row['env']]}"


def _count(row: Row) -> str:
    return f"{row['num_envs']:,}"


def _count_at_a_time(row: Row) -> str:
    return f"{row['num_envs']:,}, {row['batch_size']:,} at a time"


def _count_of(row: Row) -> str:
    return f"{row['num_envs']} {row['env']}"


def _name_of(row: Row) -> str:
    return _count_of(row) + (f", {row['batch_size']} at a time" if row["batch_size"] != row["num_envs"] else "")
