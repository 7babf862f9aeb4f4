"""Stands in for Ray where nothing but its carrying matters: actors are objects of this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import cloudpickle


class Reference:
    """To a value, or to what was raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        try:
            self.value = call()
        except BaseException as error:
            self.error = error


class Method:
    """A method of an actor. It is done at once; what it is given and returns is pickled, as on a network."""

    def __init__(self, ray: RayHere, actor: Any, name: str) -> None:
        self._ray, self._actor, self._name = ray, actor, name

    def options(self, **_: Any) -> Method:
        return self

    def remote(self, *arguments: Any) -> Reference:
        given = [one.value if isinstance(one, Reference) else one for one in arguments]
        return Reference(lambda: self._ray.carry(self._name, given, getattr(self._actor, self._name)))


class Handle:
    """Of an actor."""

    def __init__(self, ray: RayHere, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def __getattr__(self, name: str) -> Method:
        return Method(self._ray, self._actor, name)


class RayHere:
    """The functions of ``ray`` that a pool calls, in a cluster of one node with four CPUs.

    Attributes:
        carried: What every call of an actor was given and has returned, by the name of its method.
    """

    exceptions = SimpleNamespace(RayError=OSError)

    def __init__(self) -> None:
        self.carried: dict[str, list[tuple[list[Any], Any]]] = {}

    def carry(self, name: str, arguments: list[Any], method: Callable[..., Any]) -> Any:
        returned = _copied(method(*map(_copied, arguments)))
        self.carried.setdefault(name, []).append((arguments, returned))
        return returned

    def remote(self, **_: Any) -> Callable[[type], Any]:
        def of(cls: type) -> Any:
            made = SimpleNamespace(remote=lambda *arguments: Handle(self, cls(*arguments)))
            return SimpleNamespace(options=lambda **_: made)

        return of

    def put(self, value: Any) -> Reference:
        return Reference(lambda: value)

    def get(self, reference: Reference) -> Any:
        if reference.error is not None:
            raise OSError(str(reference.error)) from reference.error
        return reference.value

    def wait(
        self, references: Sequence[Reference], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        return list(references[:num_returns]), list(references[num_returns:])

    def kill(self, handle: Handle, **_: Any) -> None:
        """Its envs were closed."""

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0}}]

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "node", get_worker_id=lambda: "worker")


def _copied(value: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(value))
