"""``python -m benchmarks``: measures, prints tables, writes JSON and plots."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console

from benchmarks import python_parts, store, tables
from benchmarks.parts import PARTS
from benchmarks.timing import Effort
from stepmill.tools.measuring import machine

IMAGES = store.ROOT / "docs" / "images"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="which, by comma (default: all of %(default)s)")
    parser.add_argument("--repeats", type=int, help="rounds of each comparison (default: 7, quick: 3)")
    parser.add_argument("--seconds", type=float, help="for each contestant in each round (default: 0.4, quick: 0.1)")
    parser.add_argument(
        "--quick", action="store_true", help="short; writes to build/benchmarks unless --output is given"
    )
    parser.add_argument("--device", default="cpu", help="of networks over pictures (training) and of JAX worlds: cuda")
    parser.add_argument("--output", type=Path, help="folder for JSON and plots (default: the project's own)")
    parser.add_argument("--profile", action="store_true", help="print where the time of one step goes, and stop")
    parser.add_argument("--plot", action="store_true", help="only draw the plots again, of all machines' JSON files")
    parser.add_argument("--write-docs", action="store_true", help="only write the figures into README and docs")
    options = parser.parse_args(arguments)
    options.parts = [part for part in options.parts.split(",") if part]
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"--parts: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    return options


def main() -> int:
    options = parse()
    # Without a terminal, tables would be cut to 80 columns.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    # Warnings about the envs of other libraries would only clutter the tables.
    warnings.simplefilter("ignore")
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    if options.profile:
        from benchmarks import profile

        profile.run(console)
        return 0
    if options.write_docs:
        return write_documents(console)
    results_folder, images_folder = folders(options)
    if options.plot:
        for path in sorted(results_folder.glob("*.json")):
            draw(console, store.load(path), images_folder)
        return 0
    results, failed = measure(console, options, results_folder / f"{machine.name()}.json")
    for table in tables.all_tables(results, options.parts):
        table.print(console)
    draw(console, results, images_folder)
    return 1 if failed else 0


def folders(options: argparse.Namespace) -> tuple[Path, Path]:
    """Where JSON and plots go. A quick run must not overwrite a real one."""
    if options.output is not None:
        return options.output, options.output
    if options.quick:
        return store.ROOT / "build" / "benchmarks", store.ROOT / "build" / "benchmarks"
    return store.RESULTS, IMAGES


def measure(console: Console, options: argparse.Namespace, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Runs the requested parts and adds them to the JSON file; returns which failed, too."""
    effort = Effort(
        options.repeats or (3 if options.quick else 7),
        options.seconds or (0.1 if options.quick else 0.4),
        options.quick,
        options.device,
    )
    if machine.version("envpool") is None:
        console.print("EnvPool is not installed: its columns stay empty (make bench installs it)")
    if any(part in python_parts.PARTS for part in options.parts):
        python_parts.announce(console.print)
    before = store.load(path) if path.exists() else {}
    results: dict[str, Any] = {"machine": machine.describe()}
    results |= {key: before.get(key, {}) for key in ("measured", "effort", "parts")}
    failed: list[str] = []
    for name in options.parts:
        try:
            found = PARTS[name](effort, lambda line: console.print(line, style="dim"))
        except Exception:  # the parts after it must not be lost with it, nor what it had before
            console.print_exception()
            failed.append(name)
            continue
        if not found:  # a library is missing: what another environment has measured stays
            continue
        results["parts"][name] = found
        results["measured"][name] = {key: results["machine"][key] for key in ("cpu", "python", "packages", "date")}
        results["effort"][name] = {"repeats": effort.repeats, "seconds": effort.seconds, "quick": effort.quick}
        store.save(path, results)
    console.print(f"wrote {store.shown(path)}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return results, failed


def draw(console: Console, results: dict[str, Any], folder: Path) -> None:
    try:
        from benchmarks import plots
    except ModuleNotFoundError as error:
        console.print(f"no plots: {error} (make bench installs it)")
        return
    for path in plots.draw_all(results, folder):
        console.print(f"wrote {store.shown(path)}")


def write_documents(console: Console) -> int:
    from benchmarks import documents

    for path in documents.write(store.ROOT, store.load_all(), IMAGES):
        console.print(f"wrote {store.shown(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
