"""``stepmill watch``: plays an env and shows it on a page in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

import stepmill
from stepmill.errors import ConfigError, EnvError, UnsupportedError
from stepmill.tools.cli.options import Number, json_option, policy_option, pool_arguments, pool_options, target
from stepmill.tools.cli.policy import RandomActions, load_policy
from stepmill.tools.cli.target import make_drawn
from stepmill.tools.cli.terminal import Terminal, until_interrupted
from stepmill.views.pool import watched

if TYPE_CHECKING:  # imported when the command runs, not for its help: it brings a server
    from stepmill.hosts.rollout.steps import StepBatch
    from stepmill.tools.watching.control import Control
    from stepmill.tools.watching.watch import Watch


_MOST_FAILURES = 100  # batches with failures, one after another


@click.command("watch")
@target
@pool_options(num_envs=16)
@policy_option
@click.option("--speed", type=Number(min=0, min_open=True, max=1000), help="Batches per second, at most.")
@click.option("--paused", is_flag=True, help="Start paused: the page has buttons to step and to go on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port of the page.  [default: a free one]")
@click.option("--browser/--no-browser", default=None, help="Open a browser.  [default: if there is a display]")
@click.option("--link", is_flag=True, help="Also print an address that works once, for a browser elsewhere (ssh -L).")
@json_option
def command(
    target: Any,
    name: str,
    policy: str,
    speed: float | None,
    paused: bool,
    port: int,
    browser: bool | None,
    link: bool,
    terminal: Terminal,
    **options: Any,
) -> int:
    """Play an env and watch it in the browser: a live grid of envs, returns, speed; until Ctrl-C.

    \b
    stepmill watch CartPole-v1
    stepmill watch Pong-v5 --num-envs 9 --speed 15
    stepmill watch my_envs.py:Maze --policy agent.py:act --no-browser
    """
    from stepmill.tools.watching.control import Control
    from stepmill.tools.watching.watch import Watch

    chosen = load_policy(policy)
    control = Control(paused, speed)
    with (
        until_interrupted() as ending,
        _make(target, pool_arguments(options), terminal) as pool,
        Watch(watched(pool), port=port, open_browser=browser, control=control) as page,
    ):
        _tell(terminal, page, link)
        with terminal.progress(name, None) as bar:
            acting = chosen or RandomActions(pool.spec.action_space, options["seed"])
            for rows in _play(pool.play(acting, seed=options["seed"], raise_errors=False), control, page):
                bar.add(rows)
    return ending.code


def _make(target: Any, arguments: dict[str, Any], terminal: Terminal) -> Any:
    """The pool, with pictures if the envs have any."""
    try:
        return make_drawn(target, arguments)
    except (ConfigError, UnsupportedError, EnvError) as error:  # it has no such mode, or fails in it
        pool = stepmill.make(target, **arguments)  # which says so if something else is wrong
        terminal.remark(f"Without pictures: {error}")
        return pool


def _play(batches: Iterator[StepBatch], control: Control, page: Watch) -> Iterator[int]:
    """Plays whenever the page allows it, for ever; yields how many envs each batch had."""
    failures = 0
    for batch in batches:
        failures = 0 if batch.error is None else failures + 1
        if batch.error is not None and failures == _MOST_FAILURES:
            raise batch.error
        yield len(batch.env_ids)  # the page shows errors, and an env that failed goes on with its next action
        control.wait(page.look_again)


def _tell(terminal: Terminal, page: Watch, link: bool) -> None:
    if terminal.json:
        told = {"port": page.port, "url": page.url, "file": str(page.file)}
        terminal.line({**told, "link": page.new_link()} if link else told)
        return
    terminal.remark(f"The page is at {page.url}, for browsers that come through this file, which only you can read:")
    terminal.remark(f"  {page.file.as_uri()}")
    if link:
        terminal.remark("or through this address, which works once, for whoever has it first:")
        terminal.remark(f"  {page.new_link()}")
        forward = f"ssh -L {page.port}:127.0.0.1:{page.port} MACHINE"
        terminal.remark(f"If your browser is on another machine than this one, run there before: {forward}")
    terminal.remark("Ctrl-C ends it.")
