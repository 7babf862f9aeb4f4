"""Options that several commands have, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from stepmill.cli.target import config_of, find_target, fitted
from stepmill.cli.terminal import Terminal
from stepmill.pool.settings import Backend

__all__ = [
    "Seconds",
    "complete_id",
    "json_option",
    "policy_option",
    "pool_arguments",
    "pool_options",
    "seed_option",
    "set_option",
    "target",
]

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A time of at least a millisecond. Refuses NaN too, which is in every range of click's own."""

    def __init__(self, most: float = 3600) -> None:
        super().__init__(min=0.001, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return seconds


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
    callback=lambda ctx, _, values: fitted(ctx.params.get("target"), config_of(values)),
    help="An option of the env, such as frame_skip=4; again for each. `stepmill info ID` lists them.",
)

policy_option: Callable[[F], F] = click.option(
    "--policy",
    default="random",
    show_default=True,
    metavar="random|FILE.py:FUNCTION",
    help="Who acts: FUNCTION(observation, generator) returns an action; with FUNCTION.batched = True it is given the "
    "observations of many envs, and a list of generators, and returns as many actions.",
)


def target(function: F) -> F:
    """The argument ``ID|MODULE:ENV``: the command gets what ``make`` takes, and the text as ``name``."""

    def both(ctx: click.Context, _: click.Parameter, text: str) -> Any:
        ctx.params["name"] = text
        return text if ctx.resilient_parsing else find_target(text)

    argument: Callable[[F], F] = click.argument(
        "target",
        metavar="ID|MODULE:ENV",
        callback=both,
        shell_complete=complete_id,
        is_eager=True,  # --set needs it
    )
    return argument(function)


def complete_id(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The ids that begin so, as far as they are known without importing the packages that have more."""
    from gymnasium import registry

    from stepmill.registry import records

    return sorted(id for id in {*registry, *(record.id for record in records())} if id.startswith(begun))


def pool_options(num_envs: int) -> Callable[[F], F]:
    """Options for the pool that a command runs, ``num_envs`` by default; ``pool_arguments`` reads them."""
    options = [
        click.option(
            "--num-envs", type=click.IntRange(min=1), default=num_envs, show_default=True, help="How many envs."
        ),
        click.option("--batch-size", type=click.IntRange(min=1), help="Async: go on when so many envs are done."),
        click.option("--num-workers", type=click.IntRange(min=1), help="Worker processes.  [default: by cores]"),
        click.option("--num-threads", type=click.IntRange(min=0), help="Threads of native envs.  [default: by cores]"),
        click.option("--backend", type=click.Choice(get_args(Backend)), default="auto", show_default=True),
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
    return {**config, **options}
