"""The program: which commands there are, and what becomes of their errors.

Exit codes: 0; 1 if a command found a difference, a failed check or a failing env; 2 if it was called wrongly; 130 if it
was interrupted by Ctrl-C.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import click

import stepmill
from stepmill.errors import EnvError, StepmillError
from stepmill.tools.cli import interrupts
from stepmill.tools.cli.failures import place_of

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "ended", "run"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FAILED = 1
INTERRUPTED = 130

# In the order of the help: look around, run, measure, check, keep. Each is `command` in a file of that name.
COMMANDS = [
    *("demo", "list", "info", "doctor"),
    *("run", "watch", "top"),
    *("bench", "tune"),
    *("check", "verify", "new"),
    *("record", "collect"),
]


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"stepmill.tools.cli.commands.{cmd_name}")
        command: click.Command = module.command
        return command


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`stepmill COMMAND --help` says more about each. Completion for your shell: docs/command-line.md.",
)
@click.version_option(stepmill.__version__, prog_name="stepmill", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Runs many reinforcement-learning environments at once."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name, and returns its exit code."""
    with interrupts.Interrupts(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        return ended(lambda: program.main(args=arguments, prog_name="stepmill", standalone_mode=False))


def ended(work: Callable[[], Any]) -> int:
    """Does the work of a command, says what went wrong, and returns the exit code."""
    try:
        return _ended(work)
    except (KeyboardInterrupt, click.Abort):
        return _say("stopped", INTERRUPTED)
    except Exception:
        if interrupts.pressed():  # what failed then, failed because of that
            return _say("stopped", INTERRUPTED)
        raise


def _ended(work: Callable[[], Any]) -> int:
    try:
        code = work()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except EnvError as error:  # the call was right, an env is not
        return _say(f"{error}{place_of(error.__cause__)}", FAILED)
    except StepmillError as error:
        return _say(str(error), 2)
    except (BrokenPipeError, SystemExit):
        # Of `stepmill list | head`: nobody reads on, which is no error. Click turns the first into the second.
        _write_nowhere()
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _write_nowhere()
        return _say(f"the result cannot be written: {error.strerror}", FAILED)


def _write_nowhere() -> None:
    """Else Python complains when it flushes what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Without the line of code that warns, which says nothing to somebody who has called a command."""
    _say(" ".join(str(message).split()), 0)


def _say(message: str, code: int) -> int:
    click.echo(f"stepmill: {message}", err=True)
    return code
