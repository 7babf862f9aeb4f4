"""The program: which commands there are, and what becomes of their errors.

Exit codes: 0; 1 if a command found a difference, a failed check or a failing env; 2 if it was called wrongly; 130 if it
was interrupted by Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

import stepmill
from stepmill.errors import EnvError, StepmillError

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "run"]

FAILED = 1
INTERRUPTED = 130

# In the order of the help: look around, run, measure, check, keep. Each is `command` in a file of that name.
COMMANDS = ["list", "info", "doctor", "run", "watch", "bench", "tune", "check", "verify", "new", "record", "collect"]


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"stepmill.cli.commands.{cmd_name}")
        command: click.Command = module.command
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`stepmill COMMAND --help` says more about each. Completion for your shell: docs/command-line.md.",
)
@click.version_option(stepmill.__version__, prog_name="stepmill", message="%(prog)s %(version)s")
def program() -> None:
    """Runs many reinforcement-learning environments at once."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name, and returns its exit code."""
    try:
        code = program.main(args=arguments, prog_name="stepmill", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _say(error.format_message(), 2)
    except EnvError as error:  # the call was right, an env is not
        return _say(str(error), FAILED)
    except StepmillError as error:
        return _say(str(error), 2)
    except (KeyboardInterrupt, click.Abort):
        return _say("stopped", INTERRUPTED)
    except (BrokenPipeError, SystemExit):
        # Of `stepmill list | head`: nobody reads on, which is no error. Click turns the first into the second.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes
        return 0


def _say(message: str, code: int) -> int:
    click.echo(f"stepmill: {message}", err=True)
    return code
