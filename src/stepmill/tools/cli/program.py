"""The program: which commands there are, and what becomes of their errors.

Exit codes: 0; 1 if a command found a difference, a failed check or a failing env; 2 if it was called wrongly; 130 if it
was interrupted by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import multiprocessing
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click

import stepmill
from stepmill.errors import EnvError, StepmillError
from stepmill.system.guardian import die_with_parent
from stepmill.tools.cli import interrupts
from stepmill.tools.cli.interrupts import INTERRUPTED
from stepmill.tools.cli.terminal import Terminal

F = TypeVar("F", bound=Callable[..., Any])


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FAILED = 1

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


# ---- failures in the code of users ----------------------------------------------------------------------

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_NOT_THE_USERS = ("<frozen", *(str(Path(str(module.__file__)).parent) for module in (stepmill, importlib)))


def place_of(error: BaseException | None) -> str:
    """`` (my_envs.py, line 20, in step)``, or nothing if that is not known.

    Of an error from a worker process, the traceback is a note.
    """
    if error is None:
        return ""
    text = [*traceback.format_tb(error.__traceback__), *getattr(error, "__notes__", ())]
    frames = [one for one in _FRAME.findall("\n".join(text)) if not one[0].startswith(_NOT_THE_USERS)]
    return f" ({frames[-1][0]}, line {frames[-1][1]}, in {frames[-1][2]})" if frames else ""


# ---- commands whose envs run in the command's own process ------------------------------------------------


def in_child(command: F) -> F:
    """Lets a command work in a child; if an env ends that, one line says so.

    The user's module is imported there too: before that, there is nothing that a fork could break.
    """

    @functools.wraps(command)
    def begin(*, target: str, terminal: Terminal, **options: Any) -> int:
        parent, (at_end, said) = os.getpid(), os.pipe()

        def work() -> None:
            die_with_parent(parent)
            interrupts.listen_to_parent()
            try:
                code = ended(lambda: command(target=target, terminal=terminal, **options))
            finally:
                os.write(said, b".")
            sys.exit(code)

        child = multiprocessing.get_context("fork").Process(target=work)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that numpy has threads: they know of forks
            child.start()
        _wait_for(cast(int, child.pid))
        child.join()
        os.close(said)
        with os.fdopen(at_end, "rb", buffering=0) as pipe, contextlib.suppress(BlockingIOError):
            os.set_blocking(at_end, False)  # another process of the env's may hold the other end
            if pipe.read(1):
                return cast(int, child.exitcode)
        interrupts.check()
        terminal.clear()
        raise click.ClickException(_what_happened(target, cast(int, child.exitcode)))

    return cast(F, begin)


def _wait_for(pid: int) -> None:
    """Waits until it ends, and passes on what ends a command."""
    while True:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return
        except KeyboardInterrupt:
            os.kill(pid, interrupts.FROM_PARENT)


def _what_happened(env: str, code: int) -> str:
    if code < 0:
        return f"the process of {env} was ended by {signal.Signals(-code).name}: it crashed, or somebody killed it"
    return f"{env} ended its process with exit code {code}: it calls os._exit, or something that it uses does"
