"""One interpreter's part of a pool: the template there, which loads what the envs need and forks their workers.

Usually a pool has one part, and the interpreter is the caller's own.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator

from stepmill.errors import ConfigError, EnvError, EnvTimeoutError, MissingPackageError
from stepmill.hosts.process.caller.child_process import Deadline
from stepmill.hosts.process.caller.construction import build_error, describe_exit, find_exit
from stepmill.hosts.process.caller.handles import LoadError, TemplateHandle
from stepmill.hosts.process.caller.servers import lease_server, return_server
from stepmill.hosts.process.payload import pack_payload
from stepmill.hosts.process.pickling import ABROAD, BY_NAME, CodeByValue, versions
from stepmill.hosts.process.wire import WireClosed
from stepmill.sources.files.sanitizers import SanitizerReport
from stepmill.sources.source import IslandFacts, NativeSource, PythonSource


class InterpreterPart:
    """The template of one pool that an interpreter runs; None is the caller's own.

    Attributes:
        template: None before it is loaded and after ``end``.
        found: What was found out there about the envs, which the caller could not know.
        takes_code: Whether code can be sent there by value.
    """

    def __init__(
        self, source: PythonSource | NativeSource, python: str | None, obituary: int, start_timeout: float
    ) -> None:
        self.python = python
        self.template: TemplateHandle | None = None
        self.found: IslandFacts | None = None
        self.takes_code = True
        self._environ = source.worker_environ if isinstance(source, NativeSource) else {}
        self._shown = source.id if python is None else f"{source.id} with python={python!r}"
        self._obituary = obituary
        self._start_timeout = start_timeout
        self._loads_in_template = True
        self._by_value: CodeByValue | None = None  # why the payload contains code, if it does
        if python is None or isinstance(source, NativeSource):
            self._packed = pack_payload(source if isinstance(source, NativeSource) else source.part_for(python))
            return
        part = source.part_for(python)
        try:
            self._packed = pack_payload(part, python, BY_NAME)
        except CodeByValue as error:
            self._by_value = error
            self._packed = pack_payload(part, python, ABROAD)

    def keep_server(self, deadline: Deadline, until: contextlib.ExitStack) -> None:
        """Starts the server, which then lives at least until ``until`` is closed. Does not wait until it is up."""
        until.callback(return_server, lease_server(deadline, self.python, self._environ))

    def loading_template(self, deadline: Deadline, *, silent: bool = False) -> TemplateHandle:
        """A template that loads what the envs need, or has done so already. Does not wait for that."""
        if self.template is not None and self.template.is_alive:
            return self.template
        self.end()
        self.template = self._new_template(deadline, silent)
        self.template.begin_loading(self._packed, self._loads_in_template, deadline)
        return self.template

    def loaded_template(self, deadline: Deadline, *, silent: bool = False) -> TemplateHandle:
        """A template that is ready to fork workers, kept for later ones."""
        template = self.loading_template(deadline, silent=silent)
        if not template.is_loaded and self._finish_loading(template, deadline) > 1:
            # A fork copies only one thread, and locks held by the others stay locked. So each worker loads for itself.
            self._loads_in_template = False
            self.end()
            template = self.loading_template(deadline, silent=silent)
            self._finish_loading(template, deadline)
        return template

    def end(self) -> None:
        """Ends the template with its workers."""
        if self.template is not None:
            self.template.end()
            self.template = None

    def forget(self) -> None:
        """In a forked child: closes the descriptors."""
        if self.template is not None:
            self.template.forget()

    def _new_template(self, deadline: Deadline, silent: bool) -> TemplateHandle:
        try:
            made = TemplateHandle(self._obituary, deadline, self.python, self._environ, silent=silent)
        except WireClosed:  # the server has just died: try again with a new one
            made = TemplateHandle(self._obituary, deadline, self.python, self._environ, silent=silent)
        there = made.versions
        self.takes_code = there == versions()
        if self._by_value is not None and not self.takes_code:
            made.end()
            raise ConfigError(
                f"{self._shown}: code that cannot be imported goes to an island only between equal versions, got "
                f"{' and cloudpickle '.join(versions())} here, {' and cloudpickle '.join(there)} there: "
                f"{self._by_value}. Put it into a module of its own, and pass what that defines"
            ) from self._by_value
        return made

    def _finish_loading(self, template: TemplateHandle, deadline: Deadline) -> int:
        try:
            threads, found = template.finish_loading(deadline)
        except LoadError as error:
            failure = build_error(self._shown, None, error.phase, error.description)
            if self.python is not None and isinstance(failure, MissingPackageError):  # it names the package, not where
                raise MissingPackageError(f"{failure}, with {self.python} -m pip") from failure
            raise failure from failure.__cause__
        except TimeoutError:
            raise EnvTimeoutError(
                f"start_timeout={deadline.seconds}: after that many seconds a worker process is still loading "
                f"{self._shown}. It is here:\n{template.stack()}",
                phase="constructor",
            ) from None
        if found is not None:
            self.found = pickle.loads(found)
        return threads

    @contextlib.contextmanager
    def explained(self, obituary_fd: int) -> Iterator[None]:
        """Turns a broken wire or a missed deadline into an error that says what happened."""
        try:
            yield
        except WireClosed:
            status = report = None
            if self.template is not None:
                status = find_exit(obituary_fd, -1, self.template.pid, self.template.pid)
                report = SanitizerReport.take(self._environ, self.template.pid)
            found = "" if report is None else f". {report.summary(())}"
            raise EnvError(
                f"the process that loads {self._shown} and starts its workers died: {describe_exit(status)}{found}",
                phase="constructor",
            ) from None
        except TimeoutError as error:
            if isinstance(error, EnvTimeoutError):
                raise
            raise EnvTimeoutError(
                f"start_timeout={self._start_timeout}: the process that starts the workers of {self._shown} did not "
                "answer in time",
                phase="constructor",
            ) from None
