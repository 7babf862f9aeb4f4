"""Options that several commands have, each written once."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click

from stepmill.settings import Backend, Ray
from stepmill.tools.cli.bars import require_matplotlib
from stepmill.tools.cli.target import config_of, find_target, fitted
from stepmill.tools.cli.terminal import Terminal

_PICTURES = (".png", ".svg", ".pdf")

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A number in a range. Refuses NaN too, which is in every range of click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class Seconds(Number):
    """A time."""

    def __init__(self, most: float = 3600, least: float = 0.001) -> None:
        super().__init__(min=least, max=most)


def _terminal(ctx: click.Context, _: click.Parameter, json: bool) -> Terminal:
    terminal = Terminal(json)
    ctx.call_on_close(terminal.close)
    return terminal


json_option: Callable[[F], F] = click.option(
    "--json",
    "terminal",
    is_flag=True,
    callback=_terminal,
    help="Write the result as one JSON document to stdout, and nothing else there.",
)
"""The command gets a ``Terminal`` as its argument ``terminal``."""

seed_option: Callable[[F], F] = click.option(
    "--seed", type=click.IntRange(min=0), default=42, show_default=True, help="Env i is seeded with SEED + i."
)

set_option: Callable[[F], F] = click.option(
    "--set",
    "config",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda ctx, _, values: config_of(values),
    help="An option of the env, such as frame_skip=4; again for each. `stepmill info ID` lists them.",
)

policy_option: Callable[[F], F] = click.option(
    "--policy",
    default="random",
    show_default=True,
    metavar="random|FILE.py:FUNCTION",
    help="Who acts: FUNCTION(observations, env_ids, generators) returns an action per env. stepmill.per_env makes one "
    "of a function for a single env.",
)


def picture_option(default: str | None = None) -> Callable[[F], F]:
    """``-o FILE.png``: the command gets a path as ``picture``; None if there is neither one nor a default."""
    option: Callable[[F], F] = click.option(
        "-o",
        "--output",
        "picture",
        type=click.Path(path_type=Path, dir_okay=False),
        default=default,
        show_default=default is not None,
        metavar="FILE.png",
        callback=_check_picture,
        help="Where to draw the plot: a png, an svg or a pdf.",
    )
    return option


def folder_option(help: str, *, required: bool = False) -> Callable[[F], F]:
    """``-o DIR``: the command gets a path as ``folder``."""
    option: Callable[[F], F] = click.option(
        "-o",
        "--output",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        required=required,
        metavar="DIR",
        callback=_check_folder,
        help=help,
    )
    return option


def _check_picture(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not ctx.resilient_parsing:
        if path.suffix.lower() not in _PICTURES:
            raise click.UsageError(f"-o {path}: expected a name that ends with {', '.join(_PICTURES)}")
        require_matplotlib()
        _try_to_write(path, path.parent)
    return path


def _check_folder(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not ctx.resilient_parsing:
        _try_to_write(path, path)
    return path


def _try_to_write(path: Path, folder: Path) -> None:
    """Before a command works for minutes. A folder that does not exist is made when it is needed."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise click.UsageError(f"-o {path}: cannot write to {there}: {error.strerror}") from error
    if path.is_file() and not os.access(path, os.W_OK):
        raise click.UsageError(f"-o {path}: expected a file that can be written to")


def target(function: F) -> F:
    """The argument ``ID|MODULE:ENV``: the command gets what ``make`` takes, and the text as ``name``.

    The user's module is imported when the command begins, and not while its arguments are read: with ``--json``, what
    the module prints must not go to stdout.
    """

    @functools.wraps(function)
    def begin(*, target: str, **options: Any) -> Any:
        found = find_target(target, elsewhere=options.get("python") is not None)
        return function(target=found, name=target, **{**options, "config": fitted(found, options["config"])})

    argument: Callable[[F], F] = click.argument("target", metavar="ID|MODULE:ENV", shell_complete=complete_id)
    return argument(cast(F, begin))


def complete_id(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The ids that begin so, as far as they are known without importing the packages that have more."""
    from gymnasium import registry

    from stepmill.registry.records import records

    return sorted(id for id in {*registry, *(record.id for record in records())} if id.startswith(begun))


def pool_options(num_envs: int) -> Callable[[F], F]:
    """Options for the pool that a command runs, ``num_envs`` by default; ``pool_arguments`` reads them."""
    options = [
        click.option(
            "--num-envs", type=click.IntRange(min=1), default=num_envs, show_default=True, help="How many envs."
        ),
        click.option("--batch-size", type=click.IntRange(min=1), help="Async: go on when this many envs are done."),
        click.option("--num-workers", type=click.IntRange(min=1), help="Worker processes.  [default: by cores]"),
        click.option("--num-threads", type=click.IntRange(min=0), help="Threads of native envs.  [default: by cores]"),
        click.option("--backend", type=click.Choice(get_args(Backend)), default="auto", show_default=True),
        click.option("--num-actors", type=click.IntRange(min=1), help="On Ray: actors.  [default: one per node]"),
        click.option("--address", metavar="HOST:PORT", help="On Ray: the cluster.  [default: one that is here]"),
        click.option("--python", metavar="FOLDER", help="Another environment, whose packages the envs use."),
        seed_option,
        set_option,
    ]

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def pool_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``make`` from what ``pool_options`` brought."""
    config: dict[str, Any] = options.pop("config")
    on_ray = {name: options.pop(name) for name in ("num_actors", "address")}
    given = [name for name, value in on_ray.items() if value is not None]
    if given:
        if options["backend"] != "ray":
            raise click.UsageError(f"--{given[0].replace('_', '-')}: only a pool on Ray has this: use --backend ray")
        options["backend"] = Ray(**on_ray)
    return {**config, **options}
