"""``stepmill check``: whether an env keeps the contract, in words."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stepmill.sources.find import find_source
from stepmill.testing.finding import Report, count_of
from stepmill.tools.cli.options import json_option, set_option, target
from stepmill.tools.cli.program import FAILED, in_child
from stepmill.tools.cli.terminal import Terminal, until_interrupted

_NAMED = 6  # rules that were not checked; if a check ends early, these are nearly all


@click.command("check")
@in_child
@target
@set_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the envs and the actions.")
@click.option("--episodes", type=click.IntRange(min=1), default=3, show_default=True, help="Whole episodes to play.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="After these an episode is cut off."
)
@json_option
def command(target: Any, name: str, config: dict[str, Any], terminal: Terminal, **options: int) -> int:
    """Check an env of your own: plays it, and says where it breaks the rules that training code relies on.

    Spaces, types, seeds, ends of episodes, memory, and what it leaves open. With --set the options become the cfg of a
    BaseEnv, or the arguments of a gymnasium.Env. The exit code is 1 if there are findings.

    \b
    stepmill check my_envs.py:Maze
    stepmill check my_package.envs:Maze --set level=3 --steps 5000
    stepmill check CartPole-v1
    """
    from stepmill.testing.check import Examination

    if isinstance(target, str):  # a wrong option is the caller's fault, and not the env's
        find_source(target, 1, config, None, "auto", None, None)
    elif set(config) == {"cfg"}:  # check_env passes it on as that
        config = config["cfg"]
    examination = Examination(target, config or None, **options)
    with until_interrupted() as ending, terminal.progress(name, None) as bar:
        examination.run(lambda moment: bar.add(1))
    report = examination.report()
    document = {
        "id": name,
        "findings": [vars(one) for one in report],
        "checked": report.checked,
        "unchecked": report.unchecked,
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: _draw(out, report))
    return ending.code or (FAILED if report else 0)


def _draw(out: Console, report: Report) -> None:
    out.print(Text(report.title, style="bold"))
    for one in report:
        more = f" (seen {one.count} times)" if one.count > 1 else ""
        out.print(Text.assemble(("x ", "bold red"), (one.rule, "bold"), f"  {one.where}{more}"))
        for label, text in (("expected", one.expected), ("got", one.got), ("->", one.advice)):
            out.print(Padding(Text.assemble((f"{label} ", "dim"), " ".join(text.split())), (0, 0, 0, 4)))
    for reason in dict.fromkeys(report.unchecked.values()):
        names = [rule for rule, why in report.unchecked.items() if why == reason]
        said = ", ".join(names) if len(names) <= _NAMED else count_of(len(names), "rule")
        out.print(Text.assemble(("? ", "yellow"), f"not checked: {said}"))
        out.print(Padding(Text(" ".join(reason.split())), (0, 0, 0, 4)))
    left_out = f", {count_of(len(report.unchecked), 'rule')} not checked" if report.unchecked else ""
    checked, found = count_of(len(report.checked), "rule"), count_of(len(report), "finding")
    out.print(Text(f"{checked} checked, {found}{left_out}", style="red" if report else "green"))
