"""``stepmill demo``: the first thing to run. One env, here and in Gymnasium, with a plot."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

import stepmill
from stepmill.tools.cli.commands.bench import SideBySide
from stepmill.tools.cli.options import Seconds, complete_id, json_option, picture_option
from stepmill.tools.cli.program import FAILED
from stepmill.tools.cli.terminal import Terminal, ratio_text, until_interrupted
from stepmill.tools.measuring.peers import Workload, peers_of, quiet
from stepmill.tools.measuring.runners import Effort
from stepmill.tools.verify.results import Verification

_SHOWN = ("stepmill", "Gymnasium SyncVectorEnv")
_ROUNDS = 10
_COMPARED_STEPS = 2000
_COMPARED_ENVS = 8  # at most


@click.command("demo")
@click.argument("env", metavar="[ID]", default="CartPole-v1", shell_complete=complete_id)
@click.option("--num-envs", type=click.IntRange(min=1), default=256, show_default=True, help="How many envs.")
@click.option(
    "--seconds",
    type=Seconds(),
    default=3.0,
    show_default=True,
    help="How long each library steps them.",
)
@picture_option("stepmill-demo.png")
@json_option
def command(env: str, num_envs: int, seconds: float, picture: Path, terminal: Terminal) -> int:
    """Step one env for a few seconds, here and in Gymnasium, and compare their speed and their episodes.

    Both get the same seeds and actions. ID is CartPole-v1 if you name none.

    \b
    stepmill demo
    stepmill demo HalfCheetah-v5 --num-envs 64
    """
    subject = Workload.of(env, num_envs)
    compared: Verification | None = None
    measured: SideBySide | None = None
    with quiet(), until_interrupted() as ending:
        measured = SideBySide(subject, [peer for peer in peers_of(subject) if peer.name in _SHOWN])
        compared = _compare(measured)
        measured.measure(Effort(_ROUNDS, seconds / _ROUNDS), terminal)
    if measured is None or not measured.rates:
        raise KeyboardInterrupt
    measured.save(picture)
    document = {
        "id": env,
        "num_envs": num_envs,
        "steps_per_second": measured.rates,
        "failed": measured.failed,
        "equal": None if compared is None else bool(compared),
        "picture": picture,
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: _draw(out, measured, compared, picture))
    return ending.code or (FAILED if compared is not None and not compared else 0)


def _compare(measured: SideBySide) -> Verification | None:
    """Plays the same episodes in both, if both have the env and not the same one."""
    if not measured.subject.is_native or measured.is_alone:
        return None
    envs = min(measured.subject.num_envs, _COMPARED_ENVS)
    return stepmill.verify(measured.subject.name, steps=_COMPARED_STEPS, num_envs=envs)


def _draw(out: Console, measured: SideBySide, compared: Verification | None, picture: Path) -> None:
    out.print()
    measured.draw(out)
    out.print()
    for line in [*_said(measured, compared), f"As a picture: {picture}"]:
        out.print(line, soft_wrap=not out.is_terminal)


def _said(measured: SideBySide, compared: Verification | None) -> list[str]:
    """What the bars do not say."""
    lines = []
    rates = measured.rates
    if len(rates) > 1:
        ratio = ratio_text(rates[_SHOWN[0]] / rates[_SHOWN[1]])
        lines.append(f"stepmill takes {ratio} times as many steps per second.")
    elif measured.is_alone:
        lines.append(f"Gymnasium has no {measured.subject.name}, so stepmill ran alone.")
    if compared:
        envs = f"{compared.num_envs} env{'s' * (compared.num_envs > 1)}"
        steps = f"{compared.steps:,} steps in {envs}"
        lines.append(f"The same seeds and actions gave the same episodes, bit for bit: {steps}.")
    elif compared is not None:
        lines.append(str(compared))
    elif not measured.is_alone:
        lines.append("stepmill ran Gymnasium's own env, so there are no episodes to compare.")
    return lines
